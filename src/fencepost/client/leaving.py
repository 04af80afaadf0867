"""How a consumer leaves what it reads: what is to be committed first, then the partitions, then the group."""

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
    """Leaves what one consumer reads.  What fails is passed over; what a listener raises is raised when all is done."""

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
        """Leave, and end what is still under way, and the connections; then call `closed`."""
        async with AsyncExitStack() as last:
            last.callback(closed)
            last.push_async_callback(self._cluster.close)
            last.push_async_callback(attempt, self._fetcher.close, deadline)
            last.callback(self._commits.close)
            last.push_async_callback(self.leave, deadline)

    async def leave(self, deadline: Deadline) -> None:
        """Commit what is to be committed by itself, give up the partitions, tell the group."""
        async with AsyncExitStack() as last:
            if self._group is not None:
                last.push_async_callback(attempt, self._group.leave, deadline)
            last.push_async_callback(attempt, self._assignment.leave, deadline)
            last.push_async_callback(attempt, self._last_commits, deadline)

    async def _last_commits(self) -> None:
        await self._commits.settled()
        if self._commits.is_automatic:
            await self._commits.commit_done()
