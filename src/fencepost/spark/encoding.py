"""Encodes rows before the shuffle: chooses the topic-partition of each, and puts those of one into record batches.

So record batches are shuffled, a few for each topic-partition, and not rows; of those that are sent at once, a receipt.
The target of a row is a function of the row alone, so that one that is computed again goes where it went before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.protocol.batch import HEADER_SIZE, read_header
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import BatchBuilder, Rows, decode_batch, seal
from fencepost.protocol.types import NO_EPOCH, NO_PRODUCER_ID, Buffer, Epoch, ProducerId, TopicPartition
from fencepost.runtime import SystemClock
from fencepost.spark.attempt import BATCH_BYTES, Receipt, RowError
from fencepost.spark.partitioning import bytes_of, murmur2
from fencepost.spark.worker import set_aside_what_is_loaded

_WHOLE: Final = 10
"""Batches of at least 1 / 10 of the most bytes are written as they are; smaller ones are put together."""
_ROW: Final = 5
"""Rows of at most 1 / 5 of a batch fill it without being looked at one by one."""
_AROUND: Final = 32
"""Bytes of a record beside key and value, at most."""
RECORD_GROWS: Final = 14
"""Bytes by which a record grows at most when batches are put together: its offset, time and length count anew."""
_UNFINISHED: Final = 16 * 1024 * 1024
"""Bytes of batches that are not full, at most, for all topic-partitions together."""

_TOGETHER: Final = 2 * 1024 * 1024
"""Bytes from which on record batches are handed on as one Arrow batch, which can take 2 GiB."""

_RECEIPT: Final = struct.Struct(">4q")

Numbers = np.ndarray[Any, np.dtype[np.int32]]

#: What is shuffled.  Where `whole` is null they were sent already, and `batch` is a receipt for them.
ENCODED: Final = "target int, whole boolean, batch binary"
_SCHEMA: Final = pa.schema([("target", pa.int32()), ("whole", pa.bool_()), ("batch", pa.binary())])


class Leaving(NamedTuple):
    """A record batch on its way to the task that writes it."""

    target: int
    """The topic-partition, as its place in `targets`."""
    whole: bool
    """Whether it is written as it is; else its records are put together with others."""
    batch: BatchBuilder


class Ahead(Protocol):
    """Sends batches in the task that computed the rows, before the shuffle."""

    def put(self, target: int, batch: BatchBuilder) -> None:
        """Send a batch behind those given before.  Raises the error of one of those."""
        ...

    def finish(self) -> list[tuple[int, Receipt]]:
        """Wait until all batches are acknowledged; each target with its receipt.  Raises the error of a batch."""
        ...

    def close(self) -> None:
        """Send nothing more."""
        ...


@dataclass(frozen=True)
class Encoder:
    """The function of mapInArrow that puts rows into batches.

    `topic`: where all rows go, None if they have a column topic.  `counts`: topic -> number of partitions.  A row for
    another topic, or for a partition that its topic does not have, raises RowError.  `batch_bytes`: the most of a
    batch that has more than one record.  `ahead`: makes the Ahead that sends batches which are large enough at once, in
    this task; None: all of them are handed on.
    """

    topic: str | None
    counts: Mapping[str, int]
    batch_bytes: int = BATCH_BYTES
    ahead: Callable[[], Ahead] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        set_aside_what_is_loaded()
        building: dict[int, BatchBuilder] = {}
        if self.ahead is None:
            for batch in batches:
                yield from _encoded(self._leaving(building, batch))
            yield from _encoded(_rest(building, self.batch_bytes))
            return
        ahead = self.ahead()
        try:
            for batch in batches:
                for each in self._leaving(building, batch):
                    ahead.put(each.target, each.batch)
            rest = _rest(building, self.batch_bytes)
            for each in rest:
                if each.whole:
                    ahead.put(each.target, each.batch)
            receipts = ahead.finish()
        finally:
            ahead.close()
        if receipts:
            yield _receipts(receipts)
        yield from _encoded(each for each in rest if not each.whole)

    def _leaving(self, building: dict[int, BatchBuilder], batch: pa.RecordBatch) -> Iterator[Leaving]:
        for target in fill(building, batch, targets_of(batch, self.topic, self.counts), self.batch_bytes):
            yield Leaving(target, True, building.pop(target))
        if sum(builder.size for builder in building.values()) > _UNFINISHED:
            yield from _rest(building, self.batch_bytes)


def _rest(building: dict[int, BatchBuilder], batch_bytes: int) -> list[Leaving]:
    whole = batch_bytes // _WHOLE
    found = [Leaving(target, builder.size >= whole, builder) for target, builder in building.items()]
    building.clear()
    return found


def _encoded(leaving: Iterable[Leaving]) -> Iterator[pa.RecordBatch]:
    """The batches as rows of `ENCODED`, in the order in which they come, some at a time."""
    some, size = list[Leaving](), 0
    for each in leaving:
        some.append(each)
        size += each.batch.size
        if size > _TOGETHER:
            yield _in_arrow(some)
            some, size = [], 0
    if some:
        yield _in_arrow(some)


def _in_arrow(leaving: list[Leaving]) -> pa.RecordBatch:
    """Batches as rows of `ENCODED`; their bytes are copied once."""
    ends = np.cumsum([0, *(each.batch.size for each in leaving)], dtype=np.int64)
    assert ends[-1] < 2**31, "they are few enough for Arrow's numbers"
    data = pa.py_buffer(b"".join(part for each in leaving for part in each.batch.parts()))
    batches = pa.Array.from_buffers(pa.binary(), len(leaving), [None, pa.py_buffer(ends.astype(np.int32)), data])
    targets_, wholes = ([each[place] for each in leaving] for place in (0, 1))
    return pa.RecordBatch.from_arrays([pa.array(targets_, pa.int32()), pa.array(wholes), batches], schema=_SCHEMA)


def _receipts(receipts: list[tuple[int, Receipt]]) -> pa.RecordBatch:
    packed = pa.array([_RECEIPT.pack(*receipt) for _, receipt in receipts], pa.binary())
    at = pa.array([target for target, _ in receipts], pa.int32())
    return pa.RecordBatch.from_arrays([at, pa.nulls(len(receipts), pa.bool_()), packed], schema=_SCHEMA)


def receipt_in(data: Buffer) -> Receipt:
    """The receipt that a row of `ENCODED` has in place of a batch that was sent."""
    return Receipt(*_RECEIPT.unpack(data))


class SealedBatch(BatchBuilder):
    """Records that are in a batch already, which is given its producer, its place and a checksum when it is sent.

    It is compressed only where that makes it smaller: a row that has just room in its topic must not lose it.
    """

    __slots__ = ("_batch",)

    def __init__(self, batch: Buffer, compression: Compression) -> None:
        super().__init__(compression)
        header = read_header(batch)
        self._batch = memoryview(batch)
        self.count, self.size = header.record_count, header.size

    def build(
        self,
        producer_id: ProducerId = NO_PRODUCER_ID,
        producer_epoch: Epoch = NO_EPOCH,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytes:
        header = read_header(self._batch)
        for compression in (self.compression, Compression.NONE):
            data = seal(
                self._batch[HEADER_SIZE:],
                header.record_count,
                header.base_timestamp,
                header.max_timestamp,
                compression=compression,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                transactional=transactional,
            )
            if len(data) <= self.size:
                break
        return data


def together(batches: Sequence[Buffer], compression: Compression) -> BatchBuilder:
    """One batch with the records of all these batches, in their order."""
    if len(batches) == 1:
        return SealedBatch(batches[0], compression)
    builder = BatchBuilder()
    for batch in batches:
        for record in decode_batch(batch):
            builder.append(record.timestamp, record.key, record.value, record.headers)
    return SealedBatch(builder.build(), compression)


# Where a row goes


def targets(counts: Mapping[str, int]) -> list[TopicPartition]:
    """Every topic-partition that may be written to; a target is a place in this list."""
    return [TopicPartition(topic, number) for topic in sorted(counts) for number in range(counts[topic])]


def targets_of(batch: pa.RecordBatch, topic: str | None, counts: Mapping[str, int]) -> Numbers:
    """The target of each row.  Raises RowError for one that has none."""
    first, count = _topics_of(batch, topic, counts)
    partition = np.full(batch.num_rows, -1, np.int64)
    given = np.zeros(batch.num_rows, bool)
    if "partition" in batch.schema.names:
        column = batch.column("partition")
        given = column.is_valid().to_numpy(zero_copy_only=False)
        partition = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if not given.all():
        partition = np.where(given, partition, hashes(batch.column("key"), batch.column("value")) % count)
    amiss = np.flatnonzero((partition < 0) | (partition >= count))
    if len(amiss):
        name = topic if topic is not None else batch.column("topic")[int(amiss[0])].as_py()
        raise RowError(f"topic {name} has no partition {partition[amiss[0]]}")
    found: Numbers = (first + partition).astype(np.int32)
    return found


def hashes(keys: pa.Array, values: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Kafka's hash of a row's key, or where it has none, of its value: never by turns, since that would not repeat."""
    chosen = pc.coalesce(keys.cast(pa.binary()), values.cast(pa.binary()))
    return (murmur2(chosen) & np.uint32(0x7FFFFFFF)).astype(np.int64)


def _topics_of(batch: pa.RecordBatch, topic: str | None, counts: Mapping[str, int]) -> tuple[Any, Any]:
    """Of each row, or of all, the place of its topic's partition 0 among all targets, and how many there are.

    Raises RowError for another topic.
    """
    names, firsts, total = sorted(counts), [], 0
    for name in names:
        firsts.append(total)
        total += counts[name]
    if topic is not None and topic in counts:
        return firsts[names.index(topic)], counts[topic]
    places = pc.index_in(batch.column("topic"), pa.array(names, batch.column("topic").type)) if topic is None else None
    if places is None or places.null_count:
        unknown = topic if places is None else batch.column("topic").filter(places.is_null())[0].as_py()
        shown = "null" if unknown is None else _in_one_line(unknown)
        raise RowError(f"topic {shown} is not one of those of this write: {', '.join(names)}")
    which = places.to_numpy(zero_copy_only=False)
    return np.array(firsts)[which], np.array([counts[name] for name in names])[which]


def _in_one_line(text: str) -> str:
    """Text of a row, for a message: what cannot be printed is escaped, so that it is one line."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


# From rows to records


def fill(
    building: dict[int, BatchBuilder], batch: pa.RecordBatch, row_targets: Numbers, batch_bytes: int
) -> Iterator[int]:
    """Put rows into the batches of their targets; gives a target each time its batch is full and must be taken out."""
    if (
        "timestamp" in batch.schema.names
        or "headers" in batch.schema.names
        or _largest(batch) + _AROUND > batch_bytes // _ROW
    ):
        for target, row in _rows(batch, row_targets):
            if target in building:
                if building[target].append(*row, limit=batch_bytes):
                    continue
                yield target
            started = building[target] = BatchBuilder()
            started.append(*row)  # whatever its size
        return
    now, full = SystemClock().now(), batch_bytes - batch_bytes // _ROW
    columns = _columns(batch)
    order = np.argsort(row_targets, kind="stable")
    for target, start, stop in _parts(row_targets[order]):
        at = start
        lists: tuple[list[bytes | None], list[bytes | None]] | None = None
        while at < stop:
            builder = building.setdefault(target, BatchBuilder())
            after = builder.extend_rows(now, columns, order, at, stop, full)
            if after is None:
                if lists is None:
                    lists = _lists(batch, order[start:stop])
                keys, values = lists
                after = at + builder.extend(now, keys[at - start :], values[at - start :], full)
            at = after
            if builder.size >= full:
                yield target


def _largest(batch: pa.RecordBatch) -> int:
    """Bytes of key and value of the largest row, at most."""
    lengths = (pc.max(pc.binary_length(batch.column(name).cast(pa.binary()))).as_py() for name in ("key", "value"))
    return sum(length or 0 for length in lengths)


def _parts(sorted_targets: Numbers) -> Iterator[tuple[int, int, int]]:
    """Each target among `sorted_targets`, with the places in it where its rows begin and end."""
    starts = [0, *(np.flatnonzero(np.diff(sorted_targets)) + 1).tolist(), len(sorted_targets)]
    for start, stop in pairwise(starts):
        if start < stop:
            yield int(sorted_targets[start]), start, stop


def _columns(batch: pa.RecordBatch) -> Rows:
    """Keys and values where they lie in the memory of Arrow."""
    keys, values = (batch.column(name).cast(pa.binary()) for name in ("key", "value"))
    nulls = [column.is_null().to_numpy(zero_copy_only=False).astype(np.uint8) for column in (keys, values)]
    return Rows(*bytes_of(keys), *bytes_of(values), nulls[0] + 2 * nulls[1])


def _lists(batch: pa.RecordBatch, order: Any) -> tuple[list[bytes | None], list[bytes | None]]:
    rows = batch if len(order) == batch.num_rows else batch.take(pa.array(order))
    return rows.column("key").to_pylist(), rows.column("value").to_pylist()


def _headers(given: list[dict[str, Any] | None]) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a row.  Raises RowError for one without a key, which Kafka does not have."""
    found = tuple((entry["key"], entry["value"]) for entry in given if entry is not None)
    if len(found) < len(given) or any(key is None for key, _ in found):
        raise RowError("a row has a header that is null, or has no key: leave it out of the column headers")
    return found


def _rows(
    batch: pa.RecordBatch, row_targets: Numbers
) -> Iterator[tuple[int, tuple[int, bytes | None, bytes | None, Any]]]:
    """Target of each row, and its timestamp (ms), key, value and headers.  Raises RowError if it can be no record."""
    count, names = batch.num_rows, batch.schema.names
    keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
    times: Any = repeat(SystemClock().now(), count)
    if "timestamp" in names:
        microseconds = batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        if (pc.min(microseconds).as_py() or 0) < 0:
            raise RowError("a row has a time before 1970, which Kafka does not have: see its column timestamp")
        times = pc.divide(microseconds, 1000).fill_null(SystemClock().now()).to_pylist()
    headers: Any = repeat((), count)
    if "headers" in names:
        headers = [_headers(given) if given else () for given in batch.column("headers").to_pylist()]
    return zip(row_targets.tolist(), zip(times, keys, values, headers, strict=True), strict=True)
