"""Bugs that other group coordinators had (facts §13.4), each under its number.

KAFKA-17507 and 18060 are asserted over the wire as well, in tests/broker/test_committed_offset_bugs.py.
"""

from __future__ import annotations

import pytest
from tests.coordinator.group.group_doubles import A, B, World, group_of, virtual

from fencepost.coordinator.group import CommitFor, CommittedOffset
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import NO_LEADER_EPOCH, Milliseconds, Offset, ProducerIdAndEpoch

P = 40
DAY = 24 * 3600 * 1000


@pytest.mark.parametrize("commit", [True, False])
def test_kafka_17507_a_marker_that_is_written_is_applied(commit: bool) -> None:
    """Not some time after it was said to be written."""
    world = World()
    world.commit({A: 1})
    world.commit_in_transaction((P, 0), {A: 2})
    assert world.end((P, 1), commit=commit) == ErrorCode.NONE
    assert world.committed_offset(A) == world.committed_offset(A, stable=True) == (2 if commit else 1)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("first", ["plain", "transactional"])
def test_kafka_14505_the_most_recent_record_wins_and_not_the_most_recent_marker(first: str, restarts: bool) -> None:
    world = World()
    world.commit({A: 1})
    if first == "plain":
        world.commit({A: 7})
    world.commit_in_transaction((P, 0), {A: 5, B: 5})
    if first == "transactional":
        world.commit({A: 7})
    if restarts:
        world.restart()
    world.end((P, 1), commit=True)
    if restarts:
        world.restart()
    won = 7 if first == "transactional" else 5
    assert (world.committed_offset(A, stable=True), world.committed_offset(B, stable=True)) == (won, 5)


@pytest.mark.parametrize("restarts", [False, True])
def test_kafka_16371_metadata_that_is_too_long_leaves_nothing_pending(restarts: bool) -> None:
    world = World(metadata_max_bytes=4)
    offsets = {
        A: CommittedOffset(Offset(5), NO_LEADER_EPOCH, "12345", Milliseconds(0)),
        B: CommittedOffset(Offset(6), NO_LEADER_EPOCH, "1234", Milliseconds(0)),
    }
    told = world.coordinator.commit_transactional_offsets(
        CommitFor("g", "", None, -1), offsets, ProducerIdAndEpoch.of(P, 0), None
    )
    assert told.errors == {A: ErrorCode.OFFSET_METADATA_TOO_LARGE, B: ErrorCode.NONE}
    if restarts:
        world.restart()
    assert world.committed_offset(A, stable=True) is None
    world.end((P, 1), commit=True)
    assert (world.committed_offset(A, stable=True), world.committed_offset(B, stable=True)) == (None, 6)


def test_kafka_16371_a_commit_of_nothing_but_metadata_that_is_too_long_leaves_nothing_pending() -> None:
    world = World(metadata_max_bytes=4)
    told = world.commit_in_transaction((P, 0), {A: 5, B: 6}, metadata="12345").errors
    assert told == dict.fromkeys((A, B), ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert (world.committed_offset(A, stable=True), world.committed_offset(B, stable=True)) == (None, None)


def test_kafka_15784_what_the_journal_refuses_is_not_pending() -> None:
    world = World()
    world.commit({A: 1})
    world.journal.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.commit_in_transaction((P, 0), {A: 3}).errors == {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert world.commit({A: 4}).errors == {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    world.journal.refuse = None
    assert world.committed_offset(A, stable=True) == 1
    world.end((P, 1), commit=True)
    assert world.committed_offset(A, stable=True) == 1


def test_kafka_15784_a_marker_that_is_refused_changes_no_offset() -> None:
    world = World()
    world.commit_in_transaction((P, 0), {A: 3})
    world.journal.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    for commit in (True, False):
        assert world.end((P, 1), commit=commit) == ErrorCode.KAFKA_STORAGE_ERROR
    world.journal.refuse = None
    assert world.committed_offset(A, stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    world.end((P, 1), commit=True)
    assert world.committed_offset(A, stable=True) == 3


@virtual
async def test_kafka_19163_a_group_whose_offsets_are_pending_is_not_forgotten() -> None:
    world = World(offsets_retention_ms=7 * DAY)
    generation, (member,) = await world.stable()
    world.commit({A: 1}, who=(member, None, generation))
    assert world.commit_in_transaction((P, 0), {B: 2}, who=(member, None, generation)).errors == {B: ErrorCode.NONE}
    assert world.leave((member, None)) == [ErrorCode.NONE]
    assert world.state() == "Empty"
    for _ in range(3):
        world.clock.at += 30 * DAY
        world.tick(world.clock.now())
        kept = group_of(world)
        assert (kept.state.value, kept.generation_id) == ("Empty", generation + 1), "B waits for its transaction"
    assert world.committed_offset(A) is None
    world.end((P, 1), commit=True)
    assert world.committed_offset(B, stable=True) == 2
    world.coordinator.close()


@pytest.mark.parametrize("commit", [True, False])
def test_kafka_19163_an_offset_that_a_transaction_may_change_does_not_expire(commit: bool) -> None:
    """It would be gone if the transaction is aborted."""
    world = World(offsets_retention_ms=7 * DAY)
    world.commit({A: 1})
    world.commit_in_transaction((P, 0), {A: 2})
    world.clock.at += 30 * DAY
    world.tick(world.clock.now())
    assert world.committed_offset(A) == 1
    world.end((P, 1), commit=commit)
    assert world.committed_offset(A, stable=True) == (2 if commit else 1)


@virtual
async def test_facts_13_7_13_one_wrong_generation_fails_every_partition() -> None:
    world = World()
    generation, (member,) = await world.stable()
    for wrong, error in [
        ((member, None, generation + 1), ErrorCode.ILLEGAL_GENERATION),
        (("stranger", None, generation), ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        assert world.commit_in_transaction((P, 0), {A: 1, B: 2}, who=wrong).errors == {A: error, B: error}
    assert world.coordinator.fetch_offsets("g", None, require_stable=True) == {}
    assert world.coordinator.commit_offsets(CommitFor("g", "stranger", None, generation), {}).errors == {}
    world.coordinator.close()
