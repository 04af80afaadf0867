"""EndTxn: every cell of facts §3.7 and §3.8, written out here a second time."""

from __future__ import annotations

from itertools import product

import pytest
from tests.coordinator.transaction.transaction_doubles import (
    EVERY_PENDING,
    START,
    STORED_STATES,
    World,
    pair_of,
    transaction,
)

from fencepost.coordinator.transaction.decision import NEEDS_PRODUCER_ID, Refusal, Transition, Unchanged
from fencepost.coordinator.transaction.end import End, end
from fencepost.coordinator.transaction.state import State
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, ProducerId

#: state, then the answer to a commit and to an abort of the current pair.  prepare: the decision is made.
BELOW_5 = """
EMPTY           48      48
ONGOING         prepare prepare
PREPARE_COMMIT  51      48
PREPARE_ABORT   48      51
COMPLETE_COMMIT 0       48
COMPLETE_ABORT  48      0
"""

#: state, then commit by the current epoch, commit by the one before, abort by the current, abort by the one before.
FROM_5 = """
EMPTY           48      90  empty   90
ONGOING         prepare 90  prepare 90
PREPARE_COMMIT  90      51  90      48
PREPARE_ABORT   90      48  90      51
COMPLETE_COMMIT 48      0   empty   48
COMPLETE_ABORT  48      48  empty   0
"""

COMPLETED = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}


def ask(producer_id: int, producer_epoch: int, commit: bool, version: int) -> End:
    return End(ProducerId(producer_id), Epoch(producer_epoch), commit, version)


def check(expected: str, state: State, commit: bool, version: int, epoch: int, level: int) -> None:
    before = transaction(state, client_transaction_version=2)
    decision = end(before, ask(10, epoch, commit, version), START, level)
    match expected:
        case "0":
            assert decision == Unchanged(ProducerId(10), Epoch(7))
        case "prepare" | "empty":
            if level == 0 and version >= 5 and expected == "empty":
                assert decision == Refusal(ErrorCode.UNSUPPORTED_VERSION)
                return
            assert isinstance(decision, Transition)
            bumped = 8 if version >= 5 else 7
            assert decision[1:4] == (ErrorCode.NONE, 10, bumped)
            to = decision.to
            assert to.state is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
            assert to.pending is COMPLETED[to.state]
            assert (to.producer_id, to.producer_epoch, to.previous_producer_id) == (10, bumped, 10)
            assert to.partitions == (before.partitions if expected == "prepare" else {})
            assert to.start_timestamp == (before.start_timestamp if expected == "prepare" else START)
            assert (to.last_update_timestamp, to.timeout_ms) == (START, 60_000)
            assert to.client_transaction_version == (2 if version >= 5 else 0)
            assert to.instance_epoch == 4
        case code:
            assert decision == Refusal(ErrorCode(int(code)))


@pytest.mark.parametrize("line", BELOW_5.strip().splitlines())
@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("level", [0, 1, 2])
def test_every_cell_below_version_5(line: str, version: int, level: int) -> None:
    name, *answers = line.split()
    for commit, expected in zip((True, False), answers, strict=True):
        check(expected, State[name], commit, version, 7, level)


@pytest.mark.promise("890.bump")
@pytest.mark.parametrize("line", FROM_5.strip().splitlines())
@pytest.mark.parametrize("level", [0, 1, 2])
def test_every_cell_from_version_5(line: str, level: int) -> None:
    name, *answers = line.split()
    for (commit, epoch), expected in zip(product((True, False), (7, 6)), answers, strict=True):
        check(expected, State[name], commit, 5, epoch, level)


@pytest.mark.parametrize("state", STORED_STATES)
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 4, 5])
def test_other_pairs_are_refused_in_every_state(state: State, commit: bool, version: int) -> None:
    before = transaction(state)
    for producer_id, epoch in ((11, 7), (11, 6), (9, 7), (9, 32766), (-1, -1)):
        decision = end(before, ask(producer_id, epoch, commit, version), START, 2)
        assert decision == Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    for epoch in (-1, 0, 4, 5, 8, 32766, 32767) + ((6,) if version < 5 else ()):
        assert end(before, ask(10, epoch, commit, version), START, 2) == Refusal(ErrorCode.PRODUCER_FENCED)


@pytest.mark.parametrize("pending", EVERY_PENDING[1:])
def test_what_is_pending_comes_before_the_pair_from_version_5_and_after_it_below(pending: State) -> None:
    concurrent = Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
    fencing = pending is State.PREPARE_EPOCH_FENCE
    for state, commit in product(STORED_STATES, (True, False)):
        before, free = transaction(state, pending=pending), transaction(state)
        for epoch, producer_id, version in product((6, 7, 8), (10, 11), (4, 5)):
            request = ask(producer_id, epoch, commit, version)
            passes = version >= 5 or (producer_id, epoch) == (10, 7)
            expected = concurrent if passes and not fencing else end(free, request, START, 2)
            assert end(before, request, START, 2) == expected


#: state, then commit and abort by the pair that the last end rotated away: (9, 32766), now (10, 0).
ROTATED = """
EMPTY           90 90
ONGOING         90 90
COMPLETE_COMMIT 0  48
COMPLETE_ABORT  48 0
"""


@pytest.mark.parametrize("line", ROTATED.strip().splitlines())
def test_the_pair_before_a_rotation(line: str) -> None:
    name, *answers = line.split()
    before = transaction(State[name], producer_epoch=0, previous_producer_id=9, instance_epoch=0)
    for commit, expected in zip((True, False), answers, strict=True):
        decision = end(before, ask(9, 32766, commit, 5), START, 2)
        if expected == "0":
            assert decision == Unchanged(ProducerId(10), Epoch(0))
        else:
            assert decision == Refusal(ErrorCode(int(expected)))
        for epoch in (32765, 32767, 0):
            decision = end(before, ask(9, epoch, commit, 5), START, 2)
            assert decision == Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        assert end(before, ask(9, 32766, commit, 4), START, 2) == Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@pytest.mark.promise("890.overflow")
@pytest.mark.parametrize("commit", [True, False])
def test_an_exhausted_epoch_rotates_at_the_end(commit: bool) -> None:
    before = transaction(State.ONGOING, producer_epoch=32766)
    request = ask(10, 32766, commit, 5)
    assert end(before, request, START, 2) is NEEDS_PRODUCER_ID
    decision = end(before, request, START, 2, ProducerId(99))
    assert isinstance(decision, Transition)
    assert decision[1:4] == (ErrorCode.NONE, 99, 0)
    assert (decision.to.producer_id, decision.to.producer_epoch, decision.to.next_producer_id) == (10, 32767, 99)
    below = end(before, ask(10, 32766, commit, 4), START, 2)
    assert isinstance(below, Transition)
    assert (below.to.producer_epoch, below.to.next_producer_id) == (32766, -1)


#: Facts §3.10: what a client that lost its answer is told when it asks again, holding (P, E).
@pytest.mark.promise("890.repeated-end", "2014.repeats")
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("fail_over", [False, True])
def test_a_lost_answer(commit: bool, fail_over: bool) -> None:
    world = World()

    def maybe_fail_over() -> None:
        if fail_over:
            world.fail_over()

    pair = pair_of(world.init())
    world.add(pair)
    world.journal("t").refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.end(pair, commit).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.journal("t").refuse = None
    world.markers.answers = {next(iter(world.coordinator._entries["t"].transaction.partitions)): ErrorCode(6)}
    assert pair_of(world.end(pair, commit)) == (1000, 1)
    maybe_fail_over()
    assert world.end(pair, commit).error == ErrorCode.CONCURRENT_TRANSACTIONS
    world.release()
    maybe_fail_over()
    assert pair_of(world.end(pair, commit)) == (1000, 1)
    assert world.end(pair, not commit).error == ErrorCode.INVALID_TXN_STATE
    assert pair_of(world.init()) == (1000, 2)
    assert world.end(pair, commit).error == ErrorCode.PRODUCER_FENCED


@pytest.mark.promise("890.overflow")
@pytest.mark.parametrize("fail_over", [False, True])
def test_a_lost_answer_over_a_rotation(fail_over: bool) -> None:
    world = World()
    world.put(transaction(State.ONGOING, producer_id=500, producer_epoch=32766))
    assert pair_of(world.end((500, 32766))) == (1000, 0)
    if fail_over:
        world.fail_over()
    assert world.end((500, 32766)).error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.add((1000, 0)) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.release()
    if fail_over:
        world.fail_over()
    assert pair_of(world.end((500, 32766))) == (1000, 0)
    assert pair_of(world.init(pair=(500, 32766))) == (1000, 0)
    assert world.add((1000, 0)) == ErrorCode.NONE
    assert world.end((500, 32766)).error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert pair_of(world.end((1000, 0))) == (1000, 1)


def test_an_empty_abort_bumps_and_marks_nothing() -> None:
    world = World()
    pair = pair_of(world.init())
    for expected in (1, 2, 3):
        ended = world.end(pair, commit=False)
        pair = pair_of(ended)
        assert pair == (1000, expected)
        assert world.state() == "CompleteAbort"
    assert world.markers.written == []
    assert world.end(pair, commit=True).error == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(("state", "commit"), list(product(STORED_STATES, (True, False))))
def test_a_fenced_instance_repeats_no_end_that_bumped_nothing(state: State, commit: bool) -> None:
    """The last transaction was an older client's: what is one epoch back is its predecessor's, not what it ended."""
    now = transaction(state, instance_epoch=7, client_transaction_version=0)
    assert end(now, ask(10, 6, commit, 5), START, 2) == Refusal(ErrorCode.PRODUCER_FENCED)


def test_a_fenced_instance_is_not_handed_the_pair_of_its_successor() -> None:
    """Clients of both protocols under one id: the newer instance ends by v4, the older one asks to abort by v5."""
    world = World()
    old = pair_of(world.init())
    new = pair_of(world.init())
    world.add(new, version=3)
    assert world.end(new, commit=False, version=4)[0] == ErrorCode.NONE
    assert world.end(old, commit=False, version=5).error == ErrorCode.PRODUCER_FENCED
