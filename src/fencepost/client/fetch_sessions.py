"""Fetches of a reader in its sessions (KIP-227), one with each node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from fencepost.client.cluster import Cluster, Use
from fencepost.client.connection import Connection
from fencepost.client.errors import ClientError
from fencepost.client.fetch_requests import FetchSettings, fetch_request
from fencepost.client.fetch_session import Answer, FetchSession, SessionRequest, Wanted
from fencepost.protocol.fetch_sessions import TOPIC_IDS_SINCE
from fencepost.protocol.messages import FetchRequest
from fencepost.protocol.types import TopicPartition

#: Seconds that a node is waited for that is told that its session is over.
_GOODBYE: Final = 0.5


class FetchSessions:
    """Sends Fetch requests in one session with each node; one at a time to a node."""

    def __init__(self, cluster: Cluster, settings: FetchSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sessions: dict[int, FetchSession] = {}
        self._connections: dict[int, Connection] = {}
        """The connection by which each node was asked last."""

    async def fetch(
        self, node: int, wanted: Mapping[TopicPartition, Wanted], max_wait_ms: int, *, have_ids: bool
    ) -> Answer | None:
        """Ask a node for these partitions.  None: it has not kept the session, and is to be asked again.

        `have_ids`: whether the ids of all their topics are known.  Raises as `Cluster.call`, BrokerError if the request
        is refused, ProtocolError for an answer about what was not asked.
        """
        session = self._sessions.setdefault(node, FetchSession())
        connection = await self._cluster.connection(node)
        if self._connections.get(node) is not connection:
            # The node may have been started again, or another one have its number.
            self._connections[node] = connection
            session.begin_anew()
        version = connection.version_of(FetchRequest, None if have_ids else TOPIC_IDS_SINCE - 1)
        request = fetch_request(session.ask(wanted, version), self._settings, max_wait_ms)
        timeout_ms = self._cluster.request_timeout_ms + self._settings.max_wait_ms
        return session.answered(await connection.request(request, version, timeout_ms))

    async def end(self) -> None:
        """Tell the nodes that can be reached that their sessions are over; those that do not hear it forget by time."""
        asked = ((node, session.end()) for node, session in self._sessions.items())
        goodbyes = [self._say_goodbye(node, last) for node, last in asked if last is not None]
        if goodbyes:
            with suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE):
                    await asyncio.gather(*goodbyes)

    async def _say_goodbye(self, node: int, last: SessionRequest) -> None:
        connection = self._cluster.ready_connection(node)
        if connection is None or connection is not self._connections.get(node):
            return
        with suppress(ClientError):
            if connection.in_flight:
                # A node answers in order: it would hear this when the fetch has waited for records long enough.
                connection = await self._cluster.connection(node, Use.GROUP)
            request = fetch_request(last, self._settings, 0)
            await connection.request(request, connection.version_of(FetchRequest))
