"""Bugs and oddities of other logs (facts §13.3, §13.7), each under its number.

facts §13.7, 10 (nothing bounds the memory of producers but their expiry) is as in Apache Kafka.
"""

from __future__ import annotations

import pytest
from tests.log.log_doubles import START, Node, append, append_transactional, batch, end, error_of, marker, run

from fencepost.log.producer_state import Origin, VerificationGuard
from fencepost.log.upkeep import upkeep
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, Milliseconds, Offset, ProducerId
from fencepost.runtime import at_once

DAY = 24 * 3600 * 1000


def test_kafka_14884_a_guard_of_the_transaction_before_does_not_let_a_write_in() -> None:
    """Verified, then aborted, then the next transaction is verified: the first write is late all the same."""

    async def main() -> None:
        node = Node()
        partition = node.partition
        late = partition.start_verification(ProducerId(7), Epoch(0), 0, False, START)
        end(partition, 7, 0, False)
        current = partition.start_verification(ProducerId(7), Epoch(0), 0, False, START)
        assert isinstance(late, VerificationGuard) and isinstance(current, VerificationGuard)
        write = batch(producer=(7, 0, 0), transactional=True)
        refused = partition.append(write, Origin.CLIENT, START, guard=late)
        assert error_of(refused) == ErrorCode.INVALID_TXN_STATE
        assert partition.log_end_offset == 1 and partition.producers.open_transactions() == []
        append(partition, write, guard=current)
        assert partition.producers.open_transactions() == [(7, 1)]

    run(main())


def test_kafka_19999_a_marker_that_is_repeated_is_taken() -> None:
    """As long as nothing of the next transaction is open: of that it would be the end."""

    async def main() -> None:
        partition = Node().partition
        append_transactional(partition, (7, 0, 0), bump=True)
        for _ in range(3):
            end(partition, 7, 1, True, marker_transaction_version=2)
        append_transactional(partition, (7, 1, 0), bump=True)
        late = partition.append(marker(7, 1, True), Origin.COORDINATOR, START, marker_transaction_version=2)
        assert error_of(late) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert partition.producers.open_transactions() == [(7, 4)]
        end(partition, 7, 2, True, marker_transaction_version=2)
        assert partition.producers.open_transactions() == []

    run(main())


@pytest.mark.parametrize(("version", "told"), [(0, 0), (1, 0), (2, ErrorCode.INVALID_PRODUCER_EPOCH)])
def test_kafka_19446_the_version_of_the_marker_says_whether_it_needs_a_larger_epoch(version: int, told: int) -> None:
    async def main() -> None:
        partition = Node().partition
        append_transactional(partition, (7, 0, 0))
        outcome = partition.append(marker(7, 0, True), Origin.COORDINATOR, START, marker_transaction_version=version)
        assert error_of(outcome) == told
        assert len(partition.producers.open_transactions()) == int(told != 0)

    run(main())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_kafka_20090_what_is_open_at_epoch_32767_can_be_ended(version: int) -> None:
    """There is no larger epoch that a marker could have."""

    async def main() -> None:
        partition = Node().partition
        append_transactional(partition, (7, 32767, 0))
        end(partition, 7, 32767, False, marker_transaction_version=version)
        assert partition.producers.open_transactions() == []

    run(main())


@pytest.mark.parametrize("how", ["kill", "lose_power", "restart"])
def test_facts_13_7_11_all_five_batches_are_remembered_after_a_restart(how: str) -> None:
    async def main() -> None:
        node = Node()
        written = [batch(2, producer=(7, 0, 2 * number), tag=f"{number}") for number in range(8)]
        first = [append(node.partition, each) for each in written]
        await node.settled()
        getattr(node, how)()
        again = [node.partition.append(each, Origin.CLIENT, START) for each in written]
        assert [error_of(each) for each in again[:3]] == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 3
        for original, repeated in zip(first[3:], again[3:], strict=True):
            assert error_of(repeated) == ErrorCode.NONE
            assert getattr(repeated, "duplicate", False)
            assert getattr(repeated, "base_offset", -1) == original.base_offset
        assert node.partition.log_end_offset == 16

    run(main())


@pytest.mark.parametrize("timestamp", [0, 1, START - 30 * DAY])
def test_facts_13_7_9_old_timestamps_of_a_client_do_not_make_it_forgotten(timestamp: int) -> None:
    async def main() -> None:
        node = Node()
        append(node.partition, batch(producer=(7, 0, 0), timestamp=timestamp))
        for _ in range(3):
            node.clock.at += node.settings.producer_id_expiration_ms // 4
            at_once(upkeep(node.storage, Milliseconds(node.clock.at)))
            await node.settled()
            node.restart()
            assert 7 in node.partition.producers.entries
        node.clock.at += node.settings.producer_id_expiration_ms // 4
        at_once(upkeep(node.storage, Milliseconds(node.clock.at)))
        assert 7 not in node.partition.producers.entries

    run(main())


# Producer state outlives its records (facts §6.11)


@pytest.mark.parametrize("how", ["kill", "lose_power", "restart"])
@pytest.mark.parametrize("removal", ["retention", "delete_records"])
def test_removing_records_does_not_remove_their_producers(removal: str, how: str) -> None:
    async def main() -> None:
        node = Node(segment_bytes=150, retention_ms=1000)
        for sequence in range(7):
            append(node.partition, batch(producer=(7, 3, sequence)))
        append_transactional(node.partition, (8, 0, 0))
        end(node.partition, 8, 0, True)
        append(node.partition, batch(tag="last"))
        await node.settled()
        if removal == "retention":
            node.clock.at += 5000
            append(node.partition, batch(tag="new", timestamp=node.clock.at))
            at_once(upkeep(node.storage, Milliseconds(node.clock.at)))
        else:
            assert isinstance(node.partition.delete_records(Offset(9)), int)
        await node.settled()
        getattr(node, how)()
        partition = node.partition
        assert partition.log_start_offset >= 9, "all records of the producers are gone"
        assert partition.producers.epoch_of(ProducerId(7)) == 3 and partition.producers.epoch_of(ProducerId(8)) == 0
        size = partition.log_end_offset
        for sequence in range(2, 7):
            told = partition.append(batch(producer=(7, 3, sequence)), Origin.CLIENT, START)
            assert getattr(told, "duplicate", False) and getattr(told, "base_offset", -1) == sequence
        assert partition.log_end_offset == size
        assert (
            error_of(partition.append(batch(producer=(7, 2, 0)), Origin.CLIENT, START))
            == ErrorCode.INVALID_PRODUCER_EPOCH
        )
        append(partition, batch(producer=(7, 3, 7)))

    run(main())


@pytest.mark.parametrize("how", ["kill", "lose_power", "restart"])
def test_expiry_removes_producers_but_never_one_whose_transaction_is_open(how: str) -> None:
    async def main() -> None:
        node = Node()
        append(node.partition, batch(producer=(7, 3, 0)))
        append_transactional(node.partition, (8, 0, 0))
        await node.settled()
        node.clock.at += node.settings.producer_id_expiration_ms * 3
        getattr(node, how)()
        at_once(upkeep(node.storage, Milliseconds(node.clock.at + node.settings.producer_id_expiration_ms)))
        assert sorted(node.partition.producers.entries) == [8]
        assert node.partition.producers.open_transactions() == [(8, 1)]
        end(node.partition, 8, 1, True)
        node.clock.at += node.settings.producer_id_expiration_ms * 3
        at_once(upkeep(node.storage, Milliseconds(node.clock.at)))
        assert node.partition.producers.entries == {}

    run(main())


@pytest.mark.parametrize("how", ["kill", "lose_power", "restart"])
def test_a_transaction_stays_open_when_its_records_are_deleted(how: str) -> None:
    """DeleteRecords may pass what is not committed; the transaction has no data here then, and is open all the same."""

    async def main() -> None:
        node = Node(segment_bytes=150)
        append_transactional(node.partition, (8, 0, 0))
        for number in range(4):
            append(node.partition, batch(tag=f"{number}"))
        await node.settled()
        assert isinstance(node.partition.delete_records(Offset(4)), int)
        await node.settled()
        for _ in range(2):
            getattr(node, how)()
            await node.settled()
            partition = node.partition
            assert (partition.log_start_offset, partition.producers.open_transactions()) == (4, [(8, 0)])
            assert partition.last_stable_offset == 4, "not before the start of the log"
            at_once(upkeep(node.storage, Milliseconds(node.clock.at + 2 * node.settings.producer_id_expiration_ms)))
            assert list(partition.producers.entries) == [8]
        append_transactional(node.partition, (8, 0, 1))
        end(node.partition, 8, 1, True)
        await node.settled()
        assert node.partition.last_stable_offset == node.partition.high_watermark == 7

    run(main())
