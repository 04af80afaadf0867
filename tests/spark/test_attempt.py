"""What one attempt at a task reports, whatever rows it is given."""

from __future__ import annotations

import asyncio
from itertools import permutations
from typing import Any

import pytest
from tests.spark.test_driver import Bench, Tasks, batch, in_world
from tests.spark.test_sink import PLAN

from fencepost.client import Admin
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientError
from fencepost.client.shared_transaction import Ticket
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import Epoch, ProducerId, ProducerIdAndEpoch, TopicPartition
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, World
from fencepost.spark.attempt import BATCH_BYTES, Attempt, Plan, Receipt, Sending, batch_bytes
from fencepost.spark.claims import Written
from fencepost.spark.driver import Driver


class Some(Tasks):
    """Only tasks of these slots are given rows."""

    slots: tuple[int, ...] = ()

    async def attempt(self, plan: Plan, slot: int, attempt_number: int = 0) -> list[Written]:
        values = self._values
        self._values = values if slot in self.slots else ()
        try:
            found = await super().attempt(plan, slot, attempt_number)
        finally:
            self._values = values
        assert [each.rows for each in found] == [len(values) if slot in self.slots else 0]
        return found


class Noting(Tasks):
    """Tasks whose reports are kept."""

    def __init__(self, bench: Bench, *values: bytes) -> None:
        super().__init__(bench, *values)
        self.written: list[Written] = []

    async def attempt(self, plan: Plan, slot: int, attempt_number: int = 0) -> list[Written]:
        self.written += (found := await super().attempt(plan, slot, attempt_number))
        return found


@pytest.mark.parametrize("level", [2, 1])
@pytest.mark.parametrize("slots", [(), (0,), (1,)])
def test_a_task_that_is_given_no_rows_has_claimed_its_slot_all_the_same(slots: tuple[int, ...], level: int) -> None:
    """It says so, or the claim would be taken for another attempt's, and no batch with such a task be committed."""

    async def test(bench: Bench) -> None:
        driver = bench.driver()
        tasks = Some(bench, b"row")
        tasks.slots = slots
        assert await driver.write(batch(0, 1), 2, False, tasks)
        assert len(tasks.plans) == 1
        assert await bench.values() == [b"row"] * len(slots)
        assert await bench.progress() == batch(0, 1)

    in_world(test, level)


@pytest.mark.parametrize("level", [2, 1])
def test_slots_are_claimed_however_short_a_transaction_may_be(level: int) -> None:
    """A claim opens none, and what the cluster allows (transaction.max.timeout.ms) may be less than is usual."""

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1, {"transaction.max.timeout.ms": 2000})
        await world.start()
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.update_feature("transaction.version", level)
            await admin.create_topic("out", partitions=2)
        bench = Bench(world)
        driver = Driver(bench.cluster("driver"), "app", ["out"], transaction_timeout_ms=2000, attempts=1)
        assert await driver.write(batch(0, 1), 2, False, Tasks(bench, b"row"))
        await world.stop()

    run(main)


class Unanswered:
    """What is written here is acknowledged by hand."""

    record_too_large = False

    def __init__(self, *_: object, **__: object) -> None:
        self.offsets: list[asyncio.Future[int]] = []

    async def write(self, *_: object) -> asyncio.Future[int]:
        self.offsets.append(asyncio.get_running_loop().create_future())
        return self.offsets[-1]


@pytest.mark.parametrize("failed", range(3))
def test_a_place_is_acknowledged_when_every_batch_of_it_is(failed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several are on their way at once: that the last one is there does not say so of the others."""
    monkeypatch.setattr("fencepost.spark.attempt.SharedTransaction", Unanswered)
    monkeypatch.setattr("fencepost.spark.attempt.look_up_anew", lambda *_: asyncio.sleep(0))

    async def test() -> None:
        nowhere: Any = None
        sending, at = Sending(nowhere, PLAN), TopicPartition("out", 0)
        for _ in range(3):
            await sending.write(at, BatchBuilder())
        waiting = asyncio.ensure_future(sending.acknowledged(at))
        writer: Any = sending._writer
        for number, offset in enumerate(writer.offsets):
            if number != failed:
                offset.set_result(number)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        writer.offsets[failed].set_exception(ClientError("lost"))
        with pytest.raises(ClientError, match="lost"):
            await waiting

    asyncio.run(test())


def test_a_task_looks_its_topics_up_before_its_first_batch_and_not_before_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[object] = []

    async def look_up(_: object, names: object) -> None:
        looked_up.append(names)

    async def test() -> None:
        nowhere: Any = None
        sending = Sending(nowhere, PLAN)
        assert looked_up == []
        for _ in range(3):
            await sending.write(TopicPartition("t", 0), BatchBuilder())

    monkeypatch.setattr("fencepost.spark.attempt.SharedTransaction", Unanswered)
    monkeypatch.setattr("fencepost.spark.attempt.look_up_anew", look_up)
    asyncio.run(test())
    assert looked_up == [["t"]]


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ([], BATCH_BYTES),
        ([8000], 7000),
        ([8000, 80], 70),
        ([80, 8000], 70),
        ([2 * BATCH_BYTES], BATCH_BYTES),
        ([1 << 30, 8], 7),
        ([0], 1),
    ],
)
def test_every_topic_takes_a_batch_of_the_largest_size(limits: list[int], found: int) -> None:
    assert batch_bytes(limits) == found


@pytest.mark.parametrize("level", [2, 1])
def test_what_is_reported_of_a_place_is_where_its_records_are(level: int) -> None:
    """To the offset: behind a marker where there is one, and as much of it as was acknowledged."""

    async def test(bench: Bench) -> None:
        driver = bench.driver()
        for number, values in enumerate(((b"a", b"b", b"c"), (b"d",))):
            tasks = Noting(bench, *values)
            assert await driver.write(batch(number, number + 1), 2, False, tasks)
            first = 4 * number  # behind three records and a marker
            for found in tasks.written:
                assert (found.records, found.first_offset, found.last_offset) == (
                    *(len(values), first),
                    first + len(values) - 1,
                )

    in_world(test, level)


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_what_several_tasks_sent_to_a_place_is_reported_together_whoever_is_heard_of_first(
    order: tuple[int, ...],
) -> None:
    sent = [Receipt(3, 0, 4, 30), Receipt(2, 2, 9, 20), Receipt(1, 5, 5, 10)]
    at, other = TopicPartition("out", 0), TopicPartition("out", 1)

    async def main() -> None:
        plan = Plan("app", Ticket("app", ProducerIdAndEpoch.of(1, 0), True), {}, {"out": 2})
        attempt = Attempt(Cluster("127.0.0.1:1"), plan, 0, ProducerIdAndEpoch.of(2, 3))
        attempt.note(other, sent[1])
        for number in order:
            attempt.note(at, sent[number])
        claimed = (0, ProducerId(2), Epoch(3), 8)
        assert await attempt.finish(8) == [Written(*claimed, *at, 6, 0, 9, 60), Written(*claimed, *other, *sent[1])]
        await attempt.close()

    asyncio.run(main())
