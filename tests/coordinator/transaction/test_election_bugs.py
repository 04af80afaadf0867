"""Bugs of coordinators that win and lose their journal (facts §13.2), each under its number."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinator.transaction.transaction_doubles import A, World, pair_of

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import LeaderEpoch
from fencepost.runtime import at_once


def elect(world: World) -> int:
    """The node wins the journal partition of "t" once more; its number."""
    index = world.coordinator.partition_for("t")
    journal = world.storage.journals[index]
    journal.leader_epoch = LeaderEpoch(journal.leader_epoch + 1)
    return index


async def let_it_run() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize("resigns", [True, False])
def test_kafka_16352_results_of_an_older_load_are_for_nobody(resigns: bool) -> None:
    """Not even for the journal; and those of the newer load are not lost for it."""

    async def scenario() -> None:
        world = World()
        pair = pair_of(world.init())
        world.add(pair)
        world.markers.remote = True
        world.end(pair)
        index = elect(world)
        if resigns:
            world.coordinator.resign(index)
        world.coordinator.load(index)
        assert world.state() == "PrepareCommit"
        older, newer = world.markers.waiting
        older.set_result({A: ErrorCode.NONE})
        await let_it_run()
        assert world.state() == "PrepareCommit"
        last = world.journal("t").last
        assert last is not None and last.state.wire_name == "PrepareCommit"
        newer.set_result({A: ErrorCode.NONE})
        await let_it_run()
        assert world.state() == "CompleteCommit"

    asyncio.run(scenario())


def test_kafka_18137_resigning_an_older_election_leaves_the_newer_one_alone() -> None:
    world = World()
    pair = pair_of(world.init())
    index = elect(world)
    newer = world.storage.journals[index].leader_epoch
    world.coordinator.load(index)
    world.coordinator.resign(index, LeaderEpoch(newer - 1))
    assert world.add(pair) == ErrorCode.NONE
    world.coordinator.resign(index, LeaderEpoch(newer))
    assert world.add(pair) == ErrorCode.NOT_COORDINATOR
    world.coordinator.resign(index, LeaderEpoch(newer))


@pytest.mark.parametrize("told", [True, False])
def test_a_load_of_what_was_resigned_meanwhile_is_not_published(told: bool) -> None:
    world = World()
    pair_of(world.init())
    index = elect(world)
    reading = world.coordinator.start_loading(index)
    assert reading is not None
    world.coordinator.resign(index, world.storage.journals[index].leader_epoch if told else None)
    at_once(reading)
    assert world.coordinator.describe("t").error == ErrorCode.NOT_COORDINATOR
    assert not world.coordinator.is_loading("t")


def test_kafka_18137_resigning_an_older_election_does_not_end_the_load_of_the_newer_one() -> None:
    world = World()
    pair = pair_of(world.init())
    world.add(pair)
    index = elect(world)
    loading = world.coordinator.start_loading(index)
    world.coordinator.resign(index, LeaderEpoch(world.storage.journals[index].leader_epoch - 1))
    assert world.add(pair) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert loading is not None
    at_once(loading)
    assert world.state() == "Ongoing"
    assert world.add(pair) == ErrorCode.NONE


def test_kafka_15468_a_repeated_election_does_not_load_again() -> None:
    world = World()
    pair = pair_of(world.init())
    world.add(pair)
    index = world.coordinator.partition_for("t")
    assert world.coordinator.start_loading(index) is None
    assert world.add(pair) == ErrorCode.NONE
    loading = world.coordinator.start_loading(elect(world))
    assert loading is not None
    assert world.coordinator.start_loading(index) is None, "it is being loaded already"
    at_once(loading)
    assert world.state() == "Ongoing"


def test_nobody_acts_on_what_an_older_election_knew() -> None:
    """While the newer one is loaded, what the older one knows may be out of date."""
    world = World()
    pair = pair_of(world.init())
    world.add(pair)
    loading = world.coordinator.start_loading(elect(world))
    before = list(world.journal("t").batches)
    for told in (world.add(pair), world.end(pair).error, world.init().error):
        assert told == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.tick(world.clock.advance(60_001))
    assert world.journal("t").batches == before
    assert loading is not None
    at_once(loading)
    assert world.state() == "Ongoing"
    world.tick(world.clock.now())
    assert world.state() == "CompleteAbort"


def test_what_a_coordinator_finds_when_it_takes_over_may_not_be_durable_yet() -> None:
    """Its answers wait for what the one before wrote last, also where an id is not there."""
    world = World()
    world.add(pair_of(world.init()))
    written, index = world.storage.lsn, elect(world)
    other = next(name for n in range(1000) if world.coordinator.partition_for(name := f"other-{n}") == index)
    world.coordinator.load(index)
    assert world.storage.lsn == written
    assert world.coordinator.describe("t").lsn == world.coordinator.describe(other).lsn == written
