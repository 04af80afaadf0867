"""The life of one node: it recovers, listens, does what time brings, and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from fencepost.broker.authorizer import AllowEverything, Authorizer
from fencepost.broker.housekeeping import Housekeeping
from fencepost.broker.leader.markers import LocalMarkers
from fencepost.broker.leader.registrar import LocalRegistrar, Registrar
from fencepost.broker.metadata.settings import Settings
from fencepost.broker.metadata.store import MetadataStore, SqliteMetadataStore
from fencepost.broker.metadata.topic_rules import INTERNAL
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.connection_quotas import Door
from fencepost.broker.node import Endpoint, Node
from fencepost.broker.opening import Parts, open_node
from fencepost.coordinator import loading
from fencepost.coordinator.transaction.markers import Markers
from fencepost.log.commit_log import StorageFailed
from fencepost.log.data_directory import check_free
from fencepost.log.descriptors import for_files, limit
from fencepost.log.disk import Disk, LocalDisk
from fencepost.log.interruption import Interruption
from fencepost.log.storage import Storage
from fencepost.node_log import get_logger
from fencepost.protocol.types import TRANSACTION_STATE, ProducerIdAndEpoch, TopicPartition
from fencepost.runtime import Listener, Runtime, Slices, Work

logger = get_logger(__name__)


def _no_distance(local: LocalMarkers) -> Markers:
    return local


def _none_either(local: LocalRegistrar) -> Registrar:
    return local


class Broker:
    """A node that listens, with its data in one directory.

        async with Broker(data="data", listen="127.0.0.1:0") as broker:
            ...  # broker.bootstrap_servers

    `data`: the directory, made if need be.  `listen`: host:port; port 0 takes any free one, which
    `bootstrap_servers` tells once it has started.  `advertised`: host:port that clients are told instead, in a
    container or behind a proxy (Apache Kafka's advertised.listeners); port 0 is that of `listen`.
    `settings` have Apache Kafka's names (docs/reference/settings.md).  `flush="os"` leaves it to the operating system
    when data reaches the disk, as Apache Kafka does by default; "durable" acknowledges nothing that a power loss could
    take back.  `open_files`: descriptors that storage may hold; by default half of what the process may have.
    `recover_from_segments`: start with a damaged commit log, keeping what the segment files hold.
    `rebuild_metadata`: make a lost metadata.sqlite again from the partitions.
    `told_to_stop`: asked while a start recovers, which ends it soon; besides, it is cancelled.
    `authorizer`: who may do what; by default everybody everything.  `failed`: called when a sync of the disk fails.
    `markers` and `registrar` put something between the coordinators and the leaders of the node; `storage` and
    `connection` are what makes the log and each connection, for those who want to watch them.

    It is started once.  Raises BadSetting and ValueError when it is made; DirectoryUnusable and OSError if it cannot
    start.
    """

    def __init__(
        self,
        *,
        data: Path | str,
        listen: str = "127.0.0.1:0",
        advertised: str | None = None,
        settings: Mapping[str, object] | None = None,
        flush: str = "durable",
        runtime: Runtime | None = None,
        disk: Disk | None = None,
        metadata: Callable[[Path], MetadataStore] = SqliteMetadataStore,
        authorizer: Authorizer | None = None,
        markers: Callable[[LocalMarkers], Markers] = _no_distance,
        registrar: Callable[[LocalRegistrar], Registrar] = _none_either,
        failed: Callable[[StorageFailed], None] | None = None,
        open_files: int | None = None,
        recover_from_segments: bool = False,
        rebuild_metadata: bool = False,
        told_to_stop: Callable[[], bool] = lambda: False,
        storage: Callable[..., Storage] = Storage,
        connection: Callable[[Node], Connection] = Connection,
    ) -> None:
        self.settings = Settings(settings)
        runtime = runtime or Runtime.real()
        self._listens_on = Endpoint.of(listen)
        slices, self.interruption = Slices(), Interruption(told_to_stop)
        self._parts = Parts(
            path=Path(data),
            settings=self.settings,
            endpoint=Endpoint.of(advertised or listen),
            runtime=runtime,
            authorizer=authorizer or AllowEverything(),
            storage=storage(
                disk or LocalDisk(),
                Path(data),
                self.settings.log_settings(),
                runtime.clock,
                flush=flush,
                failed=failed or self._storage_failed,
                open_files=for_files(limit()) if open_files is None else open_files,
                recover_from_segments=recover_from_segments,
                slices=slices,
                interruption=self.interruption,
            ),
            slices=slices,
            open_metadata=metadata,
            rebuild_metadata=rebuild_metadata,
            markers=markers,
            registrar=registrar,
        )
        self._connection = connection
        self._door = Door()
        self._node: Node | None = None
        self._listener: Listener | None = None
        self._housekeeping: Housekeeping | None = None
        self._ended = False
        self.failed: asyncio.Future[StorageFailed] | None = None
        """Done when the storage has failed: the node serves nobody any more.  None before it is started."""

    @property
    def node(self) -> Node:
        """The running node, which handlers are given; it is there once a start has recovered it."""
        assert self._node is not None, "the broker was not started"
        return self._node

    @property
    def host(self) -> str:
        return self._listens_on.host

    @property
    def port(self) -> int:
        return self._listens_on.port

    @property
    def bootstrap_servers(self) -> str:
        return str(self._listens_on)

    # Starting and stopping

    async def start(self) -> Self:
        """Take the address, recover, listen, and answer.

        Nothing is written before the address is had.  Whoever connects until all is recovered is refused.
        Answers begin before this returns: while the journals are read, COORDINATOR_LOAD_IN_PROGRESS is one of them.
        One that is cancelled ends as `stop` does: what was recovered until then, no start need recover again.  Where
        its `interruption` has cut it off it ends as `crash` does.
        """
        assert self.failed is None, "a broker is started once; make another one"
        self.failed = asyncio.get_running_loop().create_future()
        try:
            listener = self._listener = await self._take_address()
            node = self._node = open_node(self._parts)
            loads = [step for name in INTERNAL if name in node.topics.by_name for step in node.start_loading(name)]
            deleted = node.topics.half_deleted
            node.connection_quotas.when_room(listener.accept_again)
            self._door.admit_by(node.connection_quotas)
            listener.accept_again()
            self._housekeeping = Housekeeping(node)
            await node.slices.run(loading.in_turn(loads))
            await node.forget_topics(deleted)
            await node.slices.run(_reconcile(node))
            node.cleaner.start()
        except asyncio.CancelledError:
            await (self._give_up() if self._node is None else self.stop())
            raise
        except BaseException:
            await self._give_up()
            raise
        return self

    async def _take_address(self) -> Listener:
        """Have the address, and let nobody in yet.

        Raises OSError; DirectoryUnusable if the address is that of another running node of this directory.
        """
        network = self._parts.runtime.network
        try:
            listener = await network.listen(
                lambda: self._connection(self.node), self.host, self.port, self._door, at_once=False
            )
        except OSError:
            check_free(self._parts.storage.disk, self._parts.path)
            raise
        self._listens_on.port = listener.port
        self._parts.endpoint.port = self._parts.endpoint.port or listener.port
        return listener

    async def stop(self) -> None:
        """End every connection and leave everything synced: the next start has nothing to redo.

        Nothing happens before the start, or after the node has ended.  A stop that is interrupted, or that the disk
        does not take (`failed` says so then), ends it as a crash does: nothing acknowledged is lost, and the next start
        reads more.
        """
        node = self._end()
        if node is None:
            return
        try:
            node.cleaner.close()
            if self._listener is not None:
                self._listener.close()
            for connection in list(node.connections):
                connection.close()
            node.close_timers()
            node.slices.close()
            if node.storage.failure is None:
                await node.storage.commit_log.durability.wait_or_fail(node.storage.lsn)
                await node.storage.settle()
            try:
                node.storage.close()
            except OSError as error:
                node.storage.fail(StorageFailed(f"the disk did not take the last checkpoint: {error}"))
                node.storage.abandon()
        except BaseException:
            _let_go(node)
            raise
        for connection in list(node.connections):  # to clients that do not take what was ready
            connection.abort()
        node.metadata.close()

    def crash(self) -> None:
        """End the node as kill -9 does, for tests: nothing more is written, connections break off, nobody listens."""
        node = self._end()
        if node is not None:
            if self._listener is not None:
                self._listener.close()
            _let_go(node)

    async def _give_up(self) -> None:
        """Close the listener, the node or its storage, as far as a start that failed had made them."""
        if self._listener is not None:
            self._listener.close()
        node = self._end()
        if node is not None:
            node.cleaner.close()
            _let_go(node)
        elif self._node is None:
            self._parts.storage.abandon()

    def _end(self) -> Node | None:
        """Begin nothing more.  The node that is left to end; None if there is none, or it has ended."""
        if self._housekeeping is not None:
            self._housekeeping.close()
        node = None if self._ended else self._node
        self._ended = node is not None or self._ended
        return node

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _storage_failed(self, failure: StorageFailed) -> None:
        logger.critical("the node stops: %s", failure)
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(failure)


def _let_go(node: Node) -> None:
    """Let go of the node's storage, connections and timers at once: nothing more is written."""
    node.slices.close()
    node.cleaner.abandon()
    for connection in list(node.connections):
        connection.abort()
    node.close_timers()
    node.storage.abandon()
    node.metadata.close()


def _reconcile(node: Node) -> Work[None]:
    """Abort what is open in a partition of this node and unknown to the coordinator (after a lost registration)."""
    if TRANSACTION_STATE not in node.topics.by_name:
        return
    for partition in node.storage.partitions():
        producers = partition.producers
        open_ones = [ProducerIdAndEpoch(pid, producers.epoch_of(pid)) for pid, _ in producers.open_transactions()]
        if open_ones:
            # What is open and what is known are of one moment.
            node.transactions.reconcile({TopicPartition(partition.topic, partition.index): open_ones})
        yield
