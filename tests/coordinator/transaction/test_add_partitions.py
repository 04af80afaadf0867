"""Adding and verifying partitions: every cell of facts §3.3 and §3.4, written out here a second time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from tests.coordinator.transaction.transaction_doubles import (
    EVERY_PENDING,
    START,
    STORED_STATES,
    A,
    B,
    C,
    World,
    pair_of,
    transaction,
)

from fencepost.coordinator.transaction.add_partitions import AddPartitions, add_partitions
from fencepost.coordinator.transaction.decision import Refusal, Transition, Unchanged
from fencepost.coordinator.transaction.state import State
from fencepost.coordinator.transaction.verify import verify
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, Milliseconds, ProducerId, ProducerIdAndEpoch, TopicPartition

#: state, then: add partitions that are in (a-0, b-0), add one that is not (a-1), add none, verify a-0, verify a-1
TABLE = """
EMPTY           begin begin begin 120 120
ONGOING         0     union 0     0   120
PREPARE_COMMIT  51    51    51    51  51
PREPARE_ABORT   51    51    51    51  51
COMPLETE_COMMIT begin begin begin 120 120
COMPLETE_ABORT  begin begin begin 120 120
"""


def ask(producer_id: int, epoch: int, partitions: Sequence[TopicPartition], version: int = 2) -> AddPartitions:
    return AddPartitions(ProducerId(producer_id), Epoch(epoch), partitions, version)


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_every_cell_of_the_current_pair(line: str, version: int, level: int) -> None:
    name, *answers = line.split()
    state = State[name]
    before = transaction(state, client_transaction_version=0)
    for partitions, expected in zip(([A, C], [A, B], []), answers[:3], strict=True):
        decision = add_partitions(before, ask(10, 7, partitions, version), START, level)
        if expected == "51":
            assert decision == Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif expected == "0":
            assert decision == Unchanged(ProducerId(10), Epoch(7))
        elif version == 2 and level == 0:
            assert decision == Refusal(ErrorCode.UNSUPPORTED_VERSION)
        else:
            assert isinstance(decision, Transition)
            assert decision.error == ErrorCode.NONE
            to = decision.to
            assert (to.state, to.pending, to.producer_id, to.producer_epoch) == (State.ONGOING, None, 10, 7)
            assert list(to.partitions) == ([A, C, B] if expected == "union" else partitions)
            assert to.start_timestamp == (before.start_timestamp if expected == "union" else START)
            assert (to.last_update_timestamp, to.timeout_ms, to.instance_epoch) == (START, 60_000, 4)
            assert to.client_transaction_version == version
    for partition, expected in zip((A, B), answers[3:], strict=True):
        assert verify(before, ProducerId(10), Epoch(7), [partition]) == {partition: int(expected)}


@pytest.mark.parametrize("state", STORED_STATES)
def test_other_pairs_are_refused_in_every_state(state: State) -> None:
    before = transaction(state, previous_producer_id=9)
    for producer_id, epoch in product((-1, 9, 10, 11), (-1, 4, 6, 7, 8, 32766)):
        if (producer_id, epoch) == (10, 7):
            continue
        expected = ErrorCode.PRODUCER_FENCED if producer_id == 10 else ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert add_partitions(before, ask(producer_id, epoch, [A]), START, 2) == Refusal(expected)
        assert verify(before, ProducerId(producer_id), Epoch(epoch), [A, B]) == {A: expected, B: expected}


@pytest.mark.parametrize("pending", EVERY_PENDING[1:])
def test_what_is_pending_comes_first_but_does_not_matter_to_verification(pending: State) -> None:
    """KAFKA-18660, KAFKA-14904."""
    for state, producer_id, epoch in product(STORED_STATES, (10, 11), (6, 7, 8)):
        before = transaction(state, pending=pending)
        decision = add_partitions(before, ask(producer_id, epoch, [A]), START, 2)
        assert decision == Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
        answers = (verify(each, ProducerId(producer_id), Epoch(epoch), [A]) for each in (before, transaction(state)))
        assert len({tuple(answer.items()) for answer in answers}) == 1


def test_no_topics_make_the_id_ongoing_and_the_time_out_aborts_it() -> None:
    world = World()
    pair = pair_of(world.init(timeout_ms=Milliseconds(1000)))
    assert world.coordinator.add_partitions("t", *ProducerIdAndEpoch.of(*pair), [], 0).error == ErrorCode.NONE
    assert world.state() == "Ongoing"
    world.tick(world.clock.advance(1001))
    assert world.state() == "CompleteAbort"
    assert world.markers.written == []


@pytest.mark.parametrize("fail_over", [False, True])
def test_a_partition_added_twice_is_marked_once(fail_over: bool) -> None:
    world = World()
    pair = pair_of(world.init())
    for partition in (A, A, B, A):
        assert world.add(pair, partition, partition) == ErrorCode.NONE
    if fail_over:
        world.fail_over()
    world.end(pair)
    assert [partition for _, partition in world.markers.written] == [A, B]
