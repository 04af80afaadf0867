"""One node, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from fencepost.broker.authorizer import AllowEverything, Authorizer
from fencepost.broker.clock_jumps import ClockJumps
from fencepost.broker.compaction import cleaner_settings
from fencepost.broker.leader.fetch_sessions import FetchSessions
from fencepost.broker.leader.markers import LocalMarkers
from fencepost.broker.leader.registrar import LocalRegistrar, Registrar
from fencepost.broker.metadata import rebuilding as metadata_rebuilding
from fencepost.broker.metadata.cluster_id import check_cluster, settle_cluster
from fencepost.broker.metadata.features import Features
from fencepost.broker.metadata.producer_ids import PRODUCER_IDS, StoredProducerIds
from fencepost.broker.metadata.settings import Settings
from fencepost.broker.metadata.store import MetadataStore, SqliteMetadataStore, guarded
from fencepost.broker.metadata.topic_rules import (
    CONSUMER_OFFSETS,
    INTERNAL,
    TRANSACTION_STATE,
    TopicRefused,
)
from fencepost.broker.metadata.topics import Topics
from fencepost.broker.metrics import Metrics
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.connection_quotas import ConnectionQuotas
from fencepost.broker.network.disconnections import Disconnections
from fencepost.broker.network.limits import NODE_ANSWERS, NODE_REQUESTS, MemoryPool
from fencepost.broker.network.turns import Deadlines, Turns
from fencepost.coordinator import loading
from fencepost.coordinator.group import GroupCoordinator, GroupSettings
from fencepost.coordinator.loading import Step
from fencepost.coordinator.transaction import BlockProducerIds, TransactionCoordinator, TransactionSettings
from fencepost.coordinator.transaction.markers import Markers
from fencepost.log.cleaner.log_cleaner import LogCleaner
from fencepost.log.commit_log import StorageFailed
from fencepost.log.descriptors import for_files, limit
from fencepost.log.disk import Disk, DiskFull, LocalDisk
from fencepost.log.storage import DirectoryUnusable, Storage
from fencepost.log.upkeep import upkeep, watch_space
from fencepost.node_log import LIMIT, get_logger
from fencepost.protocol.types import Milliseconds, TopicPartition
from fencepost.runtime import Listener, Runtime, Slices, Work

logger = get_logger(__name__)

CONTROLLER_EPOCH = 1
_TIDY_MS = 5000
"""How often connections are looked at."""


class Broker:
    """A node that listens, with its data in one directory.

        async with Broker(data="data", listen="127.0.0.1:0") as broker:
            ...  # broker.bootstrap_servers

    `settings` have Apache Kafka's names.  `flush="os"` leaves it to the operating system when data reaches the disk, as
    Apache Kafka does by default; "durable" acknowledges nothing that a power loss could take back.  `open_files`:
    descriptors that storage may hold; by default half of what the process may have.
    `recover_from_segments`: start with a damaged commit log, keeping what the segment files hold.
    Raises DirectoryUnusable, BadSetting, OSError if it cannot start.
    """

    def __init__(
        self,
        *,
        data: Path | str,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, object] | None = None,
        flush: str = "durable",
        runtime: Runtime | None = None,
        disk: Disk | None = None,
        metadata: Callable[[Path], MetadataStore] = SqliteMetadataStore,
        authorizer: Authorizer | None = None,
        markers: Callable[[Broker], Markers] = LocalMarkers,
        registrar: Callable[[Broker], Registrar] = LocalRegistrar,
        failed: Callable[[StorageFailed], None] | None = None,
        open_files: int | None = None,
        recover_from_segments: bool = False,
        rebuild_metadata: bool = False,
    ) -> None:
        self.settings = Settings(settings)
        self.runtime = runtime or Runtime.real()
        self.clock = self.runtime.clock
        self.slices = Slices()
        self.authorizer = authorizer or AllowEverything()
        self.metrics = Metrics()
        #: How the coordinator reaches leaders, and leaders the coordinator.
        self.markers, self.registrar = markers(self), registrar(self)
        self.node_id = self.settings.number("node.id")
        self.fetch_sessions = FetchSessions(
            self.settings.number("max.incremental.fetch.session.cache.slots"),
            self.settings.number("min.incremental.fetch.session.eviction.ms"),
            self.runtime.random,
        )
        self.largest_request = self.settings.number("socket.request.max.bytes")
        queued = self.settings.number("queued.max.request.bytes")
        self.request_memory = MemoryPool(queued if queued > 0 else NODE_REQUESTS)
        self.answer_memory = MemoryPool(NODE_ANSWERS)
        self.turns = Turns()
        self.deadlines = Deadlines(self.turns)
        self.connection_quotas = ConnectionQuotas(
            self.settings.number("max.connections"),
            self.settings.number("max.connections.per.ip"),
            str(self.settings["max.connections.per.ip.overrides"]),
            self.settings.number("max.connection.creation.rate"),
        )
        self.host, _, port = listen.rpartition(":")
        self.port = int(port)
        self.connections: dict[Connection, None] = {}
        self._path = Path(data)
        self._open_metadata = metadata
        self._rebuild_metadata = rebuild_metadata
        self.storage = Storage(
            disk or LocalDisk(),
            self._path,
            self.settings.log_settings(),
            self.clock,
            flush,
            failed or self._storage_failed,
            for_files(limit()) if open_files is None else open_files,
            recover_from_segments,
        )
        self._listener: Listener | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ticking: dict[str, asyncio.Task[None]] = {}
        self.failed: asyncio.Future[StorageFailed] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    # Starting and stopping

    async def start(self) -> Self:
        """Recover, listen, and answer.

        Answers begin before this returns: while the journals are read, COORDINATOR_LOAD_IN_PROGRESS is one of them.
        """
        self.failed = asyncio.get_running_loop().create_future()
        try:
            loads = self._recover()
            deleted = self.topics.half_deleted
            self._listener = await self.runtime.network.listen(
                lambda: Connection(self), self.host, self.port, self.connection_quotas
            )
            self.port = self._listener.port
            self._schedule()
            await self.slices.run(loading.in_turn(loads))
            await self._forget_topics(deleted)
            await self.slices.run(self._reconcile())
            self.cleaner.start()
        except BaseException:
            await self._give_up()
            raise
        return self

    def _recover(self) -> list[Step]:
        try:
            self.storage.open()
            return self._open()
        except StorageFailed as failure:
            raise DirectoryUnusable(f"{self._path} cannot be used: {failure}; put back a copy of it") from failure
        except OSError as error:
            todo = "; free some space, then start again" if isinstance(error, DiskFull) else ""
            raise DirectoryUnusable(f"{self._path} cannot be used: {error.strerror or error}{todo}") from error

    async def _give_up(self) -> None:
        """The start has failed."""
        self._stop_timers()
        self.slices.close()
        if self._listener is not None:
            await self._listener.close()
            self.cleaner.close()
            self.groups.close()
            self.disconnections.close()
        for connection in list(self.connections):
            connection.abort()
        self.storage.abandon()

    def _open(self) -> list[Step]:
        try:
            store = self._open_metadata(self._path / "metadata.sqlite")
        except Exception as error:
            raise DirectoryUnusable(
                f"{self._path}/metadata.sqlite cannot be used: {error}; put back a copy of it, or move it away and "
                f"start once with {metadata_rebuilding.OPTION} (docs/operating.md)"
            ) from error
        self.metadata: MetadataStore = guarded(store, self.storage.attempt, self.storage.fail)
        try:
            check_cluster(self.metadata, self.storage.disk, self._path)
            rebuilt = metadata_rebuilding.begin(self.metadata, self.storage, wanted=self._rebuild_metadata)
            self.cluster_id = settle_cluster(
                self.metadata, self.storage.disk, self._path, self.runtime.random, self.storage.attempt
            )
        except BaseException:
            self.metadata.close()
            raise
        self.features = Features.load(self.metadata)
        self.topics = Topics(self.metadata, self.storage, self.settings, self.runtime.random)
        self.topics.load()
        self.storage.start()
        if rebuilt:
            metadata_rebuilding.finish(self.metadata, self.storage, PRODUCER_IDS)
        loop = asyncio.get_running_loop()
        self.cleaner = LogCleaner(self.storage, cleaner_settings(self.settings), self.clock, loop)
        number = self.settings.number
        self._jumps = ClockJumps(self.clock, asyncio.get_running_loop().time)
        self.transactions = TransactionCoordinator(
            self.storage,
            BlockProducerIds(StoredProducerIds(self.metadata)),
            self.markers,
            self.clock,
            TransactionSettings(
                max_timeout_ms=number("transaction.max.timeout.ms"),
                id_expiration_ms=number("transactional.id.expiration.ms"),
                expiry_interval_ms=number("transaction.remove.expired.transaction.cleanup.interval.ms"),
                partitions=self.topics.internal_count(TRANSACTION_STATE),
                two_phase_commit=bool(self.settings["transaction.two.phase.commit.enable"]),
                transaction_version=self.features.transaction_version,
            ),
            self._jumps.since,
        )
        self.disconnections = Disconnections(
            self.transactions,
            bool(self.settings["transaction.abort.on.disconnect"]),
            number("transaction.abort.on.disconnect.grace.ms"),
        )
        self.groups = GroupCoordinator(
            self.storage,
            self.clock,
            GroupSettings(
                initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
                min_session_timeout_ms=number("group.min.session.timeout.ms"),
                max_session_timeout_ms=number("group.max.session.timeout.ms"),
                max_size=number("group.max.size"),
                partitions=self.topics.internal_count(CONSUMER_OFFSETS),
                offsets_retention_ms=number("offsets.retention.minutes") * 60_000,
                metadata_max_bytes=number("offset.metadata.max.bytes"),
            ),
            self.runtime.random,
        )
        return [step for name in INTERNAL if name in self.topics.by_name for step in self._start_loading(name)]

    def _start_loading(self, topic: str) -> list[Step]:
        """Take over the journal of a coordinator; what is left to do."""
        indexes = [partition.index for partition in self.topics.by_name[topic].partitions]
        if topic == TRANSACTION_STATE:
            begun = [self.transactions.start_loading(index) for index in indexes]
        else:
            begun = [self.groups.start_loading(index, self.topics.half_deleted) for index in indexes]
        return [step for step in begun if step is not None]

    def ensure_coordinator(self, topic: str) -> bool:
        """Make the journal of a coordinator if it is not there yet; False if that is not possible now."""
        if topic in self.topics.by_name:
            return True
        try:
            self.topics.ensure_internal(topic)
        except TopicRefused as refused:
            logger.error("%s cannot be made: %s", topic, refused)
            return False
        for step in self._start_loading(topic):
            loading.at_once(step)
        return True

    async def _forget_topics(self, names: Sequence[str]) -> None:
        """The deletions that the last end of the node came in between are finished, now that all groups are read."""
        if names:
            await self.storage.wait_durable(self.storage.lsn)
        self.topics.deletions_finished(names)

    def _reconcile(self) -> Work[None]:
        """Abort what is open in a partition of this node and unknown to the coordinator (after a lost registration)."""
        if TRANSACTION_STATE not in self.topics.by_name:
            return
        for partition in self.storage.partitions():
            producers = partition.producers
            pairs = [(pid, producers.epoch_of(pid)) for pid, _ in producers.open_transactions()]
            if pairs:
                # What is open and what is known are of one moment.
                self.transactions.reconcile({TopicPartition(partition.topic, partition.index): pairs})
            yield

    async def stop(self) -> None:
        """End every connection and leave everything synced: the next start has nothing to redo."""
        await self._stop_serving()
        if self.storage.failure is None:
            await self.storage.wait_durable(self.storage.lsn)
            await self.storage.settle()
        self.storage.close()
        self.metadata.close()

    def _stop_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def _stop_serving(self) -> None:
        self._stop_timers()
        self.cleaner.close()
        if self._listener is not None:
            await self._listener.close()
        for connection in list(self.connections):
            connection.close()
        self.groups.close()
        self.disconnections.close()
        self.slices.close()

    def crash(self) -> None:
        """What kill -9 does, for tests: nothing more is written, connections break off."""
        self._stop_timers()
        self.slices.close()
        self.cleaner.abandon()
        for connection in list(self.connections):
            connection.abort()
        self.groups.close()
        self.disconnections.close()
        self.storage.abandon()
        self.metadata.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _storage_failed(self, failure: StorageFailed) -> None:
        logger.critical("the node stops: %s", failure)
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(failure)

    # What time brings

    def _schedule(self) -> None:
        number = self.settings.number
        looking = number("transaction.abort.timed.out.transaction.cleanup.interval.ms")
        self._every("transactions", looking, self.transactions.tick)
        steady = self._jumps.steady
        checking = number("offsets.retention.check.interval.ms")
        self._every("offsets", checking, lambda now: self.groups.tick(steady(now)))
        cleaning = min(number("log.retention.check.interval.ms"), number("producer.id.expiration.check.interval.ms"))
        idle_ms = number("connections.max.idle.ms")
        self._every("connections", min(_TIDY_MS, max(idle_ms // 2, 1)) if idle_ms >= 0 else _TIDY_MS, self._tidy)
        self._every("storage", cleaning, lambda now: upkeep(self.storage, steady(now)))
        self._every("space", 10_000, lambda now: watch_space(self.storage, steady(now)))
        self._every("log", 60_000, self._report)

    def _report(self, _: Milliseconds) -> Work[None]:
        LIMIT.report()
        yield

    def connection_ended(self) -> None:
        """Somebody who waits to be accepted may be."""
        if self._listener is not None:
            self._listener.accept_again()

    def _tidy(self, _: Milliseconds) -> Work[None]:
        now, idle_ms = asyncio.get_running_loop().time(), self.settings.number("connections.max.idle.ms")
        for connection in list(self.connections):
            connection.tidy(now, idle_ms / 1000)
            yield

    def _every(self, name: str, interval_ms: int, tick: Callable[[Milliseconds], Work[None]]) -> None:
        """Do tick(now) at intervals, for as long as the node runs: again when the time has come and it is over."""
        loop = asyncio.get_running_loop()

        def ring() -> None:
            self._jumps.notice()
            if self.storage.failure is None and name not in self._ticking:
                self._ticking[name] = loop.create_task(self.slices.run(tick(self.clock.now())))
                self._ticking[name].add_done_callback(over)
            self._timers[name] = loop.call_later(interval_ms / 1000, ring)

        def over(task: asyncio.Task[None]) -> None:
            del self._ticking[name]
            if not task.cancelled() and task.exception() is not None:
                logger.error("%s could not be looked after", name, exc_info=task.exception())

        self._timers[name] = loop.call_later(interval_ms / 1000, ring)
