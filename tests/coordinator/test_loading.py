"""A journal is loaded with room for what is made of it and little more, however much of it counts."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.coordinator.group.group_doubles import World as GroupWorld
from tests.coordinator.transaction.transaction_doubles import World as TransactionWorld

from fencepost.coordinator.group import journal as group_journal
from fencepost.coordinator.group.journal_loading import Loading as GroupLoading
from fencepost.coordinator.group.offsets import CommittedOffset
from fencepost.coordinator.group.shards import GroupCoordinatorShard
from fencepost.coordinator.loading import JournalUnreadable, in_turn, taken_from
from fencepost.coordinator.transaction import journal as transaction_journal
from fencepost.coordinator.transaction.shards import Loading as TransactionLoading
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.log.producer_state import Origin
from fencepost.protocol.types import (
    NO_LEADER_EPOCH,
    Milliseconds,
    Offset,
    ProducerId,
    ProducerIdAndEpoch,
    TopicPartition,
)
from fencepost.runtime import Work

COUNT = 5_000


def offsets_of(producer: ProducerIdAndEpoch | None) -> GroupLoading:
    world = GroupWorld()
    for group in range(COUNT // 100):
        entries = [
            group_journal.offset_commit_entry(
                f"group-{group}",
                TopicPartition("topic", partition),
                CommittedOffset(Offset(group * 1000 + partition), NO_LEADER_EPOCH, "", Milliseconds(group)),
                Milliseconds(group),
            )
            for partition in range(100)
        ]
        batch = group_journal.batch(entries) if producer is None else group_journal.batch(entries, producer)
        world.journal.append(batch, Origin.COORDINATOR, Milliseconds(0))
    return GroupLoading(GroupCoordinatorShard(0, world.journal, world))


def transactions() -> TransactionLoading:
    world = TransactionWorld(partitions=1)
    log = world.journal("t")
    for number in range(COUNT):
        metadata = TransactionMetadata(f"transaction-{number}", ProducerId(number))
        log.append(transaction_journal.encode(metadata, 2), Origin.COORDINATOR, world.clock.now())
    return TransactionLoading(0, cast(Any, log), cast(Any, world.storage))


LOADINGS: dict[str, Callable[[], GroupLoading | TransactionLoading]] = {
    "committed offsets": lambda: offsets_of(None),
    "pending offsets": lambda: offsets_of(ProducerIdAndEpoch.of(1, 0)),
    "transactional ids": transactions,
}


@pytest.mark.parametrize("what", LOADINGS)
def test_no_record_is_kept_beside_what_it_was_decoded_to(what: str) -> None:
    loading = LOADINGS[what]()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        while not loading.step(16):
            pass
        shard = loading.shard
        del loading
        end, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert end - before > 100 * COUNT, f"all of it is in {shard}"
    assert (most - before) / (end - before) < 1.25


def test_values_come_in_their_order_and_each_is_forgotten_when_it_is_given() -> None:
    records = {number: object() for number in range(5)}
    expected = list(records.values())
    taken = taken_from(records)
    given = [next(taken)]
    assert not records
    given += taken
    assert given == expected


def test_journals_are_read_a_step_of_each_in_turn() -> None:
    """What is in a short one is answered for while a long one is being read; one that cannot be read keeps nobody."""
    steps: list[str] = []

    def reading(name: str, count: int, *, unreadable: bool = False) -> Work[None]:
        for _ in range(count):
            steps.append(name)
            yield
        if unreadable:
            raise JournalUnreadable("journal", 0, Offset(0), "damaged")
        steps.append(f"{name} is read")

    for _ in in_turn([reading("a", 4), reading("b", 2, unreadable=True), reading("c", 1)]):
        pass
    assert steps == ["a", "b", "c", "a", "b", "c is read", "a", "a", "a is read"]
