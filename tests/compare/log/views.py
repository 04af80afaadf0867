"""What is left of a log, as its readers see it, in a form that two nodes can share.

Producer ids become numbers, times of the node's own clock "now", and a delete horizon "horizon".  Of a batch the size
and the base timestamp are left out: the one depends on the library that compresses, the other only says what the times
of the records are counted from.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tests.compare.nodes.comparison import Plain
from tests.compare.nodes.leader import Leader

from fencepost.protocol.batch import DELETE_HORIZON, BatchHeader, crc_matches, headers
from fencepost.protocol.control import read_control_record
from fencepost.protocol.messages import DescribeProducersRequest, FetchRequest, ListOffsetsRequest
from fencepost.protocol.messages.describe_producers import TopicRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.records import decode_batch

_BYTES = 1 << 26
_YOUNG_MS = 1_200_000


def view(node: Leader, topic: str, ids: Sequence[int], retention_ms: int, times: Sequence[int]) -> dict[str, Plain]:
    """Everything of partition 0.  `ids`: the producer ids; `times`: what offsets are looked for."""
    start, end = (_offset(node, topic, which, 0)[0] for which in (-2, -1))
    reader = _Reader(node, topic, ids, retention_ms)
    return {
        "ends": (start, end, _offset(node, topic, -1, 1)[0]),
        "batches": reader.batches(start, end),
        "from the middle": [reader.first(offset) for offset in range(start, end, max((end - start) // 8, 1))],
        "aborted": [reader.aborted(offset) for offset in range(start, end, max((end - start) // 8, 1))],
        "committed": reader.committed(start),
        "times": [_offset(node, topic, at, 0) for at in (*times, -3)],
        "producers": _producers(node, topic, ids),
    }


def _offset(node: Leader, topic: str, timestamp: int, isolation: int) -> tuple[int, Plain]:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[asked])
    found = node.ask(request, 8).topics[0].partitions[0]
    assert not found.error_code, found
    return found.offset, told(found.timestamp)


def _producers(node: Leader, topic: str, ids: Sequence[int]) -> Plain:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    found = node.ask(request, 0).topics[0].partitions[0]
    assert not found.error_code, found
    return sorted(
        (
            ids.index(each.producer_id),
            each.producer_epoch,
            each.last_sequence,
            each.coordinator_epoch >= 0,
            each.current_txn_start_offset,
            told(each.last_timestamp),
        )
        for each in found.active_producers
    )


def told(timestamp: Plain) -> Plain:
    """A time, if it is not about now."""
    return "now" if abs(time.time() * 1000 - milliseconds(timestamp)) < _YOUNG_MS else timestamp


def milliseconds(timestamp: Plain) -> float:
    """The opposite of `told`, about."""
    return time.time() * 1000 if timestamp == "now" else float(timestamp)


class _Reader:
    def __init__(self, node: Leader, topic: str, ids: Sequence[int], retention_ms: int) -> None:
        self._node = node
        self._topic = topic
        self._ids = ids
        self._retention_ms = retention_ms

    def _fetch(self, offset: int, isolation: int, size: int = _BYTES) -> Any:
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size)
        topics = [FetchTopic(topic=self._topic, partitions=[asked])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=isolation, topics=topics)
        found = self._node.ask(request, 12).responses[0].partitions[0]
        assert not found.error_code, found
        return found

    def batches(self, offset: int, end: int) -> list[Plain]:
        """All of the log, read_uncommitted."""
        found: list[Plain] = []
        while offset < end:
            records = self._fetch(offset, 0).records or b""
            read = [(at, header) for at, header in headers(records) if header.last_offset >= offset]
            if not read:
                break
            found += [self._batch(records, at, header) for at, header in read]
            offset = read[-1][1].last_offset + 1
        return found

    def first(self, offset: int) -> Plain:
        """The first batch that a reader gets who begins there."""
        records = self._fetch(offset, 0, 1).records or b""
        return next(((header.base_offset, header.last_offset) for _, header in headers(records)), None)

    def aborted(self, offset: int) -> list[tuple[int, int]]:
        """The aborted transactions among what is read from there on."""
        found = self._fetch(offset, 1)
        last = max((header.last_offset for _, header in headers(found.records or b"")), default=-1)
        told = ((self._ids.index(each.producer_id), each.first_offset) for each in found.aborted_transactions or [])
        return sorted(each for each in told if each[1] <= last)

    def committed(self, offset: int) -> list[Plain]:
        """What a read_committed consumer is handed."""
        handed: list[Plain] = []
        while True:
            found = self._fetch(offset, 1)
            records = found.records or b""
            aborted = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or [])
            dropping: set[int] = set()
            before = offset
            for at, header in headers(records):
                if header.last_offset < offset:
                    continue
                while aborted and aborted[0][0] <= header.last_offset:
                    dropping.add(aborted.pop(0)[1])
                if header.is_control:
                    record = read_control_record(records, at, header)
                    if record is not None and record.type == 0:
                        dropping.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in dropping):
                    handed += [
                        (record.offset, record.key, (record.value or b"")[:8])
                        for record in decode_batch(records, at, header)
                        if record.offset >= offset
                    ]
                offset = header.last_offset + 1
            if offset == before:
                return handed

    def _batch(self, records: Any, at: int, header: BatchHeader) -> Plain:
        assert crc_matches(records, at, header), (self._topic, header)
        return {
            "offsets": (header.base_offset, header.last_offset),
            "attributes": header.attributes,
            "largest time": told(header.max_timestamp),
            "producer": (
                self._ids.index(header.producer_id) if header.producer_id >= 0 else -1,
                header.producer_epoch,
                header.base_sequence,
            ),
            "horizon": self._horizon(header),
            "records": self._records(records, at, header),
        }

    def _horizon(self, header: BatchHeader) -> Plain:
        if not header.attributes & DELETE_HORIZON:
            return header.base_timestamp if not header.record_count else None
        assert abs(header.base_timestamp - self._retention_ms - time.time() * 1000) < _YOUNG_MS, header
        return "horizon"

    def _records(self, records: Any, at: int, header: BatchHeader) -> Plain:
        if header.is_control:
            found = read_control_record(records, at, header)
            if found is None:
                return []
            return [(header.base_offset, told(header.max_timestamp), found.type, found.coordinator_epoch is not None)]
        return [
            (record.offset, record.timestamp, record.key, (record.value or b"-")[:8], list(record.headers))
            if record.value is not None
            else (record.offset, record.timestamp, record.key, None, list(record.headers))
            for record in decode_batch(records, at, header)
        ]
