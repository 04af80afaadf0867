"""What one Fetch reads and waits for, a step at a time."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.log.log_doubles import Node, append, batch, run

from fencepost.broker.apis.fetch import _wait
from fencepost.broker.leader.fetch_plan import FetchPlan, Found, _check_epoch
from fencepost.broker.leader.fetch_sessions import Asked, Fetching
from fencepost.broker.network.pacing import HandlerSteps
from fencepost.broker.network.turns import Deadlines, Turns
from fencepost.log.partition import Refused
from fencepost.log.storage import Storage
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import FetchRequest
from fencepost.protocol.messages.fetch import EpochEndOffset, FetchPartition
from fencepost.protocol.steps import Pace
from fencepost.protocol.types import Isolation


@pytest.mark.parametrize(
    ("known", "error"),
    [
        (-1, None),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (5, None),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_reader_that_knows_another_epoch_is_told_who_is_behind(known: int, error: ErrorCode | None) -> None:
    partition: Any = SimpleNamespace(leader_epoch=5)
    assert _check_epoch(known, cast(Any, partition)) is (error or partition)


class EveryItemAStep(Pace):
    """Somebody else may be served before each thing that is looked at."""

    def is_used_up(self, units: int) -> bool:
        return units > 0


def plan_for_the_end_of(storage: Storage, partitions: int, min_bytes: int) -> tuple[FetchPlan, Any]:
    """The plan of a Fetch in a session that has everything of these partitions, and the node that it is for."""
    topic_id, turns = next(storage.partitions()).topic_id, Turns()
    reads = []
    for number in range(partitions):
        wanted = FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000)
        reads.append(Asked(("t", number), "t", topic_id, wanted))
        reads[-1].high_watermark = reads[-1].log_start_offset = 0
    node: Any = SimpleNamespace(
        storage=storage,
        turns=turns,
        deadlines=Deadlines(turns),
        largest_answer=10_000,
        answer_memory=SimpleNamespace(left=lambda _: 10_000),
    )
    request = FetchRequest(max_wait_ms=1000, min_bytes=min_bytes, max_bytes=10_000, topics=[])
    fetching = Fetching(reads, by_id=False, session=cast(Any, "of a reader who knows all that there is"))
    return FetchPlan(request, fetching, cast(Any, SimpleNamespace(may=lambda *_: True)), node), node


def fetched(plan: FetchPlan, node: Any) -> HandlerSteps[Found]:
    """As `fetch` has it read, for a reader who waits for an hour."""
    pace = EveryItemAStep()
    yield from plan.look_up(pace)
    found = yield from plan.read(pace)
    if found.size >= plan.min_bytes:
        return found
    yield from _wait(plan, node, asyncio.get_running_loop().time() + 3600, pace)
    return (yield from plan.read(pace))


@pytest.mark.parametrize("written", [[0], [2], [0, 2], [2, 0], [1, 1]])
@pytest.mark.parametrize("at", range(16))
def test_a_record_that_comes_while_partitions_are_looked_at_in_steps_ends_the_wait(at: int, written: list[int]) -> None:
    """Each of them is in the answer, whenever they come; those of which there is nothing new are not."""

    async def main() -> None:
        log, left = Node(partitions=[("t", 0), ("t", 1), ("t", 2)], flush="os"), list(written)
        plan, node = plan_for_the_end_of(log.storage, 3, len(batch()) * len(written))

        def write() -> None:
            partition = log.storage.partition("t", left.pop(0))
            assert partition is not None
            append(partition, batch())

        steps, pauses = fetched(plan, node), 0
        while True:
            try:
                pause = next(steps)
            except StopIteration as done:
                found: Found = done.value
                break
            if isinstance(pause, asyncio.Future):
                while not pause.done():
                    write()
            elif pauses >= at and left:
                write()
            pauses += 1
        assert not left
        assert [asked.key[1] for asked, _ in found.results] == sorted(set(written))
        assert found.size == plan.min_bytes
        for partition in log.storage.partitions():
            assert not partition._waiters

    run(main())


class Shortened:
    """Stands for a partition whose log starts at 1.  Leader epoch 3 ended at 2, and 5 followed."""

    log_start_offset, high_watermark, last_stable_offset = 1, 4, 4

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        assert epoch == 4
        return 3, 2

    def read(self, offset: int, *_: object, **__: object) -> Refused:
        assert offset < self.log_start_offset
        return Refused(ErrorCode.OFFSET_OUT_OF_RANGE)


@pytest.mark.parametrize(("offset", "parted"), [(0, False), (1, True), (2, True), (3, True)])
def test_a_reader_before_the_start_is_told_that_and_one_behind_it_where_it_parted(offset: int, parted: bool) -> None:
    """What is gone cannot be compared."""
    plan = FetchPlan.__new__(FetchPlan)
    plan.isolation = Isolation.READ_UNCOMMITTED
    wanted = FetchPartition(partition=0, fetch_offset=offset, last_fetched_epoch=4, partition_max_bytes=100)
    found, cost = plan._read_one(wanted, cast(Any, Shortened()), 100, first=True)
    assert cost == 0
    assert found.error_code == (ErrorCode.NONE if parted else ErrorCode.OFFSET_OUT_OF_RANGE)
    assert found.diverging_epoch == (EpochEndOffset(epoch=3, end_offset=2) if parted else None)


@pytest.mark.parametrize("known", [-1, 0, 5])
@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_where_a_reader_reads_is_the_topic_and_the_epoch_that_it_knows(known: int, by_id: bool, same: bool) -> None:
    """A topic that was made anew is another one to who names topics by ids, and the same to who does not."""
    asked_for = uuid.UUID(int=1)
    partition: Any = SimpleNamespace(leader_epoch=5, topic_id=asked_for if same else uuid.UUID(int=2))
    plan = FetchPlan.__new__(FetchPlan)
    plan._storage = cast(Any, SimpleNamespace(partition=lambda *_: partition))
    plan.fetching = Fetching([], by_id)
    wanted = FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=known, partition_max_bytes=1)
    found = plan._place(Asked(("t", 0), "t", asked_for, wanted), "t")
    if by_id and not same:
        assert found is ErrorCode.INCONSISTENT_TOPIC_ID
    else:
        assert found is (ErrorCode.FENCED_LEADER_EPOCH if known == 0 else partition)


@pytest.mark.parametrize(("least", "most", "waited_for"), [(1, 10, 1), (10, 10, 10), (11, 10, 10), (200, 300, 100)])
def test_nobody_waits_for_more_than_an_answer_may_have(least: int, most: int, waited_for: int) -> None:
    node: Any = SimpleNamespace(largest_answer=100, storage=None, answer_memory=None)
    request = FetchRequest(max_wait_ms=0, min_bytes=least, max_bytes=most, topics=[])
    assert FetchPlan(request, Fetching([], by_id=True), cast(Any, None), node).min_bytes == waited_for
