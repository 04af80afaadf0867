"""A journal that is loaded is one that is read record by record, whatever is superseded, and whenever markers come."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.coordinator.group.group_doubles import A, B, FakeJournal, World, virtual

from fencepost.coordinator.group import GroupCoordinator, journal
from fencepost.coordinator.group.classic.group import ClassicGroup, ClassicGroupState
from fencepost.coordinator.group.journal_loading import Loading
from fencepost.coordinator.group.offsets import CommittedOffset
from fencepost.coordinator.group.shards import GroupCoordinatorShard, stored_form
from fencepost.coordinator.loading import JournalUnreadable
from fencepost.log.partition import Appended
from fencepost.log.producer_state import Origin
from fencepost.protocol.batch import read_header
from fencepost.protocol.control import control_batch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import encode_batch
from fencepost.protocol.steps import Pace
from fencepost.protocol.types import (
    NO_LEADER_EPOCH,
    Epoch,
    LeaderEpoch,
    Milliseconds,
    Offset,
    ProducerId,
    ProducerIdAndEpoch,
)
from fencepost.runtime import at_once

GROUPS = ("g", "g2", "ü", "")


class Writing:
    """Writes a random journal."""

    def __init__(self, seed: int) -> None:
        self.random, self.log, self.time = Random(seed), FakeJournal(), Milliseconds(1_000)
        self._epochs = dict.fromkeys(range(3), 0)

    def step(self) -> None:
        self.time = Milliseconds(self.time + 1)
        dice, group, at = self.random.random(), self.random.choice(GROUPS), self.random.choice((A, B))
        committed = journal.offset_commit_entry(
            group, at, CommittedOffset(Offset(self.time), NO_LEADER_EPOCH, "m", self.time), self.time
        )
        if dice < 0.25:
            self._append(journal.batch([committed]))
        elif dice < 0.55:
            producer_id = self.random.randrange(3)
            self._append(journal.batch([committed], ProducerIdAndEpoch.of(producer_id, self._epochs[producer_id])))
        elif dice < 0.7:
            self.end(self.random.randrange(3))
        elif dice < 0.8:
            self._append(journal.batch([journal.offset_commit_tombstone(group, at, self.time)]))
        else:
            stored = stored_form(
                ClassicGroup(
                    group,
                    ClassicGroupState.EMPTY,
                    generation_id=Epoch(self.time),
                    protocol_type="consumer",
                    state_timestamp=self.time,
                )
            )
            value = None if dice < 0.9 else stored
            self._append(journal.batch([journal.group_entry(group, value, self.time)]))

    def end(self, producer_id: int) -> None:
        self._epochs[producer_id] += 1
        commit = self.random.random() < 0.5
        self._append(
            control_batch(ProducerId(producer_id), Epoch(self._epochs[producer_id]), LeaderEpoch(0), commit, self.time)
        )

    def _append(self, batch: bytes) -> None:
        assert isinstance(self.log.append(batch, Origin.COORDINATOR, self.time), Appended)


def told(shard: GroupCoordinatorShard) -> Any:
    """Everything that a shard knows."""
    groups = {name: (one.generation_id, one.protocol_type, one.state_timestamp) for name, one in shard.groups.items()}
    offsets = shard.offsets
    return groups, offsets._committed, offsets._open, {key: each for key, each in offsets._pending.items() if each}


@pytest.mark.parametrize("seed", range(150))
def test_the_last_record_of_a_key_says_it_all(seed: int) -> None:
    writing = Writing(seed)
    for _ in range(writing.random.randrange(60)):
        writing.step()
    loading = Loading(GroupCoordinatorShard(0, writing.log, World()))
    while not loading.step(writing.random.randrange(1, 5)):
        if writing.random.random() < 0.2:
            writing.end(writing.random.randrange(3))
    one_by_one = GroupCoordinatorShard(0, writing.log, World())
    for batch in writing.log.batches:
        one_by_one.read(read_header(batch), batch)
    assert told(loading.shard) == told(one_by_one)


@pytest.mark.parametrize("key", [b"\0\1\0\5g", b"\0\2\0\5g"])
def test_a_last_record_that_cannot_be_read_is_named(key: bytes) -> None:
    world = World()
    world.commit({A: 1})
    world.journal.append(encode_batch([(0, key, b"\0\3", ())]), Origin.COORDINATOR, Milliseconds(0))
    loading = Loading(GroupCoordinatorShard(7, world.journal, world))
    with pytest.raises(JournalUnreadable, match=r"__consumer_offsets-7 cannot be read at offset 1: "):
        loading.step(9)


def test_a_bit_that_flipped_in_a_marker_decides_no_offset() -> None:
    """A commit becomes an abort by one bit, and the other way round."""
    whole = control_batch(ProducerId(1), Epoch(0), LeaderEpoch(0), True, Milliseconds(5))
    for bit in _checked(whole):
        world = World()
        world.journal.append(
            journal.batch([an_offset()], ProducerIdAndEpoch.of(1, 0)), Origin.COORDINATOR, Milliseconds(5)
        )
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << (bit % 8)
        loading = Loading(GroupCoordinatorShard(7, world.journal, world))
        world.journal.batches.append(bytes(damaged))
        with pytest.raises(JournalUnreadable):
            loading.step(9)


def _checked(batch: bytes) -> list[int]:
    """Its bits but for offset, length, leader epoch and magic, which the log looks at, and an end below 0."""
    return [bit for bit in range(17 * 8, 8 * len(batch)) if bit != 23 * 8 + 7]


@pytest.mark.parametrize("producer", [None, ProducerIdAndEpoch.of(1, 0)], ids=["committed", "pending"])
def test_a_bit_that_flipped_in_an_offset_commits_no_other_one(producer: ProducerIdAndEpoch | None) -> None:
    whole = journal.batch([an_offset()]) if producer is None else journal.batch([an_offset()], producer)
    for bit in _checked(whole):
        world = World()
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << (bit % 8)
        world.journal.batches.append(bytes(damaged))
        with pytest.raises(JournalUnreadable, match="CRC"):
            Loading(GroupCoordinatorShard(7, world.journal, world)).step(9)


def an_offset() -> journal.Entry:
    """An offset of somebody."""
    return journal.offset_commit_entry(
        "g", A, CommittedOffset(Offset(1), NO_LEADER_EPOCH, "m", Milliseconds(1)), Milliseconds(1)
    )


def test_a_journal_that_is_being_read_or_was_read_is_not_read_again() -> None:
    world = World()
    coordinator = GroupCoordinator(world, world.clock, world.settings, Random(1))
    reading = coordinator.start_loading(0)
    assert reading is not None and coordinator.start_loading(0) is None
    at_once(reading)
    assert coordinator.start_loading(0) is None


def test_topics_that_are_deleted_while_a_journal_is_read_leave_no_offset() -> None:
    world = World()
    world.commit({A: 1, B: 2})
    coordinator = GroupCoordinator(world, world.clock, world.settings, Random(1))
    reading = coordinator.start_loading(0)
    assert reading is not None
    forgetting = coordinator.forget_topics([A.topic])
    for _ in range(10):
        assert next(forgetting, "over") != "over", "what a crash would bring back is not forgotten"
    at_once(reading)
    found_first = coordinator.fetch_offsets("g", None, False)
    assert list(found_first) == [B], "not even until it is forgotten for good"  # type: ignore[arg-type]
    at_once(forgetting)
    for each in (coordinator, world.restarted()):
        found = each.fetch_offsets("g", None, False)
        assert list(found) == [B]  # type: ignore[arg-type]


@virtual
async def test_members_of_a_group_that_is_being_read_stay_and_join_again() -> None:
    """As in Apache Kafka.  In these answers no client expects 14: aiokafka 0.14 gave up consuming over it."""
    world = World()
    generation, (member,) = await world.stable()
    world.coordinator.close()
    world.coordinator = GroupCoordinator(world, world.clock, world.settings, Random(1))
    reading = world.coordinator.start_loading(0)
    assert reading is not None
    assert world.heartbeat(member, generation) == ErrorCode.NONE
    assert (await world.sync(member, generation)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await world.join(member)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.leave((member, None)) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert dict(world.commit({A: 1}, who=(member, None, generation)).errors) == {
        A: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    }
    at_once(reading)
    assert world.heartbeat(member, generation) == ErrorCode.NONE
    assert world.heartbeat("nobody", generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_journal_that_cannot_be_read_keeps_no_topic_from_being_forgotten() -> None:
    world = World()
    world.journal.batches.append(journal.batch([an_offset()])[:-1] + b"?")
    coordinator = GroupCoordinator(world, world.clock, world.settings, Random(1))
    reading = coordinator.start_loading(0)
    assert reading is not None
    forgetting = coordinator.forget_topics([A.topic])
    next(forgetting)
    with pytest.raises(JournalUnreadable):
        at_once(reading)
    assert not at_once(forgetting), "nobody waits for what never comes, and it is not said to be forgotten"


def test_answers_depend_on_what_was_written_while_a_journal_was_read() -> None:
    world = World()
    world.commit_in_transaction((1, 0), {A: 1})
    coordinator = GroupCoordinator(world, world.clock, world.settings, Random(1))
    reading = coordinator.start_loading(0)
    assert reading is not None
    world.journal.append(
        control_batch(ProducerId(1), Epoch(0), LeaderEpoch(0), True, Milliseconds(5)),
        Origin.COORDINATOR,
        Milliseconds(5),
    )
    at_once(reading)
    assert coordinator.delete_group("nobody", Pace()).lsn == world.lsn
