"""Two-phase commit (KIP-939): a prepared transaction survives its producer, and its successor ends it."""

from __future__ import annotations

import pytest
from tests.coordinator.transaction.transaction_doubles import A, B, World, pair_of, transaction

from fencepost.coordinator.transaction import Initialized
from fencepost.coordinator.transaction.state import State
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, Milliseconds, ProducerId, ProducerIdAndEpoch


def claim(world: World, pair: tuple[int, int] = (-1, -1), *, keep: bool = True) -> Initialized:
    return world.coordinator.init_producer_id(
        "t", Milliseconds(1000), *ProducerIdAndEpoch.of(*pair), enable_2pc=True, keep_prepared=keep
    )


def prepared_world() -> tuple[World, tuple[int, int]]:
    world = World(two_phase_commit=True)
    pair = pair_of(claim(world))
    assert world.add(pair, A, B) == ErrorCode.NONE
    return world, pair


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("fail_over", [False, True])
def test_a_successor_ends_what_its_predecessor_prepared(commit: bool, fail_over: bool) -> None:
    world, old = prepared_world()
    for epoch in (1, 2, 3):
        answer = claim(world)
        assert pair_of(answer) == (1000, epoch)
        assert (answer.ongoing_producer_id, answer.ongoing_producer_epoch) == old
        if fail_over:
            world.fail_over()
    world.tick(world.clock.advance(10**12))
    assert world.state() == "Ongoing"
    for fenced in (old, (1000, 2)):
        assert world.end(fenced, commit).error == ErrorCode.PRODUCER_FENCED
        assert world.add(fenced) == ErrorCode.PRODUCER_FENCED
    assert world.add((1000, 3)) == ErrorCode.INVALID_TXN_STATE
    assert world.coordinator.verify_partitions("t", ProducerId(1000), Epoch(3), [A]) == {
        A: ErrorCode.TRANSACTION_ABORTABLE
    }
    # Past every epoch that was ever handed out, so that a delayed duplicate cannot end the next transaction.
    assert pair_of(world.end((1000, 3), commit)) == (1000, 4)
    assert [(marker[:2], marker.commit, where) for marker, where in world.markers.written] == [
        ((1000, 1), commit, A),
        ((1000, 1), commit, B),
    ]
    if fail_over:
        world.fail_over()
    assert pair_of(world.end((1000, 3), commit)) == (1000, 4)
    assert world.add((1000, 4)) == ErrorCode.NONE


def test_nothing_to_keep_is_an_ordinary_claim() -> None:
    world = World(two_phase_commit=True)
    for epoch in range(3):
        answer = claim(world)
        assert pair_of(answer) == (1000, epoch)
        assert answer.ongoing_producer_id == -1


@pytest.mark.parametrize("fail_over", [False, True])
def test_epochs_that_run_out_in_between(fail_over: bool) -> None:
    """KIP-939's own example: three producer ids in one transaction."""
    world = World(two_phase_commit=True)
    world.put(transaction(State.ONGOING, producer_id=42, producer_epoch=32766, previous_producer_id=42))
    world.release()

    def maybe_fail_over() -> None:
        if fail_over:
            world.fail_over()

    for expected in ((1000, 0), (1000, 1)):
        answer = claim(world)
        assert pair_of(answer) == expected
        assert (answer.ongoing_producer_id, answer.ongoing_producer_epoch) == (42, 32766)
        maybe_fail_over()
    world.markers.answers = {A: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert pair_of(world.end((1000, 1))) == (1000, 2)
    maybe_fail_over()
    world.release()
    assert [marker[:2] for marker, where in world.markers.written if where == A] == [(42, 32767)]
    assert pair_of(world.end((1000, 1))) == (1000, 2)
    assert pair_of(world.init(pair=(1000, 1))) == (1000, 2)


def test_a_successor_may_throw_it_away() -> None:
    world, old = prepared_world()
    kept = pair_of(claim(world))
    assert claim(world, keep=False).error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.state() == "CompleteAbort"
    assert [marker.commit for marker, _ in world.markers.written] == [False, False]
    assert pair_of(claim(world, keep=False)) == (1000, 3)
    for fenced in (old, kept):
        assert world.init(pair=fenced).error == ErrorCode.PRODUCER_FENCED


def test_a_repeated_claim_is_told_both_pairs_again() -> None:
    world, old = prepared_world()
    first = pair_of(claim(world))
    second = claim(world, first)
    assert pair_of(second) == (1000, 2)
    again = claim(world, first)
    assert again == second
    assert (again.ongoing_producer_id, again.ongoing_producer_epoch) == old


def test_old_protocol_and_a_last_epoch_that_ran_out() -> None:
    world, _ = prepared_world()
    kept = pair_of(claim(world))
    assert pair_of(world.end(kept, version=4)) == (1000, 2)
    world = World(two_phase_commit=True)
    world.put(transaction(State.ONGOING, producer_id=42, next_producer_id=73, next_producer_epoch=32766))
    world.release()
    assert pair_of(world.end((73, 32766))) == (1000, 0)
    assert pair_of(world.end((73, 32766))) == (1000, 0)
    assert pair_of(world.init(pair=(73, 32766))) == (1000, 0)
    assert [marker[:2] for marker, where in world.markers.written if where == A] == [(42, 8)]


@pytest.mark.parametrize("enable_2pc", [True, False])
def test_what_is_kept_for_a_producer_is_not_aborted_when_its_connection_closes(enable_2pc: bool) -> None:
    world, _ = prepared_world()
    kept = pair_of(
        world.coordinator.init_producer_id("t", Milliseconds(1000), enable_2pc=enable_2pc, keep_prepared=True)
    )
    world.coordinator.abort_abandoned("t", ProducerId(1000))
    assert world.state() == "Ongoing"
    assert pair_of(world.end(kept, commit=True)) == (1000, 2)
    assert world.state() == "CompleteCommit"


def test_what_is_kept_has_the_time_out_of_whoever_it_is_kept_for() -> None:
    world, _ = prepared_world()
    pair_of(world.coordinator.init_producer_id("t", Milliseconds(2000), keep_prepared=True))
    assert world.coordinator.describe("t").timeout_ms == 2000
    world.tick(world.clock.advance(2001))
    assert world.state() == "CompleteAbort"


def test_who_was_timed_out_before_another_instance_kept_what_is_open_is_fenced() -> None:
    world = World(two_phase_commit=True)
    late = pair_of(world.init(timeout_ms=Milliseconds(1000)))
    world.add(late)
    world.tick(world.clock.advance(1001))
    following = pair_of(world.end(late, commit=False))
    world.add(following)
    pair_of(claim(world))
    assert world.end(late, commit=False).error == ErrorCode.PRODUCER_FENCED
