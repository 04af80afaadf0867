"""transaction.version goes up and down while producers run (KIP-890, compatibility; facts §3.6, §14)."""

from __future__ import annotations

import pytest
from tests.coordinator.transaction.transaction_doubles import A, B, World, pair_of

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import decode_batch
from fencepost.protocol.types import Milliseconds, ProducerIdAndEpoch


def version_of_last_value(world: World) -> int:
    [record] = decode_batch(world.journal("t").batches[-1])
    assert record.value is not None
    return int.from_bytes(record.value[:2], "big")


def test_hidden_trap_version_2_requests_at_level_0_are_refused_every_time() -> None:
    world = World(level=0)
    pair = pair_of(world.init())
    for _ in range(3):
        assert world.add(pair, version=2) == ErrorCode.UNSUPPORTED_VERSION
        assert world.end(pair, commit=False).error == ErrorCode.UNSUPPORTED_VERSION
    assert world.state() == "Empty"
    world.add(pair, A, version=0)
    for _ in range(3):
        assert world.add(pair, B, version=2) == ErrorCode.UNSUPPORTED_VERSION
        assert world.end(pair).error == ErrorCode.UNSUPPORTED_VERSION
    assert pair_of(world.end(pair, version=4)) == pair


def test_level_1_runs_the_version_2_path() -> None:
    world = World(level=1)
    pair = pair_of(world.init())
    assert world.add(pair, version=2) == ErrorCode.NONE
    assert pair_of(world.end(pair)) == (1000, 1)
    assert version_of_last_value(world) == 1


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("fail_over", [False, True])
def test_a_downgrade_in_the_middle_of_a_transaction(commit: bool, fail_over: bool) -> None:
    world = World(level=2)
    pair = pair_of(world.init())
    world.add(pair, A)
    world.level = 0
    if fail_over:
        world.fail_over()
    assert world.add(pair, A) == ErrorCode.NONE, "it is in already"
    assert world.add(pair, B) == ErrorCode.TRANSACTION_ABORTABLE
    world.markers.answers = {A: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    following = pair_of(world.end(pair, commit))
    assert following == (1000, 1)
    assert version_of_last_value(world) == 0
    if fail_over:
        world.fail_over()
    world.release()
    if fail_over:
        world.fail_over()
    assert pair_of(world.end(pair, commit)) == following, "a lost answer is given again"
    assert world.add(following, version=2) == ErrorCode.UNSUPPORTED_VERSION
    assert world.add(following, version=0) == ErrorCode.NONE
    assert pair_of(world.end(following, commit, version=4)) == following


def test_an_upgrade_in_the_middle_of_a_transaction() -> None:
    world = World(level=0)
    pair = pair_of(world.init())
    world.add(pair, A, version=0)
    world.level = 2
    assert pair_of(world.end(pair, version=4)) == pair
    assert version_of_last_value(world) == 1
    assert world.add(pair, A) == ErrorCode.NONE
    assert pair_of(world.end(pair)) == (1000, 1)


def test_what_version_0_has_no_room_for_is_not_lost() -> None:
    world = World(level=0)
    first = pair_of(world.init(timeout_ms=Milliseconds(1000)))
    second = pair_of(world.init(pair=first, timeout_ms=Milliseconds(1000)))
    world.add(second, version=0)
    world.tick(world.clock.advance(1001))
    assert version_of_last_value(world) == 0
    world.fail_over()
    assert world.coordinator.timed_out("t", *ProducerIdAndEpoch.of(*second))
    assert pair_of(world.init(pair=second)) == (1000, 2)
    assert pair_of(world.init(pair=first)) == (1000, 2)


def test_both_protocols_in_turn() -> None:
    """A producer that speaks both, and a successor that speaks only the old one."""
    world = World(level=2)
    pair = pair_of(world.init())
    world.add(pair, A, version=2)
    assert pair_of(world.end(pair, version=4)) == pair
    world.add(pair, A, version=0)
    pair = pair_of(world.end(pair, version=5))
    assert pair == (1000, 1)
    assert world.end(pair, commit=False, version=4).error == ErrorCode.INVALID_TXN_STATE
    assert pair_of(world.end(pair, version=4)) == pair
    assert [marker[1::3] for marker, _ in world.markers.written] == [(0, 0), (1, 2)]
