"""What a listener is told that says only some of it."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.client.rebalance_listener import RebalanceListener, end_if_cancelled, tell
from fencepost.protocol.types import TopicPartition

GIVEN = [TopicPartition("t", 2), TopicPartition("s", 9), TopicPartition("t", 0)]
SORTED = [TopicPartition("s", 9), TopicPartition("t", 0), TopicPartition("t", 2)]


class Revoked(RebalanceListener):
    """Says nothing of what is lost."""

    def __init__(self) -> None:
        self.told: list[list[TopicPartition]] = []

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.told.append(partitions)


def test_what_is_lost_is_revoked_unless_it_says_what_to_do_instead() -> None:
    listener = Revoked()
    asyncio.run(tell(listener, "on_partitions_lost", GIVEN))
    assert listener.told == [SORTED]


def test_a_hook_is_waited_for_and_told_partitions_in_their_order() -> None:
    listener = Revoked()
    asyncio.run(tell(listener, "on_partitions_revoked", GIVEN))
    assert listener.told == [SORTED]
    asyncio.run(tell(listener, "on_partitions_assigned", GIVEN))
    asyncio.run(tell(None, "on_partitions_revoked", GIVEN))
    assert listener.told == [SORTED], "it has nothing to say of what is new"


def test_a_task_ends_where_it_is_cancelled_itself_and_not_for_what_a_listener_raises() -> None:
    async def main() -> None:
        end_if_cancelled()  # as for a CancelledError that nobody has cancelled
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            with pytest.raises(asyncio.CancelledError):
                end_if_cancelled()
        task.uncancel()
        end_if_cancelled()

    asyncio.run(main())
