"""Time-outs (KIP-588): what the producer of the old epoch is told, until another instance takes over."""

from __future__ import annotations

import pytest
from tests.coordinator.transaction.transaction_doubles import START, STORED_STATES, A, B, World, pair_of, transaction

from fencepost.coordinator.transaction.state import State
from fencepost.coordinator.transaction.timeout import is_due, time_out
from fencepost.coordinator.transaction.transaction import NO_TIMEOUT
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import NO_PRODUCER, Milliseconds, ProducerId, ProducerIdAndEpoch

#: request of the old pair -> answer while the time-out's markers are missing, and when they are written.
#: A star: the answer says that it was a time-out.
TABLE = """
add v0 (AddPartitionsToTxn v0-3, AddOffsetsToTxn)   51   90*
add v2 (Produce v12, TxnOffsetCommit v5)            51   90*
verify                                              90   90
commit v5                                           51   120*
abort v5                                            51   0*
commit v4                                           90*  90*
abort v4                                            51*  0*
InitProducerId                                      51   (1000, 1)
"""


def timed_out_world(level: int, *, pending: bool) -> tuple[World, tuple[int, int]]:
    world = World(level)
    pair = pair_of(world.init(timeout_ms=Milliseconds(1000)))
    world.add(pair, A, version=0)
    world.markers.answers = {A: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    world.tick(world.clock.advance(1001))
    if not pending:
        world.release()
    return world, pair


def ask(world: World, request: str, pair: tuple[int, int]) -> str:
    coordinator = world.coordinator
    if request.startswith("add"):
        added = coordinator.add_partitions("t", *ProducerIdAndEpoch.of(*pair), [B], int(request[5]))
        return f"{int(added.error)}{'*' if added.timed_out else ''}"
    if request == "verify":
        return str(int(coordinator.verify_partitions("t", *ProducerIdAndEpoch.of(*pair), [A])[A]))
    if request == "InitProducerId":
        answer = world.init(pair=pair)
        return str(pair_of(answer)) if not answer.error else str(int(answer.error))
    what, version = request.split()
    ended = world.end(pair, what == "commit", int(version[1:]))
    if not ended.error:
        assert pair_of(ended) == (1000, 1), "the pair to go on with"
    return f"{int(ended.error)}{'*' if ended.timed_out else ''}"


@pytest.mark.promise("588.remembered", "588.told-so", "588.abort")
@pytest.mark.parametrize("line", TABLE.strip().splitlines())
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("fail_over", [False, True])
def test_every_request_of_the_old_pair(line: str, level: int, fail_over: bool) -> None:
    request, pending, done = (part.strip() for part in (line[:50].partition("(")[0], line[50:56], line[56:]))
    for expected, is_pending in ((pending, True), (done, False)):
        world, pair = timed_out_world(level, pending=is_pending)
        if fail_over:
            world.fail_over()
        for _ in range(2):
            assert ask(world, request, pair) == expected
        assert world.coordinator.timed_out("t", *ProducerIdAndEpoch.of(*pair))


@pytest.mark.promise("588.same-producer")
@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_same_producer_goes_on(level: int) -> None:
    world, pair = timed_out_world(level, pending=False)
    following = pair_of(world.end(pair, commit=False)) if level == 2 else pair_of(world.init(pair=pair))
    assert following == (1000, 1)
    assert world.add(following, version=2 if level == 2 else 0) == ErrorCode.NONE
    # A late request of the old epoch neither harms the new transaction nor is it told that it was fenced.
    for commit, code in ((False, ErrorCode.NONE), (True, ErrorCode.TRANSACTION_ABORTABLE)):
        ended = world.end(pair, commit)
        assert (ended.error, ended.timed_out) == (code, True)
    assert pair_of(world.init(pair=pair)) == following
    assert world.state() == "Ongoing"
    assert pair_of(world.end(following, version=5 if level == 2 else 4))


@pytest.mark.promise("588.replaced")
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("fail_over", [False, True])
def test_another_instance_takes_over(level: int, fail_over: bool) -> None:
    world, pair = timed_out_world(level, pending=False)
    assert pair_of(world.init()) == (1000, 2)
    if fail_over:
        world.fail_over()
    assert not world.coordinator.timed_out("t", *ProducerIdAndEpoch.of(*pair))
    assert world.add(pair) == ErrorCode.PRODUCER_FENCED
    for commit in (True, False):
        for version in (4, 5):
            assert world.end(pair, commit, version)[::4] == (ErrorCode.PRODUCER_FENCED, False)
    assert world.init(pair=pair).error == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("fail_over", [False, True])
def test_a_time_out_that_rotates_the_producer_id(fail_over: bool) -> None:
    world = World()
    world.put(transaction(State.ONGOING, producer_id=500, producer_epoch=32766, start_timestamp=START - 60_001))
    world.tick(world.clock.now())
    world.release()
    old = (500, 32766)
    if fail_over:
        world.fail_over()
    assert world.end(old)[::4] == (ErrorCode.TRANSACTION_ABORTABLE, True)
    assert world.end(old, version=4)[::4] == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, True)
    assert world.coordinator.add_partitions("t", *ProducerIdAndEpoch.of(*old), [A], 2)[::2] == (49, True)
    assert pair_of(world.end(old, commit=False)) == (1000, 0)
    assert pair_of(world.init(pair=old)) == (1000, 0)
    assert pair_of(world.init(pair=old)) == (1000, 0)


def test_an_abort_after_the_time_out_of_the_last_epoch_is_given_no_epoch_that_no_client_may_have() -> None:
    world = World(level=1)
    world.put(transaction(State.ONGOING, producer_id=500, producer_epoch=32766, start_timestamp=START - 60_001))
    world.tick(world.clock.now())
    world.release()
    assert world.coordinator.describe("t").producer_epoch == 32767
    assert pair_of(world.end((500, 32766), commit=False)) == (1000, 0)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("state", STORED_STATES)
def test_only_open_transactions_are_due(state: State, level: int) -> None:
    late = Milliseconds(START + 10**9)
    assert is_due(transaction(state), late) == (state is State.ONGOING)
    assert not is_due(transaction(state, timeout_ms=NO_TIMEOUT), late)
    assert not is_due(transaction(state, pending=State.PREPARE_ABORT), late)
    if state is State.ONGOING:
        due = transaction(state)
        assert not is_due(due, Milliseconds(due.start_timestamp + due.timeout_ms))
        assert is_due(due, Milliseconds(due.start_timestamp + due.timeout_ms + 1))
        decision = time_out(due, level, late)
        assert decision is not None
        assert decision.to.timed_out == (10, 7)  # type: ignore[union-attr]
        assert decision.to.instance_epoch == 4  # type: ignore[union-attr]


def test_epoch_32767_is_not_remembered_as_a_clients() -> None:
    """No client holds it; it is there only to recover (KAFKA-20090)."""
    stuck = transaction(State.ONGOING, producer_epoch=32767)
    for level, next_id in ((1, -1), (2, 99)):
        decision = time_out(stuck, level, START, ProducerId(99))
        assert decision.to.producer_epoch == 32767  # type: ignore[union-attr]
        assert decision.to.next_producer_id == next_id  # type: ignore[union-attr]
        assert decision.to.timed_out == NO_PRODUCER  # type: ignore[union-attr]
