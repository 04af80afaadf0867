"""Reads all records of a range of one partition, and the outcome of each: the option `schema` with the value `audit`.

Records that no reader of committed records is shown are in it too, and the markers that end transactions.  What a
transaction came to stands behind it in the log: the markers are read first, to the end of the log where one is open.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from fencepost.client.cluster import Cluster
from fencepost.client.positions import list_offsets
from fencepost.client.records import visible_batches
from fencepost.client.security import Security
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.control import ABORT, COMMIT, read_control_record
from fencepost.protocol.messages.list_offsets import LATEST
from fencepost.protocol.record_columns import FIELDS
from fencepost.protocol.records import Record, decode_batch
from fencepost.protocol.types import Buffer, Isolation, TopicPartition
from fencepost.spark.reading import RangeReader

#: Column -> its type, beside those of every read.
AUDIT_FIELDS: Final = {
    "producerId": pa.int64(),
    "producerEpoch": pa.int32(),
    "sequence": pa.int32(),
    "isTransactional": pa.bool_(),
    "controlType": pa.string(),
    "outcome": pa.string(),
    "endOffset": pa.int64(),
}
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"
_CONTROL_TYPES: Final = {COMMIT: "COMMIT", ABORT: "ABORT"}
_OUTCOMES: Final = {COMMIT: COMMITTED, ABORT: ABORTED}
_SEQUENCES: Final = 1 << 31
_ROWS: Final = 20_000


class Fate(NamedTuple):
    """The outcome of a record's transaction, and the offset of its marker; None: it is in no transaction, or open."""

    outcome: str
    end_offset: int | None


def fate(header: BatchHeader, offset: int, markers: Markers) -> Fate:
    """The `Fate` of a record that is no marker.

    `markers`: at least those behind it, up to the one that ends its transaction.  Before the last stable offset a
    record is committed unless a transaction is said to be aborted that it is in: of a compacted topic markers are
    removed, those of commits while their records stay.
    """
    if not header.is_transactional:
        return Fate(COMMITTED, None)
    ends = markers.ends.get(header.producer_id, [])
    following = bisect_right(ends, offset, key=lambda marker: marker[0])
    end_offset, kind = ends[following] if following < len(ends) else (None, None)
    if offset < markers.stable:
        since = ends[following - 1][0] if following else -1
        begun = markers.aborted.get(header.producer_id, set())
        if kind != ABORT or not any(since < first <= offset for first in begun):
            return Fate(COMMITTED, end_offset if kind == COMMIT else None)
    return Fate(OPEN if kind is None else _OUTCOMES[kind], end_offset)


def sequence_of(header: BatchHeader, offset: int) -> int:
    """The sequence number of a record, -1 if its producer gives none.  They begin anew at 0 behind 2**31 - 1."""
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + offset - header.base_offset) % _SEQUENCES


class Markers:
    """Collects the ends of transactions, batch by batch, in the order of the log, for records before `end`.

    `stable`: the last stable offset.
    """

    def __init__(self, end: int, stable: int) -> None:
        self._end = end
        self.stable = stable
        self.ends: dict[int, list[tuple[int, int]]] = {}
        """Producer id -> offset and type of each marker of it, in their order."""
        self.aborted: dict[int, set[int]] = {}
        """Producer id -> the first offsets of its aborted transactions, of those that end before `stable`."""
        self.open: set[int] = set()
        """Producers whose transaction has records before `end`, and no marker yet."""

    def add_aborted(self, aborted: Iterable[tuple[int, int]]) -> None:
        """Take in aborted transactions, as Fetch answers them: producer id and first offset of each."""
        for producer_id, first in aborted:
            self.aborted.setdefault(producer_id, set()).add(first)

    def add(self, data: Buffer, position: int, header: BatchHeader) -> None:
        """Take in the next batch, which is at `position` of `data`."""
        if not header.is_control:
            if header.is_transactional and header.base_offset < self._end:
                self.open.add(header.producer_id)
            return
        marker = read_control_record(data, position, header)
        if marker is not None and marker.ends_transaction:
            self.ends.setdefault(header.producer_id, []).append((header.base_offset, marker.type))
            self.open.discard(header.producer_id)


def audit_range(
    bootstrap_servers: str,
    security: Security | None,
    at: TopicPartition,
    start: int,
    end: int,
    columns: Sequence[str],
    fail_on_data_loss: bool,
    topic_id: str | None = None,
    patience_ms: int = 60_000,
) -> Iterator[pa.RecordBatch]:
    """All records in [start, end), control and aborted ones too.  Arguments and errors: as `reading.read_range`."""
    loop = asyncio.new_event_loop()
    cluster = Cluster(bootstrap_servers, client_id="fencepost-spark-audit", security=security, patience_ms=patience_ms)
    rest = (fail_on_data_loss, topic_id)
    try:
        markers = loop.run_until_complete(_markers(cluster, at, start, end, rest))
        reader = RangeReader(cluster, at, end, Isolation.READ_UNCOMMITTED, *rest)
        position = start
        while position < end:
            position, data, _ = loop.run_until_complete(reader.fetch(position))
            rows = _Rows(at, position, end, columns)
            for place, header, _ in visible_batches(data, None):
                for record in decode_batch(data, place, header):
                    rows.add(header, record, markers)
                position = header.last_offset + 1
            yield from rows.batches()
        loop.run_until_complete(reader.check_topic())
    finally:
        loop.run_until_complete(cluster.close())
        loop.close()


async def _markers(
    cluster: Cluster, at: TopicPartition, start: int, end: int, rest: tuple[bool, str | None]
) -> Markers:
    log_end, stable = [
        (await list_offsets(cluster, [at], LATEST, isolation))[at][0]
        for isolation in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
    ]
    readers = {isolation: RangeReader(cluster, at, log_end, isolation, *rest) for isolation in Isolation}
    markers, position = Markers(end, stable), start
    while position < log_end and (position < end or markers.open):
        isolation = Isolation.READ_COMMITTED if position < stable else Isolation.READ_UNCOMMITTED
        position, data, aborted = await readers[isolation].fetch(position)
        markers.add_aborted(aborted or ())
        for place, header, _ in visible_batches(data, None):
            markers.add(data, place, header)
            position = header.last_offset + 1
    return markers


class _Rows:
    """The records of one fetch, column by column."""

    def __init__(self, at: TopicPartition, start: int, end: int, columns: Sequence[str]) -> None:
        self._at = at
        self._start, self._end = start, end
        self._columns = columns
        self._rows: list[tuple[BatchHeader, Record, str | None, Fate]] = []

    def add(self, header: BatchHeader, record: Record, markers: Markers) -> None:
        if not self._start <= record.offset < self._end:
            return
        if header.is_control:
            kind = int.from_bytes((record.key or b"")[2:4])
            found = Fate(_OUTCOMES[kind], record.offset) if kind in _OUTCOMES else Fate(COMMITTED, None)
            self._rows.append((header, record, _CONTROL_TYPES.get(kind, str(kind)), found))
        else:
            self._rows.append((header, record, None, fate(header, record.offset, markers)))

    def batches(self) -> Iterator[pa.RecordBatch]:
        fields = FIELDS | AUDIT_FIELDS
        schema = pa.schema([pa.field(name, fields[name]) for name in self._columns])
        for first in range(0, len(self._rows), _ROWS):
            rows = self._rows[first : first + _ROWS]
            arrays = [self._column(name, rows) for name in self._columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str, rows: Sequence[tuple[BatchHeader, Record, str | None, Fate]]) -> pa.Array:
        if name == "timestamp":
            stamps = pa.array([record.timestamp for _, record, _, _ in rows], pa.timestamp("ms", tz="UTC"))
            return stamps.cast(FIELDS[name])
        values = [self._value(name, *row) for row in rows]
        return pa.array(values, (FIELDS | AUDIT_FIELDS)[name])

    def _value(self, name: str, header: BatchHeader, record: Record, control: str | None, found: Fate) -> Any:
        match name:
            case "key":
                return record.key
            case "value":
                return record.value
            case "topic":
                return self._at.topic
            case "partition":
                return self._at.partition
            case "offset":
                return record.offset
            case "timestampType":
                return header.attributes >> 3 & 1
            case "producerId":
                return header.producer_id
            case "producerEpoch":
                return header.producer_epoch
            case "sequence":
                return sequence_of(header, record.offset)
            case "isTransactional":
                return header.is_transactional
            case "controlType":
                return control
            case "outcome":
                return found.outcome
            case "endOffset":
                return found.end_offset
        return [{"key": key, "value": value} for key, value in record.headers] or None
