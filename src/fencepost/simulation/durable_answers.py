"""No answer leaves before what it tells is durable: watched at every answer of a simulated node, while it runs.

So is what its producers write (`sequences`), what they are given to write under (`producer_ids`), and what it removes
(`removals`).

What an answer depends on is worked out here, from what it is about (`answer_subjects`) and what the log was given.
What the handlers say of it (`Reply.lsn`) is what is being checked, and so is the connection that holds their answers
back.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from fencepost.broker.network.connection import Connection
from fencepost.broker.network.registry import Reply
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.log.disk import Disk
from fencepost.log.offline import OfflinePartition
from fencepost.log.partition import Partition
from fencepost.log.segment import Segment
from fencepost.log.settings import LogSettings
from fencepost.log.storage import Storage
from fencepost.protocol.batch import BatchHeader, read_header
from fencepost.protocol.codec import RequestHeader
from fencepost.protocol.record_keys import keys_of
from fencepost.protocol.types import Buffer, Lsn
from fencepost.runtime import Work
from fencepost.simulation.answer_subjects import STORED_SUBJECTS, SUBJECTS, Key
from fencepost.simulation.checkers.producer_ids import Handed, ProducerIds, handed
from fencepost.simulation.checkers.removals import Removals
from fencepost.simulation.checkers.sequences import Sequences
from fencepost.simulation.checkers.stable_offsets import StableOffsets, Told
from fencepost.simulation.known_before import learn
from fencepost.simulation.network import SimulatedTransport
from fencepost.simulation.shown_offsets import SHOWN
from fencepost.spark.progress import PARTITION as PROGRESS

Written = Callable[[str, int, BatchHeader, Buffer, Lsn], None]
"""Is shown what is appended: topic, partition, the batch, and its lsn."""


class Appends:
    """The newest lsn of each subject of answers, as the log was given it in this life of the node."""

    def __init__(self) -> None:
        self._newest: dict[Key, int] = {}
        self._waiting: defaultdict[tuple[str, int], deque[tuple[int, int]]] = defaultdict(deque)
        """Of each partition, what was not durable when somebody last asked: lsn and first offset, in order."""

    def add(self, partition: Partition, header: BatchHeader, batch: Buffer, lsn: Lsn) -> None:
        """Note that a batch was appended."""
        topic, newest = partition.topic, self._newest
        at = topic, partition.index
        newest[at] = newest[*at, header.producer_id] = lsn
        if (subject := STORED_SUBJECTS.get(topic)) is not None and not header.is_control:
            for record in keys_of(batch, header):
                if (key := subject(record.key or b"")) is not None:
                    newest[key] = lsn
        waiting = self._waiting[at]
        if header.base_offset == 0:
            waiting.clear()
        waiting.append((lsn, header.base_offset))

    def moved(self, partition: Partition, lsn: Lsn) -> None:
        """Note that the start of a partition was moved, durable at `lsn`."""
        self._newest[partition.topic, partition.index] = lsn

    def newest(self, key: Key) -> int:
        """The newest lsn of a subject; 0 if nothing was written about it."""
        return self._newest.get(key, 0)

    def first_unsynced(self, at: tuple[str, int], durable: int) -> int | None:
        """The first offset that a power loss might take; None if there is none."""
        waiting = self._waiting[at]
        while waiting and waiting[0][0] <= durable:
            waiting.popleft()
        return waiting[0][1] if waiting else None


class WatchedStorage(Storage):
    """A storage whose appends are noted.

    `log`: fields of the settings of every log, whatever its topic says; `written`: is shown every append.
    """

    def __init__(
        self,
        disk: Disk,
        path: Path,
        settings: LogSettings,
        *rest: Any,
        log: Mapping[str, Any],
        violated: Callable[[str], None],
        written: Written | None,
        removals: Removals,
        told: Told,
        **options: Any,
    ) -> None:
        super().__init__(disk, path, settings.with_(**log), *rest, **options)
        self.appends, self._sequences, self._violated = Appends(), Sequences(), violated
        self._written, self._removals = written, removals
        self._stable = StableOffsets(told)
        self._fields = log
        self._real_disk = disk

    def start(self) -> None:
        super().start()
        learn(self.partitions(), self._real_disk, self._sequences, self._stable)

    def create_partition(
        self, topic: str, topic_id: UUID, index: int, settings: LogSettings | None = None, *rest: Any, **options: Any
    ) -> Partition | OfflinePartition:
        settings = (settings or self.settings).with_(**self._fields)
        self._stable.begin((topic, index), topic_id)
        return super().create_partition(topic, topic_id, index, settings, *rest, **options)

    def show(self, partitions: Iterable[Partition | OfflinePartition]) -> None:
        """Show partitions, with the settings of every log put in place once more: a topic's own have replaced them."""
        shown = list(partitions)
        for partition in shown:
            fields = self._fields
            if partition.topic == PROGRESS.topic:
                # Checkers look at all progress that there ever was, also in a segment that was left as it is damaged.
                fields = {"cleanup_policy": "delete"}
            partition.settings = partition.settings.with_(**fields)
        super().show(shown)

    def appended(self, partition: Partition, segment: Segment, position: int, data: Buffer) -> Lsn:
        lsn = super().appended(partition, segment, position, data)
        header = read_header(data)
        self.appends.add(partition, header, data, lsn)
        if self._written is not None:
            self._written(partition.topic, partition.index, header, data, lsn)
        self._stable.add((partition.topic, partition.index), header)
        wrong = self._sequences.add(partition.topic, partition.index, header)
        if wrong is not None:
            self._violated(wrong)
        return lsn

    def first_unsynced(self, at: tuple[str, int]) -> int | None:
        """The first offset of a partition that a power loss might take; None if there is none."""
        return self.appends.first_unsynced(at, self.durability.lsn)

    def tell_stable(self, topic: str, index: int, stable: int, start: int) -> None:
        """Note that an answer has the last stable offset of a partition, and the start of its log."""
        wrong = self._stable.tell((topic, index), stable, start)
        if wrong is not None:
            self._violated(wrong)

    def start_moved(self, partition: Partition) -> Lsn:
        lsn = super().start_moved(partition)
        self.appends.moved(partition, lsn)
        wrong = self._removals.add(partition, self._real_disk)
        if wrong is not None:
            self._violated(wrong)
        return lsn


class _Due(NamedTuple):
    """An answer that has not left, and the lsn that it depends on."""

    response: Any
    version: int
    needed: int
    handed: Handed | None

    @property
    def name(self) -> str:
        return f"{type(self.response).__name__} v{self.version}: {self.response}"


class WatchedConnection(Connection):
    """A connection whose answers are looked at when they are made, and when they leave."""

    def __init__(self, node: Node, violated: Callable[[str], None], ids: ProducerIds) -> None:
        super().__init__(node)
        self._violated, self._ids = violated, ids
        self._due: defaultdict[int, deque[_Due]] = defaultdict(deque)
        """Correlation id -> the answers that have not left."""
        self._leaving = bytearray()

    def connection_made(self, transport: Any) -> None:
        if isinstance(transport, SimulatedTransport):
            transport.on_write = self._leaves
        super().connection_made(transport)

    def _answer(
        self, reply: Reply, slot: Any, header: RequestHeader, request: Any, context: RequestContext
    ) -> Work[bytearray] | None:
        if reply.response is not None:
            needed = self._needed(reply.response, header, request)
            given = handed(header.api_key, request, reply.response)
            self._due[header.correlation_id].append(_Due(reply.response, header.api_version, needed, given))
        return super()._answer(reply, slot, header, request, context)

    def _needed(self, response: Any, header: RequestHeader, request: Any) -> int:
        """The lsn that an answer depends on; 0 for none.  What it shows that is not durable is a violation."""
        storage = self._node.storage
        assert isinstance(storage, WatchedStorage)
        if (shown := SHOWN.get(header.api_key)) is not None:
            early = shown(request, response, self._node.topics, storage)
            if early is not None:
                self._violated(f"{type(response).__name__}: {early}, which is not durable")
        elif (subjects := SUBJECTS.get(header.api_key)) is not None:
            return max(map(storage.appends.newest, subjects(request, response, self._node)), default=0)
        return 0

    def _leaves(self, data: bytes) -> None:
        """Check that the answers in these bytes may leave: what each depends on is durable.  One may leave in parts."""
        leaving = self._leaving
        leaving += data
        while len(leaving) >= 8:
            end = 4 + int.from_bytes(leaving[:4], "big")
            due = self._due.get(int.from_bytes(leaving[4:8], "big"))
            durable = self._node.storage.durability.lsn
            if due and due[0].needed > durable:
                self._violated(f"an answer left at lsn {durable}, it tells of {due[0].needed}: {due[0].name}")
            if len(leaving) < end:
                return
            given = due.popleft().handed if due else None
            if given is not None and (wrong := self._ids.add(given)) is not None:
                self._violated(wrong)
            del leaving[:end]


def watched(
    violated: Callable[[str], None],
    log: Mapping[str, Any],
    written: Written | None,
    removals: Removals,
    ids: ProducerIds,
    told: Told,
) -> Mapping[str, Any]:
    """The options of `Broker` for a node whose answers are watched; `log` and `written` as in `WatchedStorage`.

    `removals`, `ids` and `told` know what earlier nodes have removed, handed out and told.
    """
    return {
        "storage": lambda *args, **options: WatchedStorage(
            *args, log=log, violated=violated, written=written, removals=removals, told=told, **options
        ),
        "connection": lambda node: WatchedConnection(node, violated, ids),
    }
