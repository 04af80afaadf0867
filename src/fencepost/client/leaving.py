"""Ends the reading of a consumer: commits, then gives up its partitions, then leaves the group."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from fencepost.client.assignment import Assignment
from fencepost.client.cluster import Cluster
from fencepost.client.commits import Commits
from fencepost.client.deadline import Deadline, attempt
from fencepost.client.fetcher import Fetcher
from fencepost.client.membership import Membership


class Leaving:
    """Ends the reading of one consumer.  Passes over ClientErrors; raises what a listener does when all is done."""

    def __init__(
        self,
        cluster: Cluster,
        assignment: Assignment,
        fetcher: Fetcher,
        commits: Commits,
        group: Membership | None,
    ) -> None:
        self._cluster = cluster
        self._fetcher = fetcher
        self._assignment = assignment
        self._commits = commits
        self._group = group

    async def close(self, deadline: Deadline, closed: Callable[[], None]) -> None:
        """Leave, end commits, fetches and connections, then call `closed`."""
        async with AsyncExitStack() as last:
            last.callback(closed)
            last.push_async_callback(self._cluster.close)
            last.push_async_callback(attempt, self._fetcher.close, deadline)
            last.callback(self._commits.close)
            last.push_async_callback(self.leave, deadline)

    async def leave(self, deadline: Deadline) -> None:
        """Commit (with auto_commit), give up the partitions, leave the group."""
        async with AsyncExitStack() as last:
            if self._group is not None:
                last.push_async_callback(attempt, self._group.leave, deadline)
            last.push_async_callback(attempt, self._assignment.leave, deadline)
            last.push_async_callback(attempt, self._last_commits, deadline)

    async def _last_commits(self) -> None:
        await self._commits.settled()
        if self._commits.is_automatic:
            await self._commits.commit_done()
