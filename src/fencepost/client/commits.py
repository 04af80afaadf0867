"""The positions of a consumer, and committing them for its group: when asked, and by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from fencepost.client.errors import CommitFailedError, MisuseError
from fencepost.client.fetcher import Fetcher
from fencepost.client.group import Group
from fencepost.client.group_offsets import GroupOffsets
from fencepost.client.positions import Positions
from fencepost.client.transactional_id import OffsetAndMetadata, with_metadata
from fencepost.protocol.types import TopicPartition


class Commits:
    """`auto_commit_interval_ms` is in milliseconds; None: nothing is committed by itself."""

    def __init__(
        self, group: Group | None, fetcher: Fetcher, places: Positions, auto_commit_interval_ms: float | None
    ) -> None:
        self._group = group
        self._offsets = None if group is None else GroupOffsets(group)
        self._fetcher = fetcher
        self._places = places
        self.is_automatic = group is not None and auto_commit_interval_ms is not None
        self._interval = (auto_commit_interval_ms or 0) / 1000
        self._last = 0.0
        """When something was committed by itself, by the loop's clock."""
        self._under_way = 0
        self._settled = asyncio.Event()
        self._settled.set()

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Store these, or the positions after everything that was handed out.  Raises as `Consumer.commit` does."""
        if self._group is None or self._offsets is None:
            raise MisuseError("commit() needs a group_id: give the consumer one")
        if self._group.fenced is not None:
            raise self._group.fenced
        positions = self.next_offsets() if offsets is None else self._places.checked(offsets)
        if positions:
            followed = self._fetcher.followed
            topic_ids = {at.topic: followed[at].topic_id for at in positions if at in followed}
            self._under_way += 1
            self._settled.clear()
            try:
                await self._offsets.commit(positions, topic_ids)
            finally:
                self._under_way -= 1
                if not self._under_way:
                    self._settled.set()

    async def settled(self) -> None:
        """Wait until no commit is under way."""
        await self._settled.wait()

    async def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's.  Raises MisuseError without one."""
        if self._offsets is None:
            raise MisuseError("committed() needs a group_id: give the consumer one")
        return await self._offsets.committed(partitions)

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit after all records handed out so far."""
        return {at: with_metadata(position) for at, position in self._positions().items()}

    def _positions(self) -> dict[TopicPartition, int | OffsetAndMetadata]:
        """After everything that was handed out, and after what nobody is shown."""
        return {at: followed.next_offset() for at, followed in self._fetcher.followed.items()}

    async def commit_done(self) -> None:
        """Store the positions after what the caller is done with."""
        positions = self._positions() | self._fetcher.before_work()
        if positions:
            await self.commit(positions)

    async def commit_if_due(self) -> None:
        """What is to be committed by itself now."""
        if self.is_due():
            self._last = asyncio.get_running_loop().time()
            with suppress(CommitFailedError):  # who prepares joins again
                await self.commit_done()

    def is_due(self) -> bool:
        """Whether something is to be committed by itself now."""
        since = asyncio.get_running_loop().time() - self._last
        return self.is_automatic and since >= self._interval

    async def before_joining(self) -> None:
        """What is to be committed by itself before the partitions are given up."""
        if self.is_automatic:
            with suppress(CommitFailedError):  # they belong to others by now, who read them again
                await self.commit_done()
