"""A topic is made anew when nobody knows anything of the one before it any more, and no power loss brings that back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.metadata.test_topic_lifecycle import PARTITIONS, Node
from tests.log.log_doubles import append, batch, run

from fencepost.runtime import Work


@pytest.mark.parametrize("full", [True, False])
def test_what_others_knew_of_a_deleted_topic_is_gone_for_good_before_the_next_one_is_there(full: bool) -> None:
    """As committed offsets: they would be those of a topic whose records begin at 0.  `full`: the disk, at first."""
    order: list[str] = []

    async def main() -> None:
        node = Node(1)
        await node.create("journal", "t")
        journal: Any = node.storage.partition("journal", 0)
        wait, write = node.storage.durability.wait, node.store.write

        def forget(names: Any) -> Work[bool]:
            yield
            if full and not order:
                order.append("the disk is full")
                return False
            append(journal, batch(tag=f"{names} forgotten"))
            order.append("forgotten")
            return True

        async def waited(lsn: Any) -> None:
            is_of_all = lsn >= node.storage.lsn
            await wait(lsn)
            order.append("durable" if is_of_all else "of something before")

        def written(*given: Any, **named: Any) -> Any:
            order.append("there")
            return write(*given, **named)

        topic = node.topics.by_name["t"]
        assert await node.slices.run(node.topics.withdraw_together([topic])) == {}
        node.storage.durability.wait = waited  # type: ignore[method-assign]
        node.store.write = written  # type: ignore[method-assign]
        await node.topics.remove([topic], forget, node.slices)
        await node.topics.create("t", PARTITIONS, {}, node.slices)
        await node.end()

    run(main())
    assert order[: order.index("there")] == [*["the disk is full", "durable"] * full, "forgotten", "durable"]
