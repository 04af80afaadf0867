"""Bugs that other coordinators had (facts §13.1, §13.2) and oddities (§13.7), each under its number.

Some are asserted where they belong: KAFKA-13099 with the whole coordinator, KAFKA-15468, 16352 and 18137 with
elections, KAFKA-15552 and its relatives with producer ids, KAFKA-18654, 18662 and 18957 over the wire in
tests/broker/leader/test_leader_bugs.py, which also lists what cannot happen here.  Some are asserted for the log or a
whole broker as well (tests/log/test_log_bugs.py, tests/broker/test_coordinator_bugs.py).
"""

from __future__ import annotations

import logging

import pytest
from tests.coordinator.transaction.transaction_doubles import START, A, B, World, pair_of, transaction

from fencepost.coordinator.loading import in_turn
from fencepost.coordinator.transaction.expiry import is_expired
from fencepost.coordinator.transaction.state import State
from fencepost.coordinator.transaction.verify import verify
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Milliseconds
from fencepost.runtime import at_once


@pytest.fixture(autouse=True)
def what_the_log_says(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever level others have set."""
    caplog.set_level(logging.WARNING, "fencepost")


def near_the_end() -> World:
    """Producer id 500 is open at the last epoch."""
    world = World()
    world.put(transaction(State.ONGOING, producer_id=500, producer_epoch=32766, previous_producer_id=500))
    return world


def test_kafka_17754_a_delayed_end_does_not_end_the_next_transaction() -> None:
    world = World()
    first = pair_of(world.init())
    world.add(first)
    second = pair_of(world.end(first))
    world.add(second)
    for commit in (True, False):
        assert world.end(first, commit).error == ErrorCode.PRODUCER_FENCED
    assert world.state() == "Ongoing"


def test_kafka_20310_a_fail_over_in_the_middle_of_a_rotation_does_not_lose_it() -> None:
    world = near_the_end()
    assert pair_of(world.end((500, 32766))) == (1000, 0)
    world.fail_over()
    world.fail_over()
    world.release()
    assert world.coordinator.describe("t")[5:7] == (1000, 0)
    world.fail_over()
    assert pair_of(world.end((500, 32766))) == (1000, 0)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_kafka_20090_an_id_at_epoch_32767_recovers(level: int) -> None:
    for by_time_out in (True, False):
        world = World(level)
        world.put(transaction(State.ONGOING, producer_id=500, producer_epoch=32767, start_timestamp=START - 60_001))
        world.release()
        if by_time_out:
            world.tick(world.clock.now())
        else:
            assert world.init().error == ErrorCode.CONCURRENT_TRANSACTIONS
        assert world.state() == "CompleteAbort"
        assert [marker[:2] for marker, _ in world.markers.written[:1]] == [(500, 32767)]
        assert pair_of(world.init()) in ((1000, 0), (1000, 1))


def test_kafka_20090_a_fence_at_32766_rotates() -> None:
    world = near_the_end()
    world.release()
    assert world.init().error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.coordinator.describe("t")[5:7] == (1000, 0)


def test_kafka_19999_a_refused_marker_is_tried_again() -> None:
    world = World()
    pair = pair_of(world.init())
    world.add(pair, A, B)
    for error in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        world.markers.answers = {B: error}
        pair = pair_of(world.end(pair))
        for _ in range(5):
            world.tick(world.clock.advance(1000))
            assert world.state() == "PrepareCommit"
        world.markers.answers.clear()
        world.tick(world.clock.advance(1000))
        assert world.state() == "CompleteCommit"
        world.add(pair, A, B)


@pytest.mark.parametrize(("version", "level", "expected"), [(4, 2, 0), (5, 2, 2), (5, 1, 2), (4, 0, 0)])
def test_kafka_19446_the_marker_carries_the_version_of_the_request(version: int, level: int, expected: int) -> None:
    world = World(level)
    pair = pair_of(world.init())
    world.add(pair, version=2 if level else 0)
    pair_of(world.end(pair, version=version))
    [(marker, _)] = world.markers.written
    assert marker.transaction_version == expected


@pytest.mark.parametrize("version", [4, 5])
def test_kafka_19446_the_marker_carries_it_after_a_fail_over_too(version: int) -> None:
    world = World()
    pair = pair_of(world.init())
    world.add(pair)
    world.markers.answers = {A: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    pair_of(world.end(pair, version=version))
    world.fail_over()
    world.release()
    [(marker, _)] = world.markers.written
    assert marker.transaction_version == (2 if version == 5 else 0)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_kafka_19446_the_servers_own_abort_carries_the_level(level: int) -> None:
    world = World(level)
    pair = pair_of(world.init())
    world.add(pair, version=0)
    world.init()
    [(marker, _)] = world.markers.written
    assert marker[:2] + marker[3:] == (1000, 1, False, level)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_kafka_19367_an_abort_by_init_producer_id_bumps_once(level: int) -> None:
    world = World(level)
    pair = pair_of(world.init())
    world.add(pair, version=0)
    world.init(pair=pair)
    assert world.coordinator.describe("t").producer_epoch == 1
    world = near_the_end()
    world.release()
    world.init(pair=(500, 32766))
    assert world.coordinator.describe("t").producer_epoch == 0


def test_kafka_18660_the_new_pair_waits_for_the_end_instead_of_being_fenced() -> None:
    world = near_the_end()
    following = pair_of(world.end((500, 32766)))
    assert following == (1000, 0)
    assert world.add(following) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.end(following, commit=False).error == ErrorCode.CONCURRENT_TRANSACTIONS
    world.release()
    assert world.add(following) == ErrorCode.NONE


def test_kafka_18575_the_next_transaction_does_not_begin_before_the_last_is_complete() -> None:
    world = World()
    pair = pair_of(world.init())
    world.add(pair)
    world.markers.answers = {A: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    following = pair_of(world.end(pair))
    assert world.add(following) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.release()
    assert world.add(following) == ErrorCode.NONE
    assert world.markers.attempts == 2


def test_kafka_18464_an_abort_of_nothing_does_not_fence_its_producer() -> None:
    """Neither at first nor after a transaction, and not when it is asked for again."""
    world = World()
    pair = pair_of(world.init())
    for commit in (True, False, True):
        following = pair_of(world.end(pair, commit=False))
        assert following == (1000, pair[1] + 1)
        assert pair_of(world.end(pair, commit=False)) == following
        assert world.add(following) == ErrorCode.NONE
        pair = pair_of(world.end(following, commit))


def test_kafka_18401_a_commit_of_nothing_is_refused() -> None:
    world = World()
    pair = pair_of(world.init())
    assert world.end(pair).error == ErrorCode.INVALID_TXN_STATE
    assert pair_of(world.end(pair, commit=False)) == (1000, 1)
    pair = (1000, 1)
    for commit in (True, False):
        world.add(pair)
        pair = pair_of(world.end(pair, commit))
        assert world.end(pair).error == ErrorCode.INVALID_TXN_STATE, "the record was lost"


@pytest.mark.parametrize("pending", [State.ONGOING, State.EMPTY, State.DEAD])
def test_kafka_14904_verification_does_not_mind_what_is_pending(pending: State) -> None:
    """What is in the transaction is in it, whatever else is being written about the id."""
    busy = transaction(State.ONGOING, pending=pending)
    asked = verify(busy, busy.current.producer_id, busy.current.producer_epoch, [A, B])
    assert asked == {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("level", [0, 1, 2])
def test_kafka_16047_a_fence_does_not_depend_on_the_time_out_that_it_brings(level: int) -> None:
    """An admin's fence comes with a time-out of its own, which is no time-out of the append."""
    world = World(level)
    pair = pair_of(world.init())
    world.add(pair, version=0)
    assert world.init(timeout_ms=Milliseconds(1)).error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.state() == "CompleteAbort"
    fenced = pair_of(world.init(timeout_ms=Milliseconds(1)))
    assert fenced[1] > pair[1]
    assert world.add(pair, version=0) == ErrorCode.PRODUCER_FENCED


def test_kafka_14880_an_id_without_an_epoch_expires_like_others() -> None:
    """And those that live in the same journal partition do, too."""
    nothing = transaction(State.EMPTY, producer_epoch=-1, last_update_timestamp=0)
    assert is_expired(nothing, Milliseconds(1000), START)
    world = World(partitions=1)
    pair_of(world.init("before"))
    world.put(nothing)
    pair_of(world.init("behind"))
    assert len(world.coordinator.list().transactions) == 3
    world.tick(world.clock.advance(world.settings.id_expiration_ms))
    assert world.coordinator.list().transactions == ()


def test_kafka_16570_fencing_from_outside_works_though_it_answers_51() -> None:
    """An admin fences with InitProducerId without a pair; its own time-out becomes the id's."""
    world = World()
    pair = pair_of(world.init(timeout_ms=Milliseconds(60_000)))
    world.add(pair)
    assert world.init(timeout_ms=Milliseconds(5000)).error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.add(pair) == ErrorCode.PRODUCER_FENCED, "an admin need not come again"
    assert world.init(timeout_ms=Milliseconds(5000)).error == ErrorCode.NONE
    assert world.coordinator.describe("t").timeout_ms == 5000
    assert world.add(pair) == ErrorCode.PRODUCER_FENCED


def test_kafka_9666_refused_fences_do_not_bump_the_epoch_again_and_again() -> None:
    world = World(level=1)
    pair = pair_of(world.init())
    world.add(pair, version=0)
    world.journal("t").refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(10):
        assert world.init().error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.journal("t").refuse = None
    world.init()
    assert world.coordinator.describe("t").producer_epoch == 1


def test_facts_13_7_1_a_zombie_does_not_abort_its_successors_transaction() -> None:
    world = World()
    zombie = pair_of(world.init())
    successor = pair_of(world.init())
    world.add(successor)
    assert world.init(pair=zombie).error == ErrorCode.PRODUCER_FENCED
    assert world.init(pair=(1000, 2)).error == ErrorCode.PRODUCER_FENCED
    assert world.state() == "Ongoing"
    assert pair_of(world.end(successor)) == (1000, 2)


@pytest.mark.parametrize("fail_over", [False, True])
def test_facts_13_7_2_an_answer_that_is_asked_for_again_at_the_last_epoch_is_the_current_pair(fail_over: bool) -> None:
    world = World()
    world.put(transaction(State.EMPTY, producer_id=500, producer_epoch=32765, instance_epoch=32760))
    current = pair_of(world.init(pair=(500, 32765)))
    for _ in range(3):
        if fail_over:
            world.fail_over()
        assert pair_of(world.init(pair=(500, 32765))) == current
    assert world.coordinator.describe("t")[5:7] == current


def test_facts_13_7_3_a_claim_that_is_repeated_after_a_fail_over_gets_the_same_answer() -> None:
    world = World()
    pair = pair_of(world.init())
    following = pair_of(world.init(pair=pair))
    world.fail_over()
    assert pair_of(world.init(pair=pair)) == following, "not fenced, and not bumped once more"


def test_facts_13_7_5_a_marker_that_is_refused_for_its_epoch_is_said_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    pair = pair_of(world.init())
    world.add(pair)
    world.markers.answers = {A: ErrorCode.INVALID_PRODUCER_EPOCH}
    world.end(pair)
    assert "refuses the marker" in caplog.text and "producer_id=1000" in caplog.text
    world.markers.answers.clear()
    world.tick(world.clock.advance(1000))
    assert world.state() == "CompleteCommit"


def test_facts_13_7_6_a_journal_that_cannot_be_read_is_not_published(caplog: pytest.LogCaptureFixture) -> None:
    """And it is said, and the other partitions are read."""
    world = World(partitions=2)
    for number in range(8):
        pair_of(world.init(f"t{number}"))
    bad = world.coordinator.partition_for("t0")
    journal = world.storage.journals[bad]
    journal.batches[-1] = journal.batches[-1][:-1] + b"?"
    world.coordinator = world.new_coordinator(loaded=False)
    steps = [step for index in range(2) if (step := world.coordinator.start_loading(index)) is not None]
    at_once(in_turn(steps))
    for number in range(8):
        name = f"t{number}"
        here = world.coordinator.partition_for(name) == bad
        assert world.init(name).error == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if here else ErrorCode.NONE)
    (line,) = caplog.messages
    assert f"topic=__transaction_state partition={bad}" in line and "CRC" in line


def test_facts_13_7_7_a_commit_cannot_slip_between_a_fence_and_its_abort() -> None:
    world = World()
    pair = pair_of(world.init())
    world.add(pair)
    world.markers.answers = {A: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    world.init()
    assert world.end(pair).error == ErrorCode.CONCURRENT_TRANSACTIONS
    world.release()
    assert world.end(pair).error == ErrorCode.INVALID_TXN_STATE
    assert [marker.commit for marker, _ in world.markers.written] == [False]
