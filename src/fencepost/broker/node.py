"""What the handlers of a node are given: its log, its coordinators, its topics, its settings and its limits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from fencepost.broker.authorizer import Authorizer
from fencepost.broker.clock_jumps import ClockJumps
from fencepost.broker.counters import Counters
from fencepost.broker.leader.fetch_sessions import FetchSessions
from fencepost.broker.leader.markers import LocalMarkers
from fencepost.broker.leader.registrar import Registrar
from fencepost.broker.metadata.features import Features
from fencepost.broker.metadata.settings import Settings
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.metadata.topic_rules import TopicRefused
from fencepost.broker.metadata.topics import Topics
from fencepost.broker.network.answer_memory import AnswerMemory
from fencepost.broker.network.connection_quotas import ConnectionQuotas
from fencepost.broker.network.disconnections import Disconnections
from fencepost.broker.network.limits import NODE_ANSWERS, NODE_REQUESTS, NODE_UNFOLDED, MemoryPool
from fencepost.broker.network.shares import Shares
from fencepost.broker.network.turns import Deadlines, Turns
from fencepost.broker.network.unfolding import Unfolding
from fencepost.coordinator.group import GroupCoordinator
from fencepost.coordinator.loading import in_turn
from fencepost.coordinator.transaction import TransactionCoordinator
from fencepost.coordinator.transaction.markers import Markers
from fencepost.log.cleaner.log_cleaner import LogCleaner
from fencepost.log.offline import OfflinePartition
from fencepost.log.storage import Storage
from fencepost.node_log import get_logger
from fencepost.protocol.hosts import is_host
from fencepost.protocol.types import CONSUMER_OFFSETS, TRANSACTION_STATE, Milliseconds
from fencepost.runtime import Clock, Slices, Work

logger = get_logger(__name__)

_LARGEST_PORT: Final = 65535


@dataclass(slots=True)
class Endpoint:
    """The address at which clients find the node.  Port 0: any free one, until the node listens."""

    host: str
    """A name or an address; one of IPv6 without brackets."""
    port: int

    @classmethod
    def of(cls, text: str) -> Endpoint:
        """host:port; an address of IPv6 may be in brackets (RFC 3986, 3.2.2).  Raises ValueError."""
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        is_port = len(port) <= 5 and port.isascii() and port.isdigit() and int(port) <= _LARGEST_PORT
        if not colon or not is_host(host) or not is_port:
            raise ValueError(f"{text}: give a host and a port between 0 and {_LARGEST_PORT}, as in 127.0.0.1:9092")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ClientConnection(Protocol):
    """A connection, as the node sees it."""

    @property
    def under_way(self) -> Collection[object]:
        """The requests of the connection that take more than one turn of the event loop."""
        ...

    def close(self) -> None:
        """End the connection; the answers that are ready are still sent."""
        ...

    def abort(self) -> None:
        """End the connection at once."""
        ...

    def tidy(self, now: float, longest_idle: float) -> None:
        """Give back memory that is not used; end it if nobody has used it for so many seconds (negative: never)."""
        ...


@dataclass(kw_only=True, eq=False)
class Node:
    """One node, recovered from its directory.  Whole once it is made; its life is `fencepost.broker.broker.Broker`."""

    settings: Settings
    endpoint: Endpoint
    clock: Clock
    jumps: ClockJumps
    authorizer: Authorizer
    storage: Storage
    metadata: MetadataStore
    cluster_id: str
    features: Features
    topics: Topics
    transactions: TransactionCoordinator
    groups: GroupCoordinator
    local_markers: LocalMarkers
    """Writes markers into the partitions of this node."""
    markers: Markers
    """The coordinator's way to the leaders of partitions."""
    registrar: Registrar
    """The leaders' way to the coordinator."""
    cleaner: LogCleaner
    fetch_sessions: FetchSessions
    slices: Slices
    counters: Counters = field(default_factory=Counters)
    turns: Turns = field(default_factory=Turns)
    shares: Shares = field(default_factory=Shares)
    connections: dict[ClientConnection, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings, number = self.settings, self.settings.number
        self.node_id = number("node.id")
        self.deadlines = Deadlines(self.turns)
        self.largest_request = number("socket.request.max.bytes")
        self.largest_answer = number("fetch.max.bytes")
        queued = number("queued.max.request.bytes")
        self.request_memory = MemoryPool(queued if queued > 0 else NODE_REQUESTS)
        self.answer_memory = AnswerMemory(NODE_ANSWERS)
        self.unfolding = Unfolding(NODE_UNFOLDED)
        self.connection_quotas = ConnectionQuotas(
            number("max.connections"),
            number("max.connections.per.ip"),
            str(settings["max.connections.per.ip.overrides"]),
            number("max.connection.creation.rate"),
        )
        self.disconnections = Disconnections(
            self.transactions,
            bool(settings["transaction.abort.on.disconnect"]),
            Milliseconds(number("transaction.abort.on.disconnect.grace.ms")),
        )

    def start_loading(self, topic: str) -> list[Work[None]]:
        """Begin to take over the journal of a coordinator; the work that is left to do."""
        indexes = [partition.index for partition in self.topics.by_name[topic].partitions]
        if topic == TRANSACTION_STATE:
            begun = [self.transactions.start_loading(index) for index in indexes]
        else:
            begun = [self.groups.start_loading(index, self.topics.half_deleted) for index in indexes]
        return [work for work in begun if work is not None]

    async def ensure_coordinator(self, topic: str) -> bool:
        """Make the journal of a coordinator if it is not there yet; False if that is not possible now.

        Not to be cancelled: a topic that is half made is finished by the next start only.
        """
        try:
            await self.topics.ensure_internal(topic, self.slices, lambda: in_turn(self.start_loading(topic)))
        except TopicRefused as refused:
            logger.error("%s cannot be made: %s", topic, refused)
            return False
        return True

    def forget(self, names: Collection[str]) -> Work[bool]:
        """Have the groups forget deleted topics; whether all could: not while a part of their journal is offline."""
        forgotten = yield from self.groups.forget_topics(names)
        journal = self.topics.by_name.get(CONSUMER_OFFSETS)
        return forgotten and not (journal and any(isinstance(each, OfflinePartition) for each in journal.partitions))

    async def forget_topics(self, names: Sequence[str]) -> None:
        """Finish the deletions that the last end of the node came in between, when all groups are read."""
        forget = self.forget
        forgotten = not names or await self.slices.run(forget(names))  # what loading could not
        if names:
            await self.storage.durability.wait(self.storage.lsn)
        self.topics.deletions_finished(names, None if forgotten else forget)

    def close_timers(self) -> None:
        """Stop the timers of groups and of lost connections: nothing that they wait for happens any more."""
        self.groups.close()
        self.disconnections.close()
