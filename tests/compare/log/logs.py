"""Random logs, written alike to both nodes, with segments that begin at the same offsets on both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.compare.nodes.leader import TRANSACTION_TIMEOUT_MS, Leader
from tests.compare.nodes.plain import NOW

from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.records import NewRecord, encode_batch
from fencepost.protocol.types import Epoch, ProducerId

SEGMENT_BYTES = 1024 * 1024
"""The least that both nodes take."""
KEYS = (b"", b"a", b"b", b"c", b"marker", b"\0\0\0\0", b"\0\0\0\1", bytes(40), bytes(39) + b"1")
"""Among them those of markers, which no marker may be taken for (KAFKA-14055)."""
FILLER = b"filler"
_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_PATIENCE = 30.0


@dataclass
class Producer:
    """One producer, with its ids on both nodes.  `level`: the transaction.version that its requests follow."""

    name: str | None
    ids: list[int]
    level: int = 2
    epoch: int = 0
    sequence: int = 0
    first_offset: int = -1
    """Of its open transaction here; -1 if none is open."""
    is_added: bool = False
    """Whether the partition is in its transaction."""


@dataclass
class Log:
    """Partition 0 of a topic, on both nodes."""

    nodes: Sequence[Leader]
    topic: str
    random: Random
    retention_ms: int
    """delete.retention.ms"""
    end: int = 0
    bases: list[int] = field(default_factory=lambda: [0])
    """Where segments begin."""
    producers: list[Producer] = field(default_factory=list)
    written: int = 0
    time: int = NOW
    """Of the records, about."""
    _is_full: bool = False

    def __post_init__(self) -> None:
        for name, level in (
            (f"{self.topic}-0", 2),
            (f"{self.topic}-1", 2),
            (f"{self.topic}-2", 1),
            (None, 0),
            (None, 0),
        ):
            ids = []
            for node in self.nodes:
                if name is not None:
                    find = find_coordinator(1, name)
                    until_taken(lambda node=node, find=find: node.ask(find, 4).coordinators[0])  # type: ignore[misc]
                begin = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
                made = until_taken(lambda node=node, begin=begin: node.ask(begin, 4))  # type: ignore[misc]
                assert made.producer_epoch == 0
                ids.append(made.producer_id)
            self.producers.append(Producer(name, ids, level))

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min((each.first_offset for each in self.producers if each.first_offset >= 0), default=self.end)

    @property
    def cleanable(self) -> int:
        """Where a pass ends: where the segment begins that has the last stable offset, or else the newest one."""
        return max(base for base in self.bases if base <= self.stable)

    # Steps

    def step(self, transactions: bool = True) -> None:
        """Something, at random."""
        dice = self.random.random()
        if dice < 0.12:
            self.roll()
        elif dice < 0.35 and transactions:
            self.end_one()
        elif dice < 0.45:
            self.produce(None, self.records())
        else:
            some = [each for each in self.producers if transactions or each.name is None]
            self.produce(self.random.choice(some), self.records())

    def end_one(self) -> None:
        """End a transaction, now and then one without a record."""
        transactional = [each for each in self.producers if each.name is not None]
        some = [each for each in transactional if each.is_added]
        if some:
            self.end_transaction(self.random.choice(some), self.random.random() < 0.5)
            return
        earlier = next(each for each in transactional if each.level == 1)
        self._add(earlier)
        self.end_transaction(earlier, self.random.random() < 0.5)

    def end_all(self) -> None:
        for producer in self.producers:
            if producer.is_added:
                self.end_transaction(producer, self.random.random() < 0.5)

    def records(self, keys: Sequence[bytes] = KEYS) -> list[NewRecord]:
        found: list[NewRecord] = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            self.written += 1
            value = None if self.random.random() < 0.2 else b"%d " % self.written * self.random.choice((0, 1, 1, 40))
            named = (("h", b"1"), ("n", None)) if self.random.random() < 0.2 else ()
            at = self.time + self.written * 100 + self.random.randrange(-500, 500)
            found.append((at, self.random.choice(keys), value, named))
        return found

    def roll(self) -> None:
        """Fill a segment of its own, so that one ends before it, and one with it."""
        at, size = self.time + self.written * 100, SEGMENT_BYTES - 1_000
        size += SEGMENT_BYTES - len(encode_batch([(at, FILLER, bytes(size), ())]))
        batch = encode_batch([(at, FILLER, bytes(size), ())])
        assert len(batch) == SEGMENT_BYTES
        if self.end > self.bases[-1]:
            self.bases.append(self.end)
        self._is_full = False
        self._write(None, [batch, batch], 1)
        self._is_full = True

    def produce(self, producer: Producer | None, records: list[NewRecord]) -> None:
        """One batch."""
        compression = self.random.choice(list(Compression))
        if producer is None:
            batch = encode_batch(records, compression=compression)
            self._write(None, [batch, batch], len(records))
            return
        transactional = producer.name is not None
        if transactional and producer.level < 2 and not producer.is_added:
            self._add(producer)
        batches = [
            encode_batch(
                records,
                compression=compression,
                producer_id=ProducerId(producer_id),
                producer_epoch=Epoch(producer.epoch),
                base_sequence=producer.sequence,
                transactional=transactional,
            )
            for producer_id in producer.ids
        ]
        first = self._write(producer, batches, len(records))
        producer.sequence += len(records)
        if transactional:
            producer.is_added = True
            producer.first_offset = first if producer.first_offset < 0 else producer.first_offset

    def end_transaction(self, producer: Producer, commit: bool) -> None:
        """EndTxn, and wait for the marker."""
        version = 5 if producer.level == 2 else 4
        for node, number in zip(self.nodes, range(2), strict=True):
            request = EndTxnRequest(
                transactional_id=producer.name or "",
                producer_id=producer.ids[number],
                producer_epoch=producer.epoch,
                committed=commit,
            )
            answer = until_taken(lambda node=node, request=request: node.ask(request, version))  # type: ignore[misc]
            if version == 5:
                assert (answer.producer_id, answer.producer_epoch) == (producer.ids[number], producer.epoch + 1)
            _until(lambda node=node: _is_complete(node, producer.name))  # type: ignore[misc]
        self._appended(1)
        producer.first_offset, producer.is_added = -1, False
        if version == 5:
            producer.epoch, producer.sequence = producer.epoch + 1, 0

    def _add(self, producer: Producer) -> None:
        for node, number in zip(self.nodes, range(2), strict=True):
            request = AddPartitionsToTxnRequest(
                transactional_id=producer.name or "",
                producer_id=producer.ids[number],
                producer_epoch=producer.epoch,
                topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=[0])],
            )
            until_taken(lambda node=node, request=request: _added(node, request))  # type: ignore[misc]
        producer.is_added = True

    def _write(self, producer: Producer | None, batches: Sequence[bytes], count: int) -> int:
        name = None if producer is None else producer.name
        version = 11 if producer is not None and producer.level == 1 else 12
        for node, batch in zip(self.nodes, batches, strict=True):
            data = [PartitionProduceData(index=0, records=batch)]
            request = ProduceRequest(
                transactional_id=name,
                acks=-1,
                timeout_ms=5_000,
                topic_data=[TopicProduceData(name=self.topic, partition_data=data)],
            )
            answer = until_taken(lambda node=node, request=request: _produced(node, request, version))  # type: ignore[misc]
            assert answer.base_offset == self.end, (self.topic, answer)
        return self._appended(count)

    def _appended(self, count: int) -> int:
        first = self.end
        if self._is_full:
            self.bases.append(first)
            self._is_full = False
        self.end += count
        return first


def find_coordinator(kind: int, name: str) -> FindCoordinatorRequest:
    """`kind`: 0 for a group, 1 for a transactional id."""
    return FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])


def _produced(node: Leader, request: ProduceRequest, version: int) -> Any:
    return node.ask(request, version).responses[0].partition_responses[0]


def _added(node: Leader, request: AddPartitionsToTxnRequest) -> Any:
    return node.ask(request, 3).results_by_topic[0].results_by_partition[0]


def _is_complete(node: Leader, name: str | None) -> bool:
    found = node.ask(DescribeTransactionsRequest(transactional_ids=[name or ""]), 0).transaction_states[0]
    return bool(found.transaction_state.startswith("Complete"))


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end, "that takes too long"
        time.sleep(0.002)


def until_taken(ask: Callable[[], Any]) -> Any:
    """Ask until the answer has no error that says to ask again."""
    end = time.monotonic() + _PATIENCE
    while True:
        answer = ask()
        code = getattr(answer, "error_code", None)
        if code is None:
            code = answer.partition_error_code
        if code not in _AGAIN or time.monotonic() > end:
            assert code == ErrorCode.NONE, answer
            return answer
        time.sleep(0.005)
