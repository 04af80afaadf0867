"""No answer leaves before what it tells is durable: watched at every answer of a simulated node, while it runs.

So is what its producers write (`sequences`), what they are given to write under (`producer_ids`), and what it removes
(`removals`).

What an answer depends on is worked out here, from the request, the answer and what the log was given.  What the
handlers say of it (`Reply.lsn`) is what is being checked, and so is the connection that holds their answers back.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple
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
from fencepost.protocol.codec import RequestHeader, decode_stored, stored_version
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.record_keys import keys_of
from fencepost.protocol.stored import GroupMetadataKey, TransactionLogKey
from fencepost.protocol.types import CONSUMER_OFFSETS, TRANSACTION_STATE, Buffer, Lsn
from fencepost.runtime import Work
from fencepost.simulation.checkers.producer_ids import Handed, ProducerIds, handed
from fencepost.simulation.checkers.removals import Removals
from fencepost.simulation.checkers.sequences import Sequences
from fencepost.simulation.checkers.stable_offsets import StableOffsets, Told
from fencepost.simulation.known_before import learn
from fencepost.simulation.network import SimulatedTransport
from fencepost.simulation.shown_offsets import SHOWN
from fencepost.spark.progress import PARTITION as PROGRESS

Key = Hashable
_OF_MEMBERS: Final = 2
"""Version of the keys of records about the members of a group."""
_REMEMBERED: Final = 4096
"""Keys that were decoded: a coordinator writes the same few again and again."""
_OF_TOPICS: Final = {
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
_OF_COORDINATOR: Final = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""These say where an id is looked after, and nothing of the id."""


class Appends:
    """The newest lsn of whatever an answer may be about, as the log was given it in this life of the node."""

    def __init__(self) -> None:
        self._newest: dict[Key, int] = {}
        self._waiting: defaultdict[tuple[str, int], deque[tuple[int, int]]] = defaultdict(deque)
        """Of each partition, what was not durable when somebody last asked: lsn and first offset, in order."""

    def add(self, partition: Partition, header: BatchHeader, batch: Buffer, lsn: Lsn) -> None:
        """A batch was appended."""
        topic, newest = partition.topic, self._newest
        at = topic, partition.index
        newest[at] = newest[*at, header.producer_id] = lsn
        if (subject := _STORED_SUBJECTS.get(topic)) is not None and not header.is_control:
            for record in keys_of(batch, header):
                if (key := subject(record.key or b"")) is not None:
                    newest[key] = lsn
        waiting = self._waiting[at]
        if header.base_offset == 0:
            waiting.clear()
        waiting.append((lsn, header.base_offset))

    def moved(self, partition: Partition, lsn: Lsn) -> None:
        """The start of a partition was moved."""
        self._newest[partition.topic, partition.index] = lsn

    def newest(self, key: Key) -> int:
        """The lsn of the last thing that was written about it; 0 if nothing was."""
        return self._newest.get(key, 0)

    def first_unsynced(self, at: tuple[str, int], durable: int) -> int | None:
        """The first offset that a power loss might take; None if there is none."""
        waiting = self._waiting[at]
        while waiting and waiting[0][0] <= durable:
            waiting.popleft()
        return waiting[0][1] if waiting else None


def _id(name: str | None) -> Key:
    return "transactional id", name


def _members(group: str) -> Key:
    return "members", group


@lru_cache(_REMEMBERED)
def _id_of_key(key: bytes) -> Key:
    """What a record of the transaction state with this key is about."""
    return _id(decode_stored(TransactionLogKey, key).transactional_id)


@lru_cache(_REMEMBERED)
def _members_of_key(key: bytes) -> Key | None:
    """The same of the groups' topic; None for what is not about members."""
    return _members(decode_stored(GroupMetadataKey, key).group) if stored_version(key) == _OF_MEMBERS else None


_STORED_SUBJECTS: Final[Mapping[str, Callable[[bytes], Key | None]]] = {
    TRANSACTION_STATE: _id_of_key,
    CONSUMER_OFFSETS: _members_of_key,
}


# What each answer tells

Subjects = Callable[[Any, Any, Node], Iterator[Key]]


def _one_id(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    if response.error_code not in _OF_COORDINATOR:
        yield _id(request.transactional_id)


def _added_offsets(request: Any, response: Any, node: Node) -> Iterator[Key]:
    """Nothing is told of the id where the topic of the groups' positions could not be made."""
    if CONSUMER_OFFSETS in node.topics.by_name:
        yield from _one_id(request, response, node)


def _ids(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for state in response.transaction_states:
        if state.error_code not in _OF_COORDINATOR:
            yield _id(state.transactional_id)


def _listed_ids(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    yield from (_id(state.transactional_id) for state in response.transaction_states)


def _added_ids(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    """Before version 4 one id, afterwards any number.  Nothing is told of an id where some topic was not known."""
    if _tells_of_id(response.results_by_topic):
        yield _id(request.transactional_id)
    for each in response.results_by_transaction:
        if _tells_of_id(each.topic_results):
            yield _id(each.transactional_id)


def _tells_of_id(topics: Any) -> bool:
    errors = {ErrorCode(each.partition_error_code) for topic in topics for each in topic.results_by_partition}
    return bool(errors) and not errors & (_OF_TOPICS | _OF_COORDINATOR)


def _group(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    yield CONSUMER_OFFSETS, node.groups.partition_for(request.group_id)


def _generation(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    """Positions of a group may be committed between its decision and its answer, who waits for others meanwhile."""
    yield _members(request.group_id)


def _committed(request: Any, response: Any, node: Node) -> Iterator[Key]:
    """Nothing is told of a group where no topic was known."""
    errors = {ErrorCode(partition.error_code) for topic in response.topics for partition in topic.partitions}
    if errors - _OF_TOPICS:
        yield from _group(request, response, node)


def _fetched_groups(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for name in [request.group_id, *(group.group_id for group in request.groups)]:
        yield CONSUMER_OFFSETS, node.groups.partition_for(name)


def _named_groups(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    names = request.groups if hasattr(request, "groups") else request.groups_names
    for name in names:
        yield CONSUMER_OFFSETS, node.groups.partition_for(name)


def _listed_groups(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for group in response.groups:
        yield CONSUMER_OFFSETS, node.groups.partition_for(group.group_id)


def _written(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    """The producers of the batches, refused ones included; the partition where there is no producer."""
    for topic in request.topic_data:
        name = topic.name
        if not name and topic.topic_id in node.topics.by_id:
            name = node.topics.by_id[topic.topic_id].name
        for data in topic.partition_data:
            try:
                header = read_header(data.records or b"")
            except ProtocolError:
                continue
            yield name, data.index, header.producer_id


def _marked(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for marker in request.markers:
        for topic in marker.topics:
            yield from ((topic.name, index) for index in topic.partition_indexes)


def _deleted(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for topic in request.topics:
        yield from ((topic.name, partition.partition_index) for partition in topic.partitions)


def _described_producers(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for topic in request.topics:
        yield from ((topic.name, index) for index in topic.partition_indexes)


def _ended(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for topic in response.topics:
        yield from ((topic.topic, partition.partition) for partition in topic.partitions if not partition.error_code)


def _measured(request: Any, response: Any, node: Node) -> Iterator[Key]:  # noqa: ARG001
    for topic in response.results[0].topics:
        yield from ((topic.name, partition.partition_index) for partition in topic.partitions)


#: api -> what its answers are about
SUBJECTS: Final[Mapping[int, Subjects]] = {
    0: _written,
    8: _committed,
    9: _fetched_groups,
    11: _generation,
    12: _group,
    13: _group,
    14: _generation,
    15: _named_groups,
    16: _listed_groups,
    21: _deleted,
    22: _one_id,
    23: _ended,
    24: _added_ids,
    25: _added_offsets,
    26: _one_id,
    27: _marked,
    28: _committed,
    35: _measured,
    42: _named_groups,
    47: _group,
    61: _described_producers,
    65: _ids,
    66: _listed_ids,
}
Written = Callable[[str, int, BatchHeader, Buffer, Lsn], None]
"""Is shown what is appended: topic, partition, the batch, and its lsn."""


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
        """Those that are made for a topic have had its settings put in place once more."""
        shown = list(partitions)
        for partition in shown:
            # Checkers look at all progress that there ever was: what is not rolled is not compacted.
            if partition.topic != PROGRESS.topic:
                partition.settings = partition.settings.with_(**self._fields)
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
        return self.appends.first_unsynced(at, self.durable)

    def tell_stable(self, topic: str, index: int, stable: int, start: int) -> None:
        """Somebody is told the last stable offset of a partition."""
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
        """The lsn that an answer depends on."""
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
        """Bytes leave the node, perhaps a part of an answer only."""
        leaving = self._leaving
        leaving += data
        while len(leaving) >= 8:
            end = 4 + int.from_bytes(leaving[:4], "big")
            due = self._due.get(int.from_bytes(leaving[4:8], "big"))
            durable = self._node.storage.durable
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
