"""What the tests of the cleaner share: random logs, a cleaner in virtual time, and what a reader sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.log.log_doubles import Node, append, marker, now_at

from fencepost.log.cleaner.log_cleaner import LogCleaner
from fencepost.log.cleaner.settings import CleanerSettings
from fencepost.log.partition import Partition
from fencepost.log.producer_state import Origin
from fencepost.protocol.batch import BatchHeader, headers, read_header, stamp
from fencepost.protocol.compression import Compression
from fencepost.protocol.control import COMMIT, read_control_record
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import NewRecord, Record, decode_batch, encode_batch
from fencepost.protocol.types import Epoch, Isolation, LeaderEpoch, Offset, ProducerId

KEYS = (b"", b"a", b"b", b"c", bytes(40), bytes(39) + b"1", b"z" * 31, b"z" * 32)
RETENTION = 1_000
SETTINGS: dict[str, Any] = {
    "segment_bytes": 1_500,
    "index_interval_bytes": 200,
    "cleanup_policy": "compact",
    "delete_retention_ms": RETENTION,
    "min_cleanable_dirty_ratio": 0.0,
}


def cleaner_of(node: Node, **settings: Any) -> LogCleaner:
    given = CleanerSettings(**{"backoff_ms": 1_000, "unsettled_bytes": 1, **settings})
    return LogCleaner(node.storage, given, node.clock, asyncio.get_running_loop())


async def until_idle(node: Node, **settings: Any) -> LogCleaner:
    """Clean until there is nothing left to do."""
    cleaner = cleaner_of(node, **settings)
    cleaner.start()
    passes = -1
    while cleaner.metrics.passes > passes:
        passes = cleaner.metrics.passes
        await asyncio.sleep(5)
    cleaner.close()
    await node.settled()
    return cleaner


class SlowTimers:
    """Rings as late as it is told; whenever it is asked, a millisecond has passed."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rung: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, callback: Callable[[], None], /) -> asyncio.TimerHandle:
        self.rung.append((self.now + delay, callback))
        return asyncio.get_running_loop().call_later(0, lambda: None)

    def time(self) -> float:
        self.now += 0.001
        return self.now

    def ring(self, late: float) -> None:
        due, callback = self.rung.pop()
        self.now = due + late
        callback()


@dataclass
class Writer:
    """Writes a random log to a partition: keys, tombstones, transactions, codecs."""

    node: Node
    random: Random
    sequences: dict[int, tuple[int, int]] = field(default_factory=dict)
    """producer id -> epoch, next sequence"""
    open: set[int] = field(default_factory=set)
    written: int = 0
    history: list[bytes] = field(default_factory=list)
    """Every batch that was taken, as it stands in the log."""
    keys: tuple[bytes, ...] = KEYS

    @property
    def partition(self) -> Partition:
        return self.node.partition

    def step(self) -> None:
        self.node.clock.at += self.random.randrange(30)
        producer_id, dice = self.random.randrange(6), self.random.random()
        if dice < 0.3:
            self.end(self.random.choice(sorted(self.open) or [producer_id % 3]))
        elif producer_id == 5:
            self._append(self._batch())
        else:
            self._produce(producer_id, transactional=producer_id < 3)

    def _produce(self, producer_id: int, transactional: bool) -> None:
        epoch, sequence = self.sequences.get(producer_id, (0, 0))
        if not transactional and self.random.random() < 0.05:
            epoch, sequence = epoch + 1, 0
        data, count = self._records(), 0
        options: dict[str, Any] = {}
        if transactional:
            found = self.partition.start_verification(
                ProducerId(producer_id), Epoch(epoch), sequence, True, now_at(self.partition)
            )
            assert not isinstance(found, ErrorCode)
            options["guard"] = found
            self.open.add(producer_id)
        count = len(data)
        batch = encode_batch(
            data,
            compression=self.random.choice(list(Compression)),
            producer_id=ProducerId(producer_id),
            producer_epoch=Epoch(epoch),
            base_sequence=sequence,
            transactional=transactional,
        )
        self._append(batch, **options)
        self.sequences[producer_id] = epoch, sequence + count

    def _batch(self) -> bytes:
        return encode_batch(self._records(), compression=self.random.choice(list(Compression)))

    def _records(self) -> list[NewRecord]:
        found: list[NewRecord] = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            self.written += 1
            value = None if self.random.random() < 0.2 else b"%d " % self.written * self.random.choice((1, 1, 1, 40))
            named = (("h", b"1"), ("n", None)) if self.random.random() < 0.2 else ()
            stamp = self.node.clock.at + self.random.randrange(-50, 50)
            found.append((stamp, self.random.choice(self.keys), value, named))
        return found

    def end(self, producer_id: int) -> None:
        """Commit or abort, sometimes with a new epoch as in transaction.version 2."""
        epoch, _ = self.sequences.get(producer_id, (0, 0))
        if self.random.random() < 0.5:
            epoch += 1
            self.sequences[producer_id] = epoch, 0
        self.open.discard(producer_id)
        data = marker(producer_id, epoch, self.random.random() < 0.5, LeaderEpoch(1), self.node.clock.at)
        self._append(data, origin=Origin.COORDINATOR)

    def _append(self, data: bytes, **options: Any) -> None:
        taken = bytearray(data)
        stamp(taken, 0, append(self.partition, data, **options).base_offset, self.partition.leader_epoch)
        self.history.append(bytes(taken))


def batches_of(partition: Partition) -> list[tuple[BatchHeader, bytes]]:
    return [(header, bytes(data)) for header, data in partition.scan()]


def committed(partition: Partition, offset: int = 0) -> list[Record]:
    """What a read_committed consumer is handed from an offset on, through the partition's own reads."""
    found: list[Record] = []
    offset = max(offset, partition.log_start_offset)
    while offset < partition.last_stable_offset:
        fetched = partition.read(Offset(offset), 700, Isolation.READ_COMMITTED)
        records = bytes(getattr(fetched, "records", b""))
        if not records:
            break
        aborted = sorted((first, producer_id) for producer_id, first in getattr(fetched, "aborted", None) or ())
        dropping: set[int] = set()
        for at, header in headers(records):
            while aborted and aborted[0][0] <= header.last_offset:
                dropping.add(aborted.pop(0)[1])
            if header.is_control:
                record = read_control_record(records, at, header)
                if record is not None and record.type == 0:
                    dropping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropping):
                found += [record for record in decode_batch(records, at, header) if record.offset >= offset]
            following = header.last_offset + 1
        offset = following
    return found


def table(records: list[Record]) -> dict[bytes, bytes]:
    """The newest value of every key, without those that were deleted."""
    newest = {record.key: record.value for record in records if record.key is not None}
    return {key: value for key, value in newest.items() if value is not None}


def producers_of(partition: Partition) -> dict[int, Any]:
    return {
        producer_id: (entry.epoch, entry.coordinator_epoch, entry.open_first_offset, list(entry.batches))
        for producer_id, entry in partition.producers.entries.items()
    }


def expected(history: list[bytes], start: int, end: int) -> dict[bytes, bytes]:
    """The table that the batches amount to which lie between these offsets, told from nothing but them."""
    known = [(read_header(data), data) for data in history]
    known = [(header, data) for header, data in known if header.last_offset < end]
    outcomes: dict[int, bool] = {}
    open_at: dict[int, list[int]] = {}
    for header, data in known:
        if header.is_control:
            record = read_control_record(data, 0, header)
            assert record is not None
            outcomes |= dict.fromkeys(open_at.pop(header.producer_id, []), record.type == COMMIT)
        elif header.is_transactional:
            open_at.setdefault(header.producer_id, []).append(header.base_offset)
    stable = min((first for opened in open_at.values() for first in opened), default=end)
    return table(
        [
            record
            for header, data in known
            if not header.is_control and header.base_offset < stable and outcomes.get(header.base_offset, True)
            for record in decode_batch(data, 0, header)
            if record.offset >= start
        ]
    )
