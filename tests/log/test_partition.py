"""What a partition takes, refuses and removes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from crc32c import crc32c
from tests.log.log_doubles import (
    START,
    Node,
    append,
    append_transactional,
    batch,
    bytes_of,
    end,
    error_of,
    marker,
    run,
)

from fencepost.log.partition import Appended, Refused
from fencepost.log.producer_state import Origin, VerificationGuard
from fencepost.protocol.batch import LOG_APPEND_TIME, crc_matches, read_header
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, Isolation, LeaderEpoch, Milliseconds, Offset, ProducerId
from fencepost.simulation.disk import SimulatedDisk


def with_header(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


MALFORMED: list[tuple[Callable[[], bytes], ErrorCode]] = [
    (lambda: b"", ErrorCode.INVALID_RECORD),
    (lambda: batch()[:40], ErrorCode.INVALID_RECORD),
    (lambda: batch() + batch(), ErrorCode.INVALID_RECORD),
    (lambda: with_header(batch(), 16, b"\x01"), ErrorCode.INVALID_RECORD),  # magic 1
    (lambda: batch()[:-1] + b"\x55", ErrorCode.CORRUPT_MESSAGE),
    (lambda: with_header(batch(), 0, bytes(7) + b"\x05"), ErrorCode.INVALID_RECORD),  # base offset 5
    (lambda: batch(size=2000), ErrorCode.MESSAGE_TOO_LARGE),
    (lambda: batch(producer=(7, 0, -1)), ErrorCode.INVALID_RECORD),
    (lambda: batch(producer=(7, -2, 0)), ErrorCode.INVALID_PRODUCER_EPOCH),
    (lambda: batch(transactional=True), ErrorCode.INVALID_RECORD),
    (lambda: marker(7, 0, True), ErrorCode.INVALID_RECORD),
]


@pytest.mark.parametrize(("make", "expected"), MALFORMED)
def test_a_malformed_batch_is_refused(make: Callable[[], bytes], expected: ErrorCode) -> None:
    async def main() -> None:
        partition = Node(max_message_bytes=1000).partition
        assert error_of(partition.append(make(), Origin.CLIENT, START)) == expected
        assert (partition.log_end_offset, bytes_of(partition)) == (0, [])

    run(main())


@pytest.mark.parametrize("size", [0, 70_000])  # into the commit log, and into the segment alone
@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
def test_a_batch_is_taken_before_its_buffer_is_used_again(size: int, timestamps: str) -> None:
    async def main() -> None:
        node, other = (Node(message_timestamp_type=timestamps) for _ in range(2))
        given = [batch(count, size=size, tag=str(count)) for count in (1, 2, 3)]
        buffer = bytearray(max(map(len, given)))
        for data in given:
            view = memoryview(buffer)[: len(data)]
            view[:] = data
            append(node.partition, view)
            buffer[:] = bytes(len(buffer))
            append(other.partition, data)
        append(node.partition, memoryview(given[0]))
        append(other.partition, given[0])
        stored = bytes_of(other.partition)
        assert bytes_of(node.partition) == stored
        await node.storage.durability.wait(node.storage.lsn)
        node.lose_power()
        assert bytes_of(node.partition) == stored

    run(main())


def test_a_batch_fits_into_a_segment() -> None:
    """Whoever sends it, and whatever its sequence is: comparison with Apache Kafka 4.3.1."""

    async def main() -> None:
        fits = batch(size=1000, producer=(7, 0, 0))
        partition = Node(segment_bytes=len(fits)).partition
        for sequence in (0, 5):
            larger = batch(size=1001, producer=(7, 0, sequence))
            assert error_of(partition.append(larger, Origin.CLIENT, START)) == ErrorCode.RECORD_LIST_TOO_LARGE
        from_coordinator = partition.append(batch(size=2000), Origin.COORDINATOR, START)
        assert error_of(from_coordinator) == ErrorCode.RECORD_LIST_TOO_LARGE
        append(partition, fits)
        assert [len(data) for data in bytes_of(partition)] == [len(fits)]

    run(main())


def of_attributes(data: bytes, attributes: int) -> bytes:
    changed = bytearray(data)
    changed[22] = attributes
    return bytes(changed[:17]) + crc32c(changed[21:]).to_bytes(4, "big") + bytes(changed[21:])


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_nobody_knows_is_named_once_the_checksum_is_right(codec: int) -> None:
    async def main() -> None:
        partition = Node().partition
        wrong = of_attributes(batch(2, producer=(7, 0, -1)), codec)
        assert error_of(partition.append(wrong, Origin.CLIENT, START)) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert error_of(partition.append(wrong[:-1] + b"\x55", Origin.CLIENT, START)) == ErrorCode.CORRUPT_MESSAGE

    run(main())


def test_an_idempotent_producer_may_have_no_epoch_until_it_has_one() -> None:
    """Apache Kafka takes epoch -1 for that of a producer that it does not know."""

    async def main() -> None:
        partition = Node().partition
        for sequence in (4, 9):
            append(partition, batch(producer=(7, -1, sequence)))
        assert append(partition, batch(producer=(7, -1, 4))).duplicate
        append(partition, batch(producer=(7, 0, 5)))
        for epoch in (-1, -2):
            refused = partition.append(batch(producer=(7, epoch, 6)), Origin.CLIENT, START)
            assert error_of(refused) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert [(one.producer_epoch, one.last_sequence) for one in partition.active_producers()] == [(0, 5)]

    run(main())


def test_a_transaction_without_an_epoch_is_not_opened_where_nothing_is_verified() -> None:
    async def main() -> None:
        partition = Node(verification_enabled=False).partition
        for epoch, error in ((-1, ErrorCode.INVALID_RECORD), (-2, ErrorCode.INVALID_PRODUCER_EPOCH)):
            refused = partition.append(batch(producer=(7, epoch, 0), transactional=True), Origin.CLIENT, START)
            assert error_of(refused) == error
        append(partition, batch(producer=(7, 0, 0), transactional=True))
        refused = partition.append(batch(producer=(7, -1, 0), transactional=True), Origin.CLIENT, START)
        assert error_of(refused) == ErrorCode.INVALID_PRODUCER_EPOCH

    run(main())


@pytest.mark.parametrize(
    ("producer_id", "epoch", "error"),
    [
        (-2, 0, ErrorCode.NONE),
        (-2, -2, ErrorCode.NONE),
        (-2, -1, ErrorCode.UNKNOWN_SERVER_ERROR),
        (-1, 0, ErrorCode.UNKNOWN_SERVER_ERROR),
        (7, -1, ErrorCode.UNKNOWN_SERVER_ERROR),
        (7, -2, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_marker_of_a_producer_id_below_minus_1_is_written_and_means_nothing(
    producer_id: int, epoch: int, error: ErrorCode
) -> None:
    async def main() -> None:
        partition = Node().partition
        outcome = partition.append(
            marker(producer_id, epoch, True), Origin.COORDINATOR, START, marker_transaction_version=0
        )
        assert error_of(outcome) == error
        assert (partition.log_end_offset, list(partition.active_producers())) == (1 if error == 0 else 0, [])

    run(main())


@pytest.mark.parametrize(
    ("settings", "timestamp", "error"),
    [
        ({"message_timestamp_type": "LogAppendTime"}, 1000, ErrorCode.INVALID_TIMESTAMP),
        ({}, 1000, ErrorCode.NONE),
        ({}, -1, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_a_producer_does_not_say_when_its_records_are_appended(
    settings: dict[str, Any], timestamp: int, error: ErrorCode
) -> None:
    async def main() -> None:
        partition = Node(**settings).partition
        sent = with_header(batch(2, timestamp=timestamp), 35, timestamp.to_bytes(8, "big", signed=True))
        outcome = partition.append(of_attributes(sent, LOG_APPEND_TIME), Origin.CLIENT, START)
        assert error_of(outcome) == error
        if isinstance(outcome, Refused):
            assert [number for number, _ in outcome.record_errors] == [0, 1]

    run(main())


def test_a_batch_is_stamped_and_readable_once_it_is_durable() -> None:
    async def main() -> None:
        node = Node()
        partition = node.partition
        append(partition, batch(3))
        appended = append(partition, batch(2))
        assert (appended.base_offset, appended.last_offset) == (3, 4)
        assert (partition.log_end_offset, partition.high_watermark) == (5, 0)
        woken: list[int] = []

        def note() -> None:
            woken.append(partition.high_watermark)

        partition.when_readable(note)
        cancel = partition.when_readable(note)
        cancel()
        assert node.storage.durability.lsn < appended.lsn
        await node.storage.durability.wait(appended.lsn)
        assert woken == [5]
        header = read_header(bytes_of(partition)[1])
        assert (header.base_offset, header.partition_leader_epoch) == (3, 0)

    run(main())


def test_log_append_time() -> None:
    async def main() -> None:
        node = Node(message_timestamp_type="LogAppendTime")
        appended = append(node.partition, batch(timestamp=5))
        assert appended.log_append_time == node.clock.at
        data = bytes_of(node.partition)[0]
        header = read_header(data)
        assert header.max_timestamp == node.clock.at and header.is_log_append_time and crc_matches(data, 0, header)

    run(main())


def test_a_duplicate_gets_the_first_answer_also_after_crashes() -> None:
    async def main() -> None:
        node = Node(partitions=[("t", 0)])
        for sequence in range(6):
            append(node.partition, batch(producer=(7, 0, sequence)))
        for restart in (node.storage.partitions, node.restart, node.kill, node.lose_power):
            await node.settled()
            restart()
            again = append(node.partition, batch(producer=(7, 0, 1)))
            assert (again.base_offset, again.duplicate) == (1, True)
            old = node.partition.append(batch(producer=(7, 0, 0)), Origin.CLIENT, START)
            assert error_of(old) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert node.partition.log_end_offset == 6

    run(main())


def test_a_transaction_needs_its_guard() -> None:
    async def main() -> None:
        partition = Node().partition
        data = batch(producer=(7, 0, 0), transactional=True)
        assert error_of(partition.append(data, Origin.CLIENT, START)) == ErrorCode.INVALID_TXN_STATE
        guard = partition.start_verification(ProducerId(7), Epoch(0), 0, False, START)
        assert isinstance(guard, VerificationGuard)
        unguarded = partition.append(data, Origin.CLIENT, START, guard=VerificationGuard())
        assert error_of(unguarded) == ErrorCode.INVALID_TXN_STATE
        append(partition, data, guard=guard)
        again = partition.start_verification(ProducerId(7), Epoch(0), 1, False, START)
        assert again is None, "its transaction is open here"
        append(partition, batch(producer=(7, 0, 1), transactional=True))
        plain = batch(producer=(7, 0, 2))
        assert error_of(partition.append(plain, Origin.CLIENT, START)) == ErrorCode.INVALID_TXN_STATE
        end(partition, 7, 0, True)
        stale = partition.append(batch(producer=(7, 0, 2), transactional=True), Origin.CLIENT, START, guard=guard)
        assert error_of(stale) == ErrorCode.INVALID_TXN_STATE

    run(main())


@pytest.mark.promise("890.guard")
def test_a_guard_does_not_outlive_the_marker() -> None:
    """Verified for one transaction, appended in the next (ABA, facts §6.6)."""

    async def main() -> None:
        partition = Node().partition
        guard = partition.start_verification(ProducerId(7), Epoch(0), 0, False, START)
        assert isinstance(guard, VerificationGuard)
        end(partition, 7, 0, False)
        data = batch(producer=(7, 0, 0), transactional=True)
        assert error_of(partition.append(data, Origin.CLIENT, START, guard=guard)) == ErrorCode.INVALID_TXN_STATE

    run(main())


def test_markers_follow_their_rules() -> None:
    async def main() -> None:
        partition = Node().partition
        append_transactional(partition, (7, 3, 0))

        def answer(epoch: int, coordinator_epoch: LeaderEpoch, version: int) -> ErrorCode:
            data = marker(7, epoch, True, coordinator_epoch)
            outcome = partition.append(data, Origin.COORDINATOR, START, marker_transaction_version=version)
            return error_of(outcome)

        assert answer(2, LeaderEpoch(5), 0) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert answer(3, LeaderEpoch(5), 2) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert answer(4, LeaderEpoch(5), 2) == ErrorCode.NONE
        assert answer(4, LeaderEpoch(5), 2) == ErrorCode.NONE, "a marker may be repeated"
        assert answer(5, LeaderEpoch(4), 2) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert partition.producers.open_transactions() == []
        for producer_id, epoch in ((-1, 0), (7, -1)):
            data = marker(producer_id, epoch, True)
            assert error_of(partition.append(data, Origin.COORDINATOR, START)) == ErrorCode.UNKNOWN_SERVER_ERROR
        refused = partition.append(batch(producer=(7, 3, 0)), Origin.CLIENT, START)
        assert isinstance(refused, Refused)
        assert refused.error == ErrorCode.INVALID_PRODUCER_EPOCH
        assert refused.message is not None and "producer_id=7 epoch=3" in refused.message

    run(main())


def test_the_log_rolls_by_size_and_age() -> None:
    async def main() -> None:
        node = Node(segment_bytes=200, segment_ms=1000)
        for _ in range(3):
            append(node.partition, batch())
        assert node.partition.segments.bases == [0, 2]
        node.clock.at += 1000
        append(node.partition, batch())
        assert node.partition.segments.bases == [0, 2, 3]

    run(main())


def test_delete_records_moves_the_start_for_good_and_keeps_the_producers() -> None:
    async def main() -> None:
        node = Node(segment_bytes=100)
        for sequence in range(5):
            append(node.partition, batch(producer=(7, 0, sequence)))
        assert error_of_lsn(node.partition.delete_records(Offset(1))) == ErrorCode.OFFSET_OUT_OF_RANGE, (
            "nothing is durable yet"
        )
        await node.settled()
        lsn = node.partition.delete_records(Offset(3))
        assert isinstance(lsn, int)
        await node.storage.durability.wait(lsn)
        for restart in (node.lose_power, node.restart, node.lose_power):
            restart()
            await node.settled()
            assert node.partition.log_start_offset == 3
            assert isinstance(node.partition.read(Offset(2), 100, Isolation.READ_UNCOMMITTED), Refused)
            assert append(node.partition, batch(producer=(7, 0, 1))).duplicate
        assert node.partition.segments.bases[0] == 3, "the files go with a checkpoint"
        assert isinstance(node.partition.delete_records(Offset(-1)), int)
        assert node.partition.log_start_offset == 5

    def error_of_lsn(outcome: int | Refused) -> ErrorCode:
        return outcome.error if isinstance(outcome, Refused) else ErrorCode.NONE

    run(main())


@pytest.mark.parametrize(
    ("settings", "first"),
    [({"retention_ms": 100}, 3), ({"retention_bytes": 160}, 2), ({"retention_ms": -1}, 0), ({}, 0)],
)
def test_retention(settings: dict[str, Any], first: int) -> None:
    async def main() -> None:
        node = Node(**{"segment_bytes": 100, "retention_ms": 10_000_000, **settings})
        for number in range(5):
            append(node.partition, batch(timestamp=node.clock.at + 50 * number))
        await node.settled()
        node.restart()  # A checkpoint: only then files go.
        node.partition.retain(Milliseconds(node.clock.at + 250 - 1))
        await node.settled()
        assert node.partition.log_start_offset == first
        assert node.partition.segments.bases[0] == first

    run(main())


def test_retention_keeps_open_transactions() -> None:
    async def main() -> None:
        node = Node(segment_bytes=100, retention_ms=0)
        append(node.partition, batch())
        append_transactional(node.partition, (7, 0, 0))
        append(node.partition, batch())
        await node.settled()
        node.partition.retain(Milliseconds(node.clock.at + 10**9))
        assert node.partition.log_start_offset == 1

    run(main())


def test_a_full_disk_refuses_and_goes_on() -> None:
    async def main() -> None:
        disk = SimulatedDisk(Random(1))
        node = Node(disk)
        append(node.partition, batch())
        disk.capacity = disk.used() + 100
        outcome = node.partition.append(batch(size=1000), Origin.CLIENT, START)
        assert error_of(outcome) == ErrorCode.KAFKA_STORAGE_ERROR
        assert node.partition.log_end_offset == 1
        disk.capacity = None
        assert isinstance(node.partition.append(batch(size=1000), Origin.CLIENT, START), Appended)
        await node.settled()
        kept = bytes_of(node.partition)
        node.lose_power()
        assert bytes_of(node.partition) == kept

    run(main())


def test_leader_epochs_are_remembered() -> None:
    async def main() -> None:
        node = Node()
        append(node.partition, batch(4))
        assert node.partition.end_offset_for_epoch(LeaderEpoch(0)) == (0, 4)
        assert node.partition.end_offset_for_epoch(LeaderEpoch(3)) == (-1, -1)
        assert node.partition.end_offset_for_epoch(LeaderEpoch(-1)) == (-1, -1)
        assert node.partition.end_offset_for_epoch(LeaderEpoch(-2)) == (-2, 0)

    run(main())
