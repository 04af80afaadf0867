"""Waiting for records: the part that `poll`, `poll_batch` and iteration share; one caller at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from fencepost.client.assignment import Assignment
from fencepost.client.commits import Commits
from fencepost.client.errors import MisuseError
from fencepost.client.fetcher import Fetcher
from fencepost.client.membership import Membership
from fencepost.client.records import ConsumerRecord
from fencepost.client.settings import check_counts, check_milliseconds

T = TypeVar("T")


class Reading:
    """Waits for records of one consumer.  `check_open` raises once that is closed."""

    def __init__(
        self,
        assignment: Assignment,
        fetcher: Fetcher,
        commits: Commits,
        group: Membership | None,
        check_open: Callable[[], None],
    ) -> None:
        self._assignment = assignment
        self._fetcher = fetcher
        self._commits = commits
        self._group = group
        self._check_open = check_open
        self._is_under_way = False

    async def records(self, timeout_ms: float, most: int) -> list[ConsumerRecord]:
        """Up to `most` records, as `next` gives them.  Raises TypeError, ValueError for no such number, as `next`."""
        check_counts(max_records=most)
        return await self.next(timeout_ms, partial(self._fetcher.take, most), [])

    async def next(self, timeout_ms: float, take: Callable[[], T], nothing: T) -> T:
        """What `take` returns, now or within `timeout_ms` milliseconds; `nothing` if no records come.

        The records handed out before count as done.  Raises as `Consumer.poll` does.
        """
        check_milliseconds(timeout_ms=timeout_ms)
        self._check_open()
        if self._is_under_way:
            raise MisuseError("another task is in poll() already: one at a time reads from a consumer")
        self._is_under_way = True
        try:
            return await self._next(timeout_ms / 1000, take, nothing)
        finally:
            self._is_under_way = False

    async def _next(self, seconds: float, take: Callable[[], T], nothing: T) -> T:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        self._fetcher.settle()
        self._fetcher.working = {}
        assignment = self._assignment
        while True:
            self._check_open()
            self._note_poll(loop.time())
            if not assignment.is_prepared() and not await assignment.preparation.done_within(end - loop.time()):
                if loop.time() >= end:
                    return nothing
                continue  # something else is to be read now
            self._commits.commit_if_due()
            taken = take()
            self._fetcher.fetch()
            if taken:
                return taken
            if self._fetcher.error is not None:
                error, self._fetcher.error = self._fetcher.error, None
                raise error
            left = end - loop.time()
            if left <= 0:
                await asyncio.sleep(0)  # who asks again at once lets others go on by that: records come in meanwhile
                return nothing
            await self._fetcher.wait(min(left, 0.5))

    def one(self) -> ConsumerRecord | None:
        """The next record, None if it has to be waited for.  Raises ClosedError, and as `Fetcher.take_one`."""
        self._check_open()
        assignment = self._assignment
        is_ready = assignment.is_started and not assignment.must_join() and not self._commits.is_due()
        if not is_ready or self._is_under_way:
            return None
        record = self._fetcher.take_one(assignment.is_prepared)
        if record is not None:
            self._note_poll(asyncio.get_running_loop().time())
        return record

    def _note_poll(self, now: float) -> None:
        if self._group is not None:
            self._group.polled_at = now
