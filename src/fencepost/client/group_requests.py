"""Requests to the coordinator of one group, wherever that is."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fencepost.client.cluster import Cluster, Deadline, Use
from fencepost.client.connection import Connection
from fencepost.client.errors import ConnectionLostError, UnreachableError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.find_coordinator import GROUP

MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class GroupRequests:
    """Sends requests to the coordinator of one group, and finds it again when it moves."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.joins = 0
        """Requests about a rebalance (Use.JOIN) that are with the coordinator."""

    def forget_coordinator(self) -> None:
        """Forget which node coordinates the group: it has proved wrong."""
        self.cluster.forget_coordinator(GROUP, self.group_id)

    def ready(self, use: Use = Use.GROUP) -> Connection | None:
        """The connection to the group's coordinator, None unless there is one already."""
        return self.cluster.ready_coordinator(GROUP, self.group_id, use)

    async def ask(
        self,
        request: Any,
        deadline: Deadline,
        *,
        again: Any = None,
        most: int | None = None,
        least: int = 0,
        timeout_ms: int | None = None,
        use: Use = Use.GROUP,
        prompt_since: int | None = None,
        begun: Awaitable[Any] | None = None,
    ) -> Any:
        """The answer of the group's coordinator, asked again while it moves; `again`: a later request (None: the same).

        It may take its time until the deadline, as for a rebalance that waits for others.  Raises TimedOutError then,
        and where `max_block_ms` have passed besides without an answer.  `prompt_since`: from this version on it is
        answered at once, and `timeout_ms` is not for that.  `begun`: the first time it was asked already, with this
        answer.
        """
        reached_by = deadline.at_most(self.cluster.patience_ms)
        while True:
            try:
                if begun is not None:
                    (call, begun), is_prompt = (begun, None), False
                else:
                    connection = self.ready(use)
                    if connection is None:
                        node = await self.cluster.coordinator(GROUP, self.group_id, reached_by)
                        connection = await reached_by.within(self.cluster.connection(node, use))
                    version = connection.version_of(type(request), most, least)
                    is_prompt = prompt_since is not None and version >= prompt_since
                    call = connection.request(request, version, None if is_prompt else timeout_ms)
                with self._noted(use):
                    if is_prompt:
                        answer = await reached_by.within(call)
                    else:
                        answer = await self._answered_in_time(call, deadline, reached_by)
            except (ConnectionLostError, UnreachableError) as lost:
                self.forget_coordinator()
                await reached_by.pause(lost)
                request = again or request
                continue
            code = ErrorCode(getattr(answer, "error_code", 0))
            if code in MOVED or code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self.forget_coordinator()
                await reached_by.pause(code.name)
                request = again or request
                continue
            return answer

    @contextmanager
    def _noted(self, use: Use) -> Iterator[None]:
        self.joins += use is Use.JOIN
        try:
            yield
        finally:
            self.joins -= use is Use.JOIN

    async def _answered_in_time(self, work: Awaitable[Any], deadline: Deadline, reached_by: Deadline) -> Any:
        """The answer, by the deadline; `reached_by` is moved later by the time that it takes."""
        left = deadline.left
        try:
            return await deadline.within(work)
        finally:
            reached_by.put_off(left - deadline.left)
