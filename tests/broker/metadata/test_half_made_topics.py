"""What could not be made is taken back; and if that cannot be written either, nothing is in its way later."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import pytest
from tests.broker.metadata.test_topic_lifecycle import NODE, PARTITIONS, Node
from tests.log.log_doubles import ROOT, run

from fencepost.broker.metadata.topic_rules import TopicRefused
from fencepost.log.disk import NoDescriptors
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import TRANSACTION_STATE
from fencepost.runtime import Work, at_once


def counts(node: Node) -> dict[str, int]:
    """How many partitions each topic has; there are directories of no others."""
    found = {name: len(topic.partitions) for name, topic in node.topics.by_name.items()}
    directories = {f"{name}-{index}" for name, count in found.items() for index in range(count)}
    assert set(node.disk.list(ROOT)) == NODE | directories
    return found


@contextmanager
def without_descriptors(node: Node, after: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So many partitions more can be made, then no file can be opened: not even the journal of the metadata."""
    create_partition, left = node.storage.create_partition, after

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NoDescriptors("no descriptor is left")

    def create(*given: Any, **named: Any) -> Any:
        nonlocal left
        if not left:
            patch.setattr(node.store, "write", refuse)
            refuse()
        left -= 1
        return create_partition(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(node.storage, "create_partition", create)
        yield


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("after", range(3))
def test_what_could_not_be_made_nor_taken_back_can_be_made_later(
    after: int, restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        node = Node(after)
        await node.create("grown")
        grown = node.topics.by_name["grown"]
        with without_descriptors(node, after, monkeypatch), pytest.raises(TopicRefused) as refused:
            await node.topics.create("t", 3, {}, node.slices)
        assert refused.value.error is ErrorCode.KAFKA_STORAGE_ERROR
        with without_descriptors(node, after, monkeypatch), pytest.raises(TopicRefused) as refused:
            await node.topics.add_partitions(grown, PARTITIONS + 3, node.slices)
        assert refused.value.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert "t" not in node.topics.by_name and len(grown.partitions) == PARTITIONS
        if restart:  # what was begun last is finished; with it went what the first one left
            await node.end()
            node.disk.power_loss()
            node.start()
            assert counts(node) == {"grown": PARTITIONS + 3}
            return
        await node.create("t")
        await node.topics.add_partitions(grown, PARTITIONS + 1, node.slices)
        await node.storage.settle()
        for _ in range(2):
            assert counts(node) == {"t": PARTITIONS, "grown": PARTITIONS + 1}
            await node.end()
            node.disk.power_loss()
            node.start()

    run(main())


@pytest.mark.parametrize("turns", range(0, 16, 3))
def test_settings_that_change_while_a_topic_grows_are_those_of_its_new_partitions_too(turns: int) -> None:
    async def main() -> None:
        node = Node(turns, steps=1)
        await node.create("t")
        topic = node.topics.by_name["t"]
        growing = asyncio.ensure_future(node.topics.add_partitions(topic, PARTITIONS + 5, node.slices))
        for _ in range(turns):
            await asyncio.sleep(0)
        assert at_once(node.topics.change_together({topic: {"retention.ms": "7"}})) == {}
        await growing
        assert [partition.settings.retention_ms for partition in topic.partitions] == [7] * (PARTITIONS + 5)
        await node.end()

    run(main())


def test_of_two_names_that_differ_in_dots_only_one_is_made_even_at_once() -> None:
    async def main() -> None:
        node = Node(1, steps=1)
        works = [node.topics.create(name, PARTITIONS, {}, node.slices) for name in ("a.b", "a_b")]
        made, refused = await asyncio.gather(*works, return_exceptions=True)
        assert isinstance(refused, TopicRefused) and refused.error is ErrorCode.INVALID_TOPIC_EXCEPTION, made
        assert list(node.topics.by_name) == ["a.b"]
        await node.end()

    run(main())


def test_growths_at_once_come_one_after_the_other() -> None:
    """The second counts from what the first has made: the same partitions are not made twice."""

    async def main() -> None:
        node = Node(1, steps=1)
        await node.create("t")
        topic = node.topics.by_name["t"]
        works = [node.topics.add_partitions(topic, PARTITIONS + more, node.slices) for more in (2, 1, 3)]
        first, refused, last = await asyncio.gather(*works, return_exceptions=True)
        assert (first, last) == (None, None)
        assert isinstance(refused, TopicRefused) and refused.error is ErrorCode.INVALID_PARTITIONS
        assert counts(node) == {"t": PARTITIONS + 3}
        await node.end()

    run(main())


def test_no_partition_is_found_before_all_of_its_topic_is_made() -> None:
    async def main() -> None:
        node = Node(1, steps=1)
        making = asyncio.ensure_future(node.topics.create("t", 8, {}, node.slices))
        shown = set()
        while not making.done():
            await asyncio.sleep(0)
            shown.add(sum(node.storage.partition("t", index) is not None for index in range(8)))
        assert shown == {0, 8}
        await node.end()

    run(main())


def test_who_needs_an_internal_topic_that_is_being_made_waits_for_it() -> None:
    async def main() -> None:
        node, taken_over = Node(1, steps=1), list[int]()

        def take_over(number: int) -> Work[None]:
            taken_over.append(number)
            yield

        needed = [partial(take_over, number) for number in range(3)]
        works = [node.topics.ensure_internal(TRANSACTION_STATE, node.slices, each) for each in needed]
        assert await asyncio.gather(*works) == [None] * 3
        assert taken_over == [0] and TRANSACTION_STATE in node.topics.by_name
        await node.end()

    run(main())
