"""The cluster as a client sees it: nodes, leaders, coordinators, and one connection to each node that is needed."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from enum import IntEnum, auto
from operator import attrgetter
from typing import Any, Final

from fencepost.client.addresses import addresses_of, told_by_a_broker
from fencepost.client.authentication import Login
from fencepost.client.connection import Connection, Features
from fencepost.client.deadline import Deadline
from fencepost.client.errors import (
    AuthenticationError,
    BrokerError,
    ClientError,
    ClosedError,
    ConnectionLostError,
    UnreachableError,
    UnsupportedByBrokerError,
    no_such_partition,
)
from fencepost.client.home import Home
from fencepost.client.missing_topics import MissingTopics
from fencepost.client.opening import open_connection
from fencepost.client.outage import Outage
from fencepost.client.security import Security
from fencepost.client.settings import check_milliseconds, check_sendable, check_texts
from fencepost.client.topic_view import TopicView
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.types import TopicPartition
from fencepost.runtime import Runtime

logger = logging.getLogger(__name__)

_SHORTEST_AGE: Final = 0.1
_REFRESHED_AGAIN_AFTER: Final = 5.0
_BATCHED_LOOKUP_SINCE: Final = 4
#: Seconds after which a node that does not answer is not waited for alone.
_SILENT_AFTER: Final = 1.0
#: Seconds between two logins at a node that refused one: accounts are locked after so many of them.
_REFUSED_FOR: Final = 1.0


class Use(IntEnum):
    """The uses of connections to a node, one each: answers come in order, and do not wait for those of another use."""

    DATA = auto()
    GROUP = auto()
    JOIN = auto()
    """JoinGroup, which is answered when all members have joined: that may take minutes."""


class Cluster:
    """Finds nodes, leaders and coordinators, and holds a connection to each node.

    Shared by what a client consists of; `close` it.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "fencepost",
        runtime: Runtime | None = None,
        request_timeout_ms: int = 30_000,
        patience_ms: int = 60_000,
        security: Security | None = None,
    ) -> None:
        check_texts(bootstrap_servers=bootstrap_servers, client_id=client_id)
        check_milliseconds(request_timeout_ms=request_timeout_ms, max_block_ms=patience_ms)
        check_sendable(request_timeout_ms=request_timeout_ms)
        self.home = Home()
        self.bootstrap = addresses_of(bootstrap_servers or "")
        self.client_id = client_id
        self.runtime = runtime or Runtime.real()
        self.security = security or Security()
        self._login = Login(self.security, self.runtime) if self.security.uses_sasl else None
        self._outage = Outage(client_id, bootstrap_servers, self._login)
        self.request_timeout_ms = request_timeout_ms
        self.patience_ms = patience_ms
        """Milliseconds after which a call is given up, unless it has a time-out of its own (`max_block_ms`)."""
        self.nodes: dict[int, tuple[str, int]] = {}
        self.controller_id = -1
        self.cluster_id = ""
        """The id of the cluster, from the last metadata; empty: none came yet, or the cluster has none."""
        self.topics: dict[str, TopicView] = {}
        self.names: frozenset[str] | None = None
        """The names of all topics but the broker's own, as of the last Metadata of all topics; None: there was none."""
        self.missing = MissingTopics(client_id)
        self.features = Features(-1, {})
        self._connections: dict[tuple[tuple[str, int], Use], asyncio.Task[Connection]] = {}
        self._refused_until: dict[tuple[str, int], float] = {}
        """Address that refused a login -> the time of the loop's clock (seconds) before which it is not tried again."""
        self._coordinators: dict[tuple[int, str], int] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._closed = False

    def deadline(self, what: str, timeout_ms: float | None = None) -> Deadline:
        """A deadline in `timeout_ms` milliseconds (None: `max_block_ms`).  Raises TypeError, ValueError."""
        if timeout_ms is not None:
            check_milliseconds(timeout_ms=timeout_ms)  # a timer of NaN would mix up all those of the event loop
        return Deadline(self.runtime, self.patience_ms if timeout_ms is None else timeout_ms, what, self._login)

    @property
    def transaction_version(self) -> int:
        """Finalized level of the feature `transaction.version`, as the newest answer of any node tells it."""
        return self.features.levels.get("transaction.version", 0)

    def check_open(self) -> None:
        """Raises ClosedError after `close`, MisuseError in a forked child and in another event loop."""
        self.home.check()
        if self._closed:
            raise ClosedError("the client is closed: make a new one")

    # Connections

    async def connection(self, node_id: int, use: Use = Use.DATA) -> Connection:
        """The connection to a node.  Raises ConnectionLostError if it cannot be had."""
        if (address := self.nodes.get(node_id)) is None:
            raise ConnectionLostError(f"node {node_id} is not known")
        return await self._connect(address, use)

    def ready_connection(self, node_id: int, use: Use = Use.DATA) -> Connection | None:
        """The connection to a node, None if there is none yet that can be used."""
        if not self.home.is_here:
            return None
        task = self._connections.get((self.nodes.get(node_id, ("", 0)), use))
        return task.result() if task is not None and self._is_good(task) else None

    async def any_connection(self) -> Connection:
        """A connection to whichever node answers first, though others are silent.  Raises UnreachableError."""
        self.check_open()
        untried = deque(dict.fromkeys([*self.nodes.values(), *self.bootstrap]))
        for address in untried:
            ready = self._connections.get((address, Use.DATA))
            if ready is not None and self._is_good(ready) and not ready.result().in_flight:
                return ready.result()
        with self._outage.looking():
            return await self._first_of(untried)

    async def _first_of(self, untried: deque[tuple[str, int]]) -> Connection:
        tried: dict[asyncio.Task[Connection], None] = {}
        failures: dict[str, None] = {}
        try:
            while untried or tried:
                if untried:
                    tried[asyncio.ensure_future(self._connect(untried.popleft()))] = None
                patience = _SILENT_AFTER if untried else None
                done, _ = await asyncio.wait(tried, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in tried if task in done]:
                    del tried[task]
                    try:
                        return task.result()
                    except (ConnectionLostError, UnsupportedByBrokerError) as error:
                        failures[str(error)] = None
                        self._outage.failed(str(error))
        finally:
            for task in tried:
                task.cancel()
                # Nobody else asks what became of it.
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise UnreachableError(f"no broker can be reached: {'; '.join(failures)}")

    async def _connect(self, address: tuple[str, int], use: Use = Use.DATA) -> Connection:
        self.check_open()
        task = self._connections.get((address, use))
        if task is not None and self._is_good(task):
            return task.result()
        if task is None or task.done():
            task = self._connections[address, use] = asyncio.get_running_loop().create_task(self._open(address))
        # Several may wait for one connection, and one of them may be cancelled.
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if task.cancelled() and not (asking is not None and asking.cancelling()):
                self.check_open()
            raise

    @staticmethod
    def _is_good(task: asyncio.Task[Connection]) -> bool:
        return task.done() and not task.cancelled() and task.exception() is None and task.result().is_open

    async def _open(self, address: tuple[str, int]) -> Connection:
        loop = asyncio.get_running_loop()
        if (wait := self._refused_until.get(address, 0.0) - loop.time()) > 0:
            await asyncio.sleep(wait)
        try:
            connection = await open_connection(
                self.runtime.network,
                *address,
                self.client_id,
                self.request_timeout_ms,
                context=self.security.tls(),
                login=self._login,
            )
        except (AuthenticationError, ConnectionLostError) as error:
            if isinstance(error, AuthenticationError):
                self._refused_until[address] = loop.time() + _REFUSED_FOR
                self._outage.ended()
            is_told = isinstance(error, ConnectionLostError) and address not in self.bootstrap
            why = self.security.named(str(error))
            raise type(error)(told_by_a_broker(why) if is_told else why) from error.__cause__
        self._outage.ended()
        if connection.features.epoch >= self.features.epoch:
            self.features = connection.features
        return connection

    def ask_features_again(self) -> None:
        """Close all connections, as the features of the cluster have changed: on a new one each node says its own."""
        for task in self._connections.values():
            if self._is_good(task):
                task.result().close("the features of the cluster have changed")
        self.features = Features(-1, {})

    async def close(self) -> None:
        """End all connections; nothing the second time, nor in a forked child: they are its parent's."""
        if self._closed or not self.home.is_here:
            return
        self.home.check()
        self._closed = True
        if self._refreshing is not None:
            self._refreshing.cancel()
        for task in self._connections.values():
            if not task.done():
                task.cancel()
            elif not task.cancelled() and task.exception() is None:
                task.result().close("the client is closed")
        self._connections.clear()
        self._outage.close()

    # Requests

    async def call(
        self,
        node_id: int,
        message: Any,
        *,
        most: int | None = None,
        least: int = 0,
        timeout_ms: int | None = None,
        use: Use = Use.DATA,
    ) -> Any:
        """The answer of a node, in the newest version both speak.  Raises as `connection`, UnsupportedByBrokerError."""
        connection = await self.connection(node_id, use)
        return await connection.request(message, connection.version_of(type(message), most, least), timeout_ms)

    async def call_controller(self, message: Any, *, deadline: Deadline) -> Any:
        """Send a request to the controller, again while the connection fails; its answer.  Raises TimedOutError."""
        while True:
            try:
                if self.controller_id not in self.nodes:
                    await deadline.within(self.refresh([]))
                return await deadline.within(self.call(self.controller_id, message))
            except (ConnectionLostError, UnreachableError) as error:
                self.controller_id = -1
                await deadline.pause(error)

    # Metadata

    async def refresh(self, topics: Sequence[str] | None, create: bool = False) -> MetadataResponse:
        """Ask for nodes and these topics (None: all), and keep them.  Raises UnreachableError, ConnectionLostError."""
        connection = await self.any_connection()
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        answer: MetadataResponse = await connection.request(request, connection.version_of(MetadataRequest, 12))
        self.nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
        self.controller_id = answer.controller_id
        self.cluster_id = answer.cluster_id or ""
        if topics is None:
            there = (topic for topic in answer.topics if not (topic.is_internal or topic.error_code))
            self.names = frozenset(topic.name for topic in there if topic.name is not None)
        for topic in answer.topics:
            if topic.name is None:
                continue
            if topic.error_code:
                self.topics.pop(topic.name, None)
                continue
            leaders = {
                part.partition_index: part.leader_id
                for part in sorted(topic.partitions, key=attrgetter("partition_index"))
            }
            self.topics[topic.name] = TopicView(topic.name, topic.topic_id, leaders)
        return answer

    def refresh_every(self, interval_ms: float) -> None:
        """Refresh the metadata of the topics that are known each `interval_ms` milliseconds, until `close`.

        At least 100 ms are between two times, as in Apache Kafka's clients (retry.backoff.ms).  Where nobody answers,
        what was known stays, and it is tried again after five seconds at most.
        """
        assert self._refreshing is None, "metadata has one age"
        interval = max(interval_ms / 1000, _SHORTEST_AGE)
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh_every(interval))

    async def _refresh_every(self, interval: float) -> None:
        wait = interval
        while True:
            await asyncio.sleep(wait)
            wait = interval
            try:
                if self.topics:
                    await self.refresh(list(self.topics))
            except ClientError as error:
                wait = min(interval, _REFRESHED_AGAIN_AFTER)
                logger.info("metadata was not refreshed: %s", error)

    async def look_again(self, name: str) -> None:
        """After 100 ms refresh the metadata of a topic of which a partition has no leader, or is not there."""
        await asyncio.sleep(_SHORTEST_AGE)
        await self.refresh([name])

    async def topic(self, name: str, deadline: Deadline, create: bool = True) -> TopicView:
        """A topic, looked up if unknown; partitions may lack a leader.  Raises BrokerError if it is not there."""
        while True:
            known = self.topics.get(name)
            if known is not None and known.leaders:
                return known
            because: object = "no partitions yet"
            try:
                answer = await deadline.within(self.refresh([name], create))
            except (ConnectionLostError, UnreachableError) as error:
                because = error
            else:
                code = next((ErrorCode(each.error_code) for each in answer.topics if each.name == name), ErrorCode.NONE)
                if code and (not code.retriable or (code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create)):
                    raise BrokerError(code, f"topic {name!r} cannot be used")
                because = code.name if code else because
                if name in self.topics:
                    continue
            await deadline.pause(because)

    def is_led(self, at: TopicPartition) -> bool:
        """Whether a partition has a leader, as far as is known."""
        view = self.topics.get(at.topic)
        return view is not None and view.leaders.get(at.partition, -1) in self.nodes

    async def leader_if_any(self, at: TopicPartition, deadline: Deadline) -> int | None:
        """The node that leads a partition, None if none does.  Raises BrokerError if there is no such partition."""
        topic = await self.topic(at.topic, deadline, create=False)
        if at.partition not in topic.leaders:
            self.forget_topic(at.topic)  # it may have been added since
            topic = await self.topic(at.topic, deadline, create=False)
        if at.partition not in topic.leaders:
            raise no_such_partition(*at, topic.partition_count)
        leader = topic.leaders[at.partition]
        return leader if leader in self.nodes else None

    async def leader(self, at: TopicPartition, deadline: Deadline) -> int:
        """The node that leads a partition, once one does.  Raises TimedOutError, BrokerError if there is none of it."""
        while True:
            if (leader := await self.leader_if_any(at, deadline)) is not None:
                return leader
            await deadline.pause(f"nobody leads {at.topic}-{at.partition}")
            self.forget_topic(at.topic)

    def forget_topic(self, name: str) -> None:
        """Forget the metadata of a topic, which has proved wrong."""
        self.topics.pop(name, None)

    # Coordinators

    def ready_coordinator(self, kind: int, key: str, use: Use) -> Connection | None:
        """The connection to the coordinator of `key`, None unless there is one already.  Raises as `check_open`."""
        self.check_open()
        node = self._coordinators.get((kind, key))
        return None if node is None else self.ready_connection(node, use)

    async def coordinator(self, kind: int, key: str, deadline: Deadline) -> int:
        """The node that coordinates a group or a transactional id.  Raises BrokerError, TimedOutError."""
        while True:
            known = self._coordinators.get((kind, key))
            if known is not None and known in self.nodes:
                return known
            try:
                because: object = await deadline.within(self._find_coordinator(kind, key))
            except (ConnectionLostError, UnreachableError) as error:
                because = error
            if because is not None:
                await deadline.pause(because)

    async def _find_coordinator(self, kind: int, key: str) -> str | None:
        """Look a coordinator up: None if it is found, else why not yet.  Raises BrokerError if that will not pass."""
        connection = await self.any_connection()
        version = connection.version_of(FindCoordinatorRequest, 4, 1)
        if version >= _BATCHED_LOOKUP_SINCE:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        else:
            request = FindCoordinatorRequest(key_type=kind, key=key)
        answer: FindCoordinatorResponse = await connection.request(request, version)
        found = answer.coordinators[0] if version >= _BATCHED_LOOKUP_SINCE else answer
        error = ErrorCode(found.error_code)
        if not error:
            self._coordinators[kind, key] = found.node_id
            self.nodes[found.node_id] = (found.host, found.port)
            return None
        if not error.retriable:
            raise BrokerError(error, f"the coordinator of {key!r} cannot be asked for: {found.error_message or ''}")
        return error.name

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Forget which node coordinates a group or a transactional id: it has proved wrong."""
        self._coordinators.pop((kind, key), None)


__all__ = ["ClientError", "Cluster", "Deadline", "TopicView", "Use"]
