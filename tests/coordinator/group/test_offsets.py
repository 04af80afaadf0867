"""Positions: memory is what the journal says, whoever reads it, and the most recent record wins."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coordinator.group.group_doubles import A, B, World, settled, virtual

from fencepost.coordinator.group import journal
from fencepost.coordinator.group.coordinator import CommitFor
from fencepost.coordinator.group.journal import OFFSET_KEY_VERSION
from fencepost.coordinator.group.offsets import CommittedOffset
from fencepost.coordinator.group.shards import MOST_APPENDED
from fencepost.protocol.batch import read_header
from fencepost.protocol.codec import decode_stored, encode_stored, stored_version
from fencepost.protocol.consumer_protocol import ConsumerProtocolSubscription
from fencepost.protocol.control import COMMIT, read_control_record
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import decode_batch
from fencepost.protocol.stored import OffsetCommitKey, OffsetCommitValue
from fencepost.protocol.types import NO_LEADER_EPOCH, Milliseconds, Offset, TopicPartition

GROUPS = ("g", "h")
PLACES = (A, B)
P = 10
"""A producer id."""


# The naive model: every question goes through the whole journal


class Event(NamedTuple):
    """A record of the journal: a committed offset (None: a tombstone), or a marker (`place` is None)."""

    offset: int
    producer_id: int
    place: tuple[str, TopicPartition] | None
    value: int | None


def events(world: World) -> list[Event]:
    found = []
    for batch in world.journal.batches:
        header = read_header(batch)
        producer_id = header.producer_id if header.is_transactional else -1
        if header.is_control:
            marker = read_control_record(batch)
            assert marker is not None
            found.append(Event(header.base_offset, producer_id, None, int(marker.type == COMMIT)))
            continue
        for record in decode_batch(batch):
            assert record.key is not None
            if stored_version(record.key) == OFFSET_KEY_VERSION:
                key = decode_stored(OffsetCommitKey, record.key)
                value = None if record.value is None else decode_stored(OffsetCommitValue, record.value).offset
                place = key.group, TopicPartition(key.topic, key.partition)
                found.append(Event(record.offset, producer_id, place, value))
    return found


def outcome(event: Event, journal: list[Event]) -> bool | None:
    """Whether a transactional record was committed; None while its transaction is open."""
    ends = [e for e in journal if e.place is None and e.producer_id == event.producer_id and e.offset > event.offset]
    return bool(ends[0].value) if ends else None


def expected(journal: list[Event], group: str, at: TopicPartition) -> tuple[int | None, bool]:
    """The committed offset, and whether a transaction may still change it."""
    records = [event for event in journal if event.place == (group, at)]
    cleared = max((event.offset for event in records if event.value is None), default=-1)
    records = [event for event in records if event.offset > cleared]
    counts = [event for event in records if event.producer_id < 0 or outcome(event, journal)]
    unstable = any(event.producer_id >= 0 and outcome(event, journal) is None for event in records)
    return max(counts, default=Event(0, 0, None, None)).value, unstable


def assert_all_agree(world: World) -> None:
    journal, again = events(world), world.restarted()
    for coordinator in (world.coordinator, again):
        world.coordinator, kept = coordinator, world.coordinator
        for group in GROUPS:
            listed = []
            for at in PLACES:
                committed, unstable = expected(journal, group, at)
                assert world.committed_offset(at, group) == committed, (group, at)
                stable = ErrorCode.UNSTABLE_OFFSET_COMMIT if unstable else committed
                assert world.committed_offset(at, group, stable=True) == stable, (group, at)
                listed += [at] if committed is not None else []
            assert list(_all(world, group)) == listed
        world.coordinator = kept


def _all(world: World, group: str) -> dict[TopicPartition, object]:
    found = world.coordinator.fetch_offsets(group, None, require_stable=False)
    assert isinstance(found, dict)
    return dict(found)


# Mostly the same place, where they meet.
group = st.sampled_from(("g", "g", "g", "h"))
places = st.sampled_from(({A}, {A}, {A}, {A, B}, {B}))
producer = st.integers(0, 1)
value = st.integers(0, 50)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), group, places, value),
        st.tuples(st.just("transactional"), producer, group, places, value),
        st.tuples(st.just("end"), producer, st.just(True)),
        st.tuples(st.just("end"), producer, st.booleans()),
        st.tuples(st.just("late marker"), producer, st.booleans()),
        st.tuples(st.just("delete offsets"), group, places),
        st.tuples(st.just("delete group"), group),
        st.tuples(st.just("refused"), group, places, value),
        st.tuples(st.just("restart")),
    ),
    max_size=30,
)


@settings(max_examples=200)
@given(steps)
def test_memory_and_a_reload_are_what_the_journal_says(history: list[tuple[object, ...]]) -> None:
    world, epochs = World(), {0: 1, 1: 1}
    for step in history:
        match step:
            case ("commit", str(name), set(at), int(offset)):
                assert set(world.commit(dict.fromkeys(at, offset), name).errors.values()) == {ErrorCode.NONE}
            case ("transactional", int(who), str(name), set(at), int(offset)):
                done = world.commit_in_transaction((who, epochs[who]), dict.fromkeys(at, offset), name)
                assert set(done.errors.values()) == {ErrorCode.NONE}
            case ("end", int(who), bool(commit)):
                epochs[who] += 1
                assert world.end((who, epochs[who]), commit) == ErrorCode.NONE
            case ("late marker", int(who), bool(commit)):
                before = world.journal.end
                answer = world.end((who, epochs[who] - 1), commit)
                # An equal epoch is a repeated marker, taken while nothing is open; it changes no committed offset.
                assert answer in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
                assert (world.journal.end > before) == (answer == ErrorCode.NONE)
            case ("delete offsets", str(name), set(at)):
                world.delete_offsets(*sorted(at), group=name)
            case ("delete group", str(name)):
                world.delete_group(name)
            case ("refused", str(name), set(at), int(offset)):
                world.journal.refuse = ErrorCode.KAFKA_STORAGE_ERROR
                answers = world.commit(dict.fromkeys(at, offset), name).errors
                assert set(answers.values()) == {ErrorCode.NOT_COORDINATOR}
                assert world.end((0, 99), True) == ErrorCode.KAFKA_STORAGE_ERROR
                world.journal.refuse = None
            case _:
                world.restart()
        assert_all_agree(world)


# The same, case by case


def test_the_most_recent_record_wins_and_not_the_most_recent_marker() -> None:
    """KAFKA-14505."""
    world = World()
    world.commit({B: 1})
    world.commit_in_transaction((P, 0), {A: 5})
    world.commit({A: 7})
    world.end((P, 1), commit=True)
    assert world.committed_offset(A) == 7
    world.commit_in_transaction((P, 1), {A: 9})
    world.commit_in_transaction((P, 1), {A: 8})
    world.end((P, 2), commit=True)
    assert world.committed_offset(A) == 8


def test_offsets_are_pending_until_the_marker() -> None:
    world = World()
    world.commit({A: 1})
    world.commit_in_transaction((P, 0), {A: 5, B: 6})
    assert (world.committed_offset(A), world.committed_offset(B)) == (1, None)
    assert (
        world.committed_offset(A, stable=True)
        == world.committed_offset(B, stable=True)
        == ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
    assert world.committed_offset(A, "h", stable=True) is None, "another group's"
    world.end((P, 1), commit=False)
    assert (world.committed_offset(A, stable=True), world.committed_offset(B, stable=True)) == (1, None)


def test_a_marker_of_an_older_transaction_does_not_touch_a_newer_one() -> None:
    world = World()
    world.commit_in_transaction((P, 0), {A: 5})
    world.end((P, 1), commit=True)
    world.commit_in_transaction((P, 1), {A: 6})
    for late in ((P, 0), (P, 1)):
        assert world.end(late, commit=True) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert world.end(late, commit=False) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.committed_offset(A) == 5
    assert world.committed_offset(A, stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    world.end((P, 2), commit=True)
    assert world.committed_offset(A) == 6


def test_a_commit_of_an_older_epoch_is_refused_and_leaves_nothing_pending() -> None:
    world = World()
    world.commit_in_transaction((P, 0), {A: 5})
    world.end((P, 1), commit=True)
    late = world.commit_in_transaction((P, 0), {A: 4})
    assert late.errors == {A: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert world.committed_offset(A, stable=True) == 5


def test_a_marker_without_offsets_changes_nothing() -> None:
    world = World()
    world.commit({A: 1})
    assert world.end((P, 3), commit=True) == ErrorCode.NONE
    assert world.committed_offset(A, stable=True) == 1


def test_two_producers_of_one_group_do_not_end_each_other() -> None:
    world = World()
    world.commit_in_transaction((P, 0), {A: 5})
    world.commit_in_transaction((P + 1, 0), {A: 6})
    world.end((P + 1, 1), commit=False)
    assert world.committed_offset(A, stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    world.end((P, 1), commit=True)
    assert world.committed_offset(A, stable=True) == 5


@pytest.mark.parametrize("transactional", [False, True])
def test_metadata_that_is_too_long_leaves_no_record(transactional: bool) -> None:
    """KAFKA-16371: nothing stays pending for it."""
    world = World(metadata_max_bytes=4)

    def commit(metadata: str) -> ErrorCode:
        if transactional:
            return world.commit_in_transaction((P, 0), {A: 5}, metadata=metadata).errors[A]
        return world.commit({A: 5}, metadata=metadata).errors[A]

    for long in ("12345", "ééééé", "😀😀e"):
        assert commit(long) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert (world.committed_offset(A, stable=True), world.journal.end) == (None, 0)
    for length_of_java in ("1234", "éééé", "😀😀"):
        assert commit(length_of_java) == ErrorCode.NONE, "as Apache Kafka counts: neither bytes nor characters"


@pytest.mark.parametrize("transactional", [False, True])
def test_what_is_committed_at_once_is_bounded(transactional: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one step: 5,000 partitions with metadata of 4 KB each kept everybody waiting for 0.1 s."""
    world = World(metadata_max_bytes=4096)
    places = {TopicPartition("t", number): number for number in range(MOST_APPENDED // 4096 + 1)}
    commit = partial(world.commit_in_transaction, (P, 0)) if transactional else world.commit
    with monkeypatch.context() as without:
        without.delattr(journal, "offset_commit_entry")  # what is refused is not even encoded
        assert set(commit(places, metadata="m" * 4096).errors.values()) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert not world.journal.batches
    assert set(commit(places, metadata="m" * 4000).errors.values()) == {ErrorCode.NONE}


@pytest.mark.parametrize("refused", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE])
def test_what_the_journal_refuses_is_not_remembered(refused: ErrorCode) -> None:
    """KAFKA-15784; and the error is one that a client of the coordinator knows."""
    world = World()
    told = {
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    }[refused]
    world.commit({A: 1})
    world.journal.refuse = refused
    assert world.commit({A: 2}).errors == {A: told}
    assert world.commit_in_transaction((P, 0), {A: 3}).errors == {A: told}
    assert world.delete_offsets(A) == told
    assert world.delete_group() == told
    assert world.committed_offset(A, stable=True) == 1


# Removal and expiry

DAY = 24 * 3600 * 1000


def test_a_committed_offset_expires_when_nobody_used_it_for_so_long() -> None:
    world = World(offsets_retention_ms=7 * DAY)
    world.commit({A: 1})
    world.clock.at += 3 * DAY
    world.commit({B: 2})
    world.clock.at += 4 * DAY
    world.tick(world.clock.now())
    assert (world.committed_offset(A), world.committed_offset(B)) == (None, 2)
    world.restart()
    assert (world.committed_offset(A), world.committed_offset(B)) == (None, 2)


def test_committed_offsets_of_every_group_expire_however_many_there_are() -> None:
    world, names = World(offsets_retention_ms=7 * DAY), [f"g{number}" for number in range(45)]
    for name in names:
        world.commit({A: 1}, name)
    world.clock.at += 7 * DAY
    world.tick(world.clock.now())
    assert [world.committed_offset(A, name) for name in names] == [None] * 45


@pytest.mark.parametrize("restarts", [False, True])
@virtual
async def test_with_members_nothing_expires_and_without_each_when_its_commit_said(restarts: bool) -> None:
    """KAFKA-4682: a group counts as unused from when its last member left."""
    world = World(offsets_retention_ms=7 * DAY)
    generation, (member,) = await world.stable()
    own = CommittedOffset(
        Offset(2), NO_LEADER_EPOCH, "", world.clock.now(), expire_timestamp=Milliseconds(world.clock.now() + 9 * DAY)
    )
    who = CommitFor("g", member, None, generation)
    assert dict(world.coordinator.commit_offsets(who, {B: own}).errors) == {B: ErrorCode.NONE}
    world.commit({A: 1}, who=(member, None, generation))
    world.clock.at += 30 * DAY
    world.tick(world.clock.now())
    assert (world.committed_offset(A), world.committed_offset(B)) == (1, 2)
    assert world.leave((member, None)) == [ErrorCode.NONE]
    if restarts:
        world.restart()
    world.tick(world.clock.now())
    assert (world.committed_offset(A), world.committed_offset(B)) == (1, None)
    world.clock.at += 7 * DAY
    world.tick(world.clock.now())
    assert world.committed_offset(A) is None


@virtual
async def test_with_members_only_offsets_of_topics_that_they_do_not_read_expire() -> None:
    world = World(offsets_retention_ms=7 * DAY)
    reads_a = encode_stored(ConsumerProtocolSubscription(topics=[A.topic]), 1)
    generation, (member,) = await world.stable(protocols={"range": reads_a})
    world.commit({A: 1, B: 2}, who=(member, None, generation))
    world.clock.at += 7 * DAY - 1
    world.tick(world.clock.now())
    assert (world.committed_offset(A), world.committed_offset(B)) == (1, 2)
    world.commit_in_transaction((P, 0), {B: 3})
    world.clock.at += 1
    world.tick(world.clock.now())
    assert (world.committed_offset(A), world.committed_offset(B)) == (1, 2), "a transaction may change it"
    world.end((P, 1), commit=False)
    world.tick(world.clock.now())
    assert (world.committed_offset(A), world.committed_offset(B)) == (1, None)
    assert world.state() == "Stable"
    world.restart()
    assert (world.committed_offset(A), world.committed_offset(B)) == (1, None)


@virtual
async def test_nothing_expires_while_it_is_not_known_what_members_read() -> None:
    reads_a = encode_stored(ConsumerProtocolSubscription(topics=[A.topic]), 1)
    for protocol_type, metadata, rebalances in (
        ("consumer", b"?", 0),
        ("connect", reads_a, 0),
        ("consumer", reads_a, 1),
    ):
        world = World(offsets_retention_ms=7 * DAY)
        how: dict[str, Any] = {"protocols": {"range": metadata}, "protocol_type": protocol_type}
        generation, (member,) = await world.stable(**how)
        world.commit({A: 1, B: 2}, who=(member, None, generation))
        waiting = asyncio.ensure_future(world.join_as_new(**how)) if rebalances else None
        await settled()
        assert world.state() == ("PreparingRebalance" if rebalances else "Stable")
        world.clock.at += 7 * DAY
        world.tick(world.clock.now())
        assert (world.committed_offset(A), world.committed_offset(B)) == (1, 2)
        if waiting is not None:
            waiting.cancel()


def test_a_committed_offset_that_a_transaction_may_change_does_not_expire() -> None:
    """KAFKA-19163: nor is its group forgotten."""
    world = World(offsets_retention_ms=7 * DAY)
    world.commit({A: 1})
    world.commit_in_transaction((P, 0), {A: 2})
    world.clock.at += 30 * DAY
    world.tick(world.clock.now())
    assert world.committed_offset(A) == 1
    world.end((P, 1), commit=True)
    assert world.committed_offset(A) == 2


def test_deleting_a_group_deletes_what_is_pending_too() -> None:
    world = World()
    world.commit({A: 1})
    world.commit_in_transaction((P, 0), {A: 2, B: 3})
    assert world.delete_group() == ErrorCode.NONE
    assert (world.committed_offset(A, stable=True), world.committed_offset(B, stable=True)) == (None, None)
    world.end((P, 1), commit=True)
    assert (world.committed_offset(A), world.committed_offset(B)) == (None, None)
    assert world.delete_group() == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_offset_that_is_deleted_does_not_come_back_with_the_transaction() -> None:
    world = World()
    world.commit_in_transaction((P, 0), {A: 2, B: 3})
    assert world.delete_offsets(A) == {A: ErrorCode.NONE}
    world.end((P, 1), commit=True)
    for _ in range(2):
        assert (world.committed_offset(A), world.committed_offset(B)) == (None, 3)
        world.restart()


def test_all_offsets_are_the_committed_ones_stable_or_not() -> None:
    world = World()
    world.commit({A: 1})
    world.commit_in_transaction((P, 0), {B: 2})
    assert list(_all(world, "g")) == [A]
    stable = world.coordinator.fetch_offsets("g", None, require_stable=True)
    assert isinstance(stable, dict) and list(stable) == [A]
    world.commit_in_transaction((P, 0), {A: 3})
    found = world.coordinator.fetch_offsets("g", None, require_stable=True)
    assert found == {A: ErrorCode.UNSTABLE_OFFSET_COMMIT}
