"""Callbacks of the user when partitions are assigned, revoked or lost (Kafka's ConsumerRebalanceListener)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Sequence

from fencepost.protocol.types import TopicPartition


class RebalanceListener:
    """Base of listeners that are given to `subscribe`.  Each method may be `async`, or not; what it returns is ignored.

    They are called one after the other, while a `poll` (or an iteration) waits, and in `close`.  What one raises,
    `poll` raises: the rebalance goes on with the next one all the same, and nothing is told twice; `close` and
    `unsubscribe` raise it when all is done.  A `poll` that is
    cancelled or at the end of its time cancels none of them; `subscribe`, `assign` and `close` do.  They may call
    `commit`, `position`, `committed`, `pause`, `resume` and `seek`, but not `poll`; what is new has a position once it
    is read, or sought: until then `committed` tells it.  For a consumer of `fencepost.client.blocking` they are not
    `async`, and called in a thread of their own while `poll` waits.
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called before partitions are given up: they are ours until this has ended, and can be committed here.

        With cooperative-sticky those that somebody else is to have, with any other assignor all, before each rebalance.
        """

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called after each rebalance with the new partitions, if any, before they are read: `seek` says from where."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called with partitions that may be another member's by now: nothing can be committed of them any more.

        Calls `on_partitions_revoked` unless it is overridden.
        """
        return self.on_partitions_revoked(partitions)


async def tell(listener: RebalanceListener | None, hook: str, partitions: Sequence[TopicPartition]) -> None:
    """Call the method of a listener that is called `hook`, if there is a listener.  Raises what that raises."""
    if listener is not None:
        done = getattr(listener, hook)(sorted(partitions))
        if inspect.isawaitable(done):
            await done


def end_if_cancelled() -> None:
    """Raises CancelledError where the task is cancelled that calls this; a listener may raise one all the same."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
