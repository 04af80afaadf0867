"""InitProducerId: every cell of facts §2.3 and of KIP-360's four cases, written out here a second time.

Where Apache Kafka answers otherwise the row carries a number in brackets and its answer; the list of deliberate
differences says why.
"""

from __future__ import annotations

from itertools import product

import pytest
from tests.coordinator.transaction.transaction_doubles import (
    EVERY_PENDING,
    START,
    STORED_STATES,
    A,
    World,
    pair_of,
    transaction,
)

from fencepost.coordinator.transaction.decision import NEEDS_PRODUCER_ID, Refusal, Transition, Unchanged
from fencepost.coordinator.transaction.initialize import LONGEST_ID, Initialize, check, initialize
from fencepost.coordinator.transaction.settings import TransactionSettings
from fencepost.coordinator.transaction.state import State
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import NO_PRODUCER, Epoch, Milliseconds, ProducerId, ProducerIdAndEpoch

#: The current pair is (10, 7), the instance began at 4, the previous producer id is 9.
#:
#: bump: (10, 8), same instance; new: (10, 8), new instance; same: (10, 7) again, and the state becomes EMPTY;
#: tell: (10, 7) again, nothing changes; fence: 51 and the transaction is aborted.
TABLE = """
pair        idle         ongoing       prepared
-1 -1       new          fence         51
10 7        bump         fence         51
10 6        same         tell[fence]   51
10 5        tell[90]     tell[fence]   51
10 4        tell[90]     tell[fence]   51
10 3        90           90[fence]     51
10 0        90           90[fence]     51
10 8        90           90[fence]     51
10 32766    90           90[fence]     51
11 7        90           90            90
11 32766    90           90            90
9 7         90           90            90
9 32765     90           90            90
9 32766     90           90[fence]     51
"""
IDLE = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
FRESH = ProducerId(99)


def pair(producer_id: int, producer_epoch: int) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(ProducerId(producer_id), Epoch(producer_epoch))


def ask(producer_id: int, producer_epoch: int) -> Initialize:
    return Initialize(pair(producer_id, producer_epoch), Milliseconds(30_000))


def cells() -> list[tuple[State, int, int, str]]:
    found = []
    for line in TABLE.strip().splitlines()[1:]:
        producer_id, producer_epoch, idle, ongoing, prepared = line.split()
        for state in STORED_STATES:
            cell = idle if state in IDLE else ongoing if state is State.ONGOING else prepared
            found.append((state, int(producer_id), int(producer_epoch), cell.partition("[")[0]))
    return found


@pytest.mark.promise("360.new-instance", "360.same-instance", "360.repeated", "360.other-epochs")
@pytest.mark.parametrize(("state", "producer_id", "producer_epoch", "expected"), cells())
@pytest.mark.parametrize("level", [0, 1, 2])
def test_every_cell(state: State, producer_id: int, producer_epoch: int, expected: str, level: int) -> None:
    before = transaction(state, previous_producer_id=9)
    decision = initialize(before, ask(producer_id, producer_epoch), START, level, FRESH)
    match expected:
        case "51":
            assert decision == Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
        case "90":
            assert decision == Refusal(ErrorCode.PRODUCER_FENCED)
        case "tell":
            assert decision == Unchanged(ProducerId(10), Epoch(7))
        case "fence":
            assert isinstance(decision, Transition)
            assert decision.error == ErrorCode.CONCURRENT_TRANSACTIONS
            to = decision.to
            assert (to.state, to.pending) == (State.PREPARE_ABORT, State.COMPLETE_ABORT)
            assert (to.producer_id, to.producer_epoch) == (10, 8)
            assert to.partitions == before.partitions
            assert to.start_timestamp == before.start_timestamp
            assert to.timeout_ms == before.timeout_ms
            assert to.client_transaction_version == level
            assert to.timed_out == NO_PRODUCER
        case "new" | "bump" | "same":
            assert isinstance(decision, Transition)
            epoch = 7 if expected == "same" else 8
            assert decision[1:4] == (ErrorCode.NONE, 10, epoch)
            to = decision.to
            assert (to.state, to.pending, to.producer_id, to.producer_epoch) == (State.EMPTY, None, 10, epoch)
            assert (dict(to.partitions), to.start_timestamp, to.last_update_timestamp) == ({}, -1, START)
            assert to.timeout_ms == 30_000
            assert to.instance_epoch == (8 if expected == "new" else 4)
            assert to.previous_producer_id == 10
            assert to.next_producer_id == -1
        case _:
            pytest.fail(expected)


def test_anything_pending_is_answered_before_the_pair_is_looked_at() -> None:
    for state, pending, epoch, producer_id in product(STORED_STATES, EVERY_PENDING[1:], (-1, 4, 6, 7, 8), (-1, 9, 10)):
        before = transaction(state, pending=pending)
        assert initialize(before, ask(producer_id, epoch), START, 2) == Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)


@pytest.mark.parametrize(
    ("given", "expected"),
    [((-1, -1), NO_PRODUCER), ((10, 0), NO_PRODUCER), ((5, 9), pair(5, 9)), ((10, 32766), NO_PRODUCER)],
)
def test_an_id_that_was_never_initialised_takes_any_pair(given: tuple[int, int], expected: ProducerIdAndEpoch) -> None:
    before = transaction(State.EMPTY, producer_epoch=-1, instance_epoch=-1, previous_producer_id=-1)
    decision = initialize(before, ask(*given), START, 2)
    assert isinstance(decision, Transition)
    assert decision[1:4] == (ErrorCode.NONE, 10, 0)
    assert decision.to.instance_epoch == 0
    assert decision.to.claimed == expected


@pytest.mark.parametrize("state", IDLE)
@pytest.mark.parametrize(
    ("current", "given", "expected", "instance"),
    [
        (32765, (-1, -1), (10, 32766), 32766),
        (32765, (10, 32765), (10, 32766), 4),
        (32765, (10, 32764), (10, 32765), 4),
        (32766, (-1, -1), (99, 0), 0),
        (32766, (10, 32766), (99, 0), 0),
        (32766, (10, 32765), (10, 32766), 4),  # Kafka: -1
        (32767, (-1, -1), (99, 0), 0),
        (32767, (10, 32766), (99, 0), 0),  # Kafka: -1
        (32767, (10, 32767), (99, 0), 0),
        (32767, (10, 20000), (99, 0), 0),  # of this instance, and 32767 cannot be told
    ],
)
def test_the_last_epochs(
    state: State, current: int, given: tuple[int, int], expected: tuple[int, int], instance: int
) -> None:
    before = transaction(state, producer_epoch=current)
    decision = initialize(before, ask(*given), START, 2, FRESH)
    assert isinstance(decision, Transition)
    assert decision[1:4] == (ErrorCode.NONE, *expected)
    assert decision.to.instance_epoch == instance
    rotated = expected[0] == 99
    assert (initialize(before, ask(*given), START, 2) is NEEDS_PRODUCER_ID) == rotated
    assert decision.to.claimed == (given if rotated and given != (-1, -1) else (-1, -1))


def test_a_rotation_is_answered_again_as_often_as_it_is_asked() -> None:
    world = World()
    world.put(transaction(State.COMPLETE_COMMIT, producer_epoch=32766, producer_id=500, previous_producer_id=500))
    assert pair_of(world.init(pair=(500, 32766))) == (1000, 0)
    for _ in range(3):
        assert pair_of(world.init(pair=(500, 32766))) == (1000, 0)
        world.fail_over()
    assert world.init(pair=(500, 32765)).error == ErrorCode.PRODUCER_FENCED
    assert pair_of(world.init(pair=(1000, 0))) == (1000, 1)
    assert world.init(pair=(500, 32766)).error == ErrorCode.PRODUCER_FENCED


def test_a_rotation_for_a_new_instance_fences_the_old_one() -> None:
    world = World()
    world.put(transaction(State.COMPLETE_COMMIT, producer_epoch=32766, producer_id=500, previous_producer_id=500))
    assert pair_of(world.init()) == (1000, 0)
    assert world.init(pair=(500, 32766)).error == ErrorCode.PRODUCER_FENCED
    assert pair_of(world.init(pair=(1000, 0))) == (1000, 1)


@pytest.mark.promise("360.repeated-after-failover")
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("fail_over", [False, True])
def test_a_lost_answer_is_given_again_also_after_a_fail_over(level: int, fail_over: bool) -> None:
    world = World(level)
    first = pair_of(world.init())
    second = pair_of(world.init(pair=first))
    assert second == (1000, 1)
    for _ in range(3):
        if fail_over:
            world.fail_over()
        assert pair_of(world.init(pair=first)) == second
    assert pair_of(world.init(pair=second)) == (1000, 2)
    assert pair_of(world.init()) == (1000, 3)
    for older in (first, second, (1000, 2)):
        assert world.init(pair=older).error == ErrorCode.PRODUCER_FENCED


@pytest.mark.promise("360.expired-and-reused")
@pytest.mark.parametrize("fail_over", [False, True])
def test_an_expired_id_is_made_anew_and_says_so_again(fail_over: bool) -> None:
    """KIP-360 failure handling: INVALID_PRODUCER_ID_MAPPING, cases 1 to 3."""
    world = World()
    old = pair_of(world.init())
    world.tick(world.clock.advance(world.settings.id_expiration_ms))
    assert world.add(old) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for _ in range(2):
        assert pair_of(world.init(pair=old)) == (1001, 0)
        if fail_over:
            world.fail_over()
    assert pair_of(world.init(pair=(1001, 0))) == (1001, 1)
    # Case 3: by now another producer id is there.
    assert world.init(pair=old).error == ErrorCode.PRODUCER_FENCED


#: After the 51: level, pair of the caller, what the repeated request is answered (facts §2.3, second table).
AFTER_FENCE = """
0 none    10 9
1 none    10 9
2 none    10 9
0 current 10 8
1 current 10 8
2 current 10 8
"""


@pytest.mark.parametrize("line", AFTER_FENCE.strip().splitlines())
def test_the_retry_after_an_abort(line: str) -> None:
    level, who, producer_id, producer_epoch = line.split()
    for fail_over in (False, True):
        world = World(int(level))
        world.put(transaction(State.ONGOING))
        world.release()
        given = (-1, -1) if who == "none" else (10, 7)
        assert world.init(pair=given).error == ErrorCode.CONCURRENT_TRANSACTIONS
        if fail_over:
            world.fail_over()
        assert world.state() == "CompleteAbort"
        assert pair_of(world.init(pair=given)) == (int(producer_id), int(producer_epoch))


def test_who_may_claim_the_epoch_of_another_instances_abort() -> None:
    """Level 2: still the old instance, as in Apache Kafka; below: nobody, as in Apache Kafka."""
    for level, allowed in ((0, False), (1, False), (2, True)):
        world = World(level)
        world.put(transaction(State.ONGOING))
        world.release()
        assert world.init().error == ErrorCode.CONCURRENT_TRANSACTIONS
        answer = world.init(pair=(10, 7))
        assert answer[:3] == ((0, 10, 8) if allowed else (ErrorCode.PRODUCER_FENCED, -1, -1))


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("who", ["none", "current"])
def test_an_abort_at_the_last_epoch_rotates(level: int, who: str) -> None:
    world = World(level)
    world.put(transaction(State.ONGOING, producer_epoch=32766, producer_id=500, previous_producer_id=500))
    world.release()
    given = (-1, -1) if who == "none" else (500, 32766)
    assert world.init(pair=given).error == ErrorCode.CONCURRENT_TRANSACTIONS
    marker, where = world.markers.written[0]
    assert (marker.producer_id, marker.producer_epoch, where) == (500, 32767, A)
    expected = (1000, 1) if who == "none" and level == 2 else (1000, 0)
    for _ in range(3 if who == "current" else 1):
        world.fail_over()
        assert pair_of(world.init(pair=given)) == expected


def test_a_rotation_that_gets_no_producer_id_is_asked_again() -> None:
    world = World()
    world.put(transaction(State.ONGOING, producer_epoch=32766, producer_id=500))
    world.release()
    world.producer_ids.exhausted = True
    assert world.init().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.end((500, 32766)).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.tick(world.clock.advance(60_001))
    assert world.state() == "Ongoing"
    world.producer_ids.exhausted = False
    world.tick(world.clock.advance(101))
    assert world.state() == "CompleteAbort"


@pytest.mark.parametrize("letter", ["x", "ü", "€"])
def test_a_transactional_id_has_as_many_bytes_as_the_journal_has_room_for(letter: str) -> None:
    longest = letter * (LONGEST_ID // len(letter.encode()))
    for name, error in (("", True), (letter, False), (longest, False), (longest + letter, True)):
        found = check(NO_PRODUCER, name, Milliseconds(1000), False, False, TransactionSettings())
        assert found is (ErrorCode.INVALID_REQUEST if error else ErrorCode.NONE)
