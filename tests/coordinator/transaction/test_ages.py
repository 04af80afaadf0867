"""What the coordinator does when time is up: transactions that time out, and transactional ids that expire."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from tests.coordinator.transaction.transaction_doubles import A, World, pair_of

from fencepost.coordinator.transaction.transaction import NO_TIMEOUT
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Milliseconds, ProducerId


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.promise("2014.time-out")
def test_time_out(world: World) -> None:
    pair = pair_of(world.init(timeout_ms=Milliseconds(1500)))
    world.add(pair)
    world.tick(world.clock.advance(1500))
    assert world.state() == "Ongoing"
    world.tick(world.clock.advance(1))
    assert world.state() == "CompleteAbort"
    assert world.coordinator.metrics.timed_out == 1
    assert world.markers.written == [((1000, 1, 3, False, 2), A)]


def test_an_alarm_is_for_the_transaction_that_is_open_when_it_rings(world: World) -> None:
    pair = pair_of(world.init(timeout_ms=Milliseconds(1000)))
    for _ in range(10):
        world.add(pair)
        world.clock.advance(150)
        pair = pair_of(world.end(pair))
    world.add(pair)
    world.tick(world.clock.advance(950))
    assert world.state() == "Ongoing"
    world.tick(world.clock.advance(51))
    assert world.state() == "CompleteAbort"


def test_a_time_out_that_cannot_be_written_is_tried_again(world: World) -> None:
    pair = pair_of(world.init(timeout_ms=Milliseconds(1000)))
    world.add(pair)
    world.journal("t").refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    world.tick(world.clock.advance(1001))
    assert world.state() == "Ongoing"
    world.journal("t").refuse = None
    world.tick(world.clock.advance(101))
    assert world.state() == "CompleteAbort"
    assert world.coordinator.describe("t").producer_epoch == 1, "bumped once (KAFKA-9666)"


def test_an_error_in_one_time_out_ends_neither_the_others_nor_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alarm rings once: what was not carried out would hold the last stable offset for ever."""
    for name in "tuv":
        world.add(pair_of(world.init(name, timeout_ms=Milliseconds(1000))), transactional_id=name)
    abort, failures = world.coordinator._abort_open, ["t", "u"]

    def fail_once(entry: Any, *rest: Any) -> None:
        if entry.transaction.transactional_id in failures:
            failures.remove(entry.transaction.transactional_id)
            raise OSError("the disk does not answer")
        abort(entry, *rest)

    monkeypatch.setattr(world.coordinator, "_abort_open", fail_once)
    world.tick(world.clock.advance(1001))
    assert [world.coordinator.describe(name).state for name in "tuv"] == ["Ongoing", "Ongoing", "CompleteAbort"]
    world.tick(world.clock.advance(1000))
    assert [world.coordinator.describe(name).state for name in "tuv"] == ["CompleteAbort"] * 3


@pytest.mark.promise("588.remembered")
def test_the_time_out_survives_a_fail_over(world: World) -> None:
    pair = pair_of(world.init(timeout_ms=Milliseconds(1000)))
    world.add(pair)
    world.clock.advance(900)
    world.fail_over()
    world.tick(world.clock.advance(100))
    assert world.state() == "Ongoing"
    world.tick(world.clock.advance(1))
    assert world.state() == "CompleteAbort"


def test_a_two_phase_commit_never_times_out() -> None:
    world = World(two_phase_commit=True)
    pair = pair_of(world.coordinator.init_producer_id("t", Milliseconds(-5), enable_2pc=True))
    world.add(pair)
    assert world.coordinator.describe("t").timeout_ms == NO_TIMEOUT
    for _ in range(2):
        world.tick(world.clock.advance(10**12))
        assert world.state() == "Ongoing"
        world.fail_over()
    assert pair_of(world.end(pair)) == (1000, 1)


def test_expired_ids_are_forgotten(world: World) -> None:
    open_pair = pair_of(world.init("open"))
    world.add(open_pair, transactional_id="open")
    world.coordinator.init_producer_id("open-2pc", Milliseconds(1000))
    week = world.settings.id_expiration_ms
    world.clock.advance(week - 1000)
    pair_of(world.init("young"))
    world.markers.answers = {A: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    world.tick(world.clock.advance(1000))
    assert [each.transactional_id for each in world.coordinator.list().transactions] == ["open", "young"]
    assert world.coordinator.metrics.expired == 1
    world.fail_over()
    assert sorted(each.transactional_id for each in world.coordinator.list().transactions) == ["open", "young"]
    assert world.add((1001, 0), transactional_id="open-2pc") == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_ids_expire_all_the_same_after_the_clock_was_set_back(world: World) -> None:
    """Else they would stay until it shows again what it showed then."""
    week = world.settings.id_expiration_ms
    world.tick(world.clock.advance(week))
    world.clock.advance(-10 * week)
    pair_of(world.init())
    for left in ("Empty", ""):
        world.tick(world.clock.advance(week - 1 if left else 1 + world.settings.expiry_interval_ms))
        assert world.state() == left


def test_expiry_that_cannot_be_written_forgets_nothing(world: World) -> None:
    pair_of(world.init())
    world.journal("t").refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    world.tick(world.clock.advance(world.settings.id_expiration_ms))
    assert world.state() == "Empty"
    world.journal("t").refuse = None
    world.tick(world.clock.advance(world.settings.expiry_interval_ms))
    assert world.state() == ""


def test_kafka_13099_many_tombstones_are_split() -> None:
    world = World(partitions=1)
    ids = [f"{'x' * 200}-{n}" for n in range(1000)]
    for transactional_id in ids:
        pair_of(world.init(transactional_id))
    journal = world.storage.journals[0]
    before = len(journal.batches)
    world.tick(world.clock.advance(world.settings.id_expiration_ms))
    tombstones = journal.batches[before:]
    assert len(tombstones) > 10
    assert max(map(len, tombstones)) <= 16_384
    assert world.coordinator.list().transactions == ()
    world.fail_over()
    assert world.coordinator.list().transactions == ()


def test_a_connection_that_closes_ends_only_what_its_own_producer_id_left_open(world: World) -> None:
    pair = pair_of(world.init())
    world.add(pair)
    for transactional_id, producer_id in (("t", 999), ("nobody", 1000)):
        world.coordinator.abort_abandoned(transactional_id, ProducerId(producer_id))
        assert world.state() == "Ongoing"
    world.coordinator.abort_abandoned("t", ProducerId(1000))
    assert world.state() == "CompleteAbort"


@pytest.mark.parametrize("order", [*permutations(("open", "commits", "aborts"))])
def test_of_the_ids_of_one_journal_none_is_left_behind_by_a_fail_over(order: Sequence[str]) -> None:
    world = World(partitions=1)
    pairs = {name: pair_of(world.init(name, timeout_ms=Milliseconds(1500))) for name in order}
    for name, pair in pairs.items():
        world.add(pair, transactional_id=name)
    world.markers.answers = {A: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    for name in order:
        if name != "open":
            world.end(pairs[name], name == "commits", transactional_id=name)
    world.markers.answers.clear()
    world.fail_over()
    states = {"open": "Ongoing", "commits": "CompleteCommit", "aborts": "CompleteAbort"}
    assert {name: world.state(name) for name in order} == states
    world.tick(world.clock.advance(1501))
    assert world.state("open") == "CompleteAbort"
