"""What one attempt at a task reports, whatever rows it is given."""

from __future__ import annotations

import pytest
from tests.spark.test_driver import Bench, Tasks, batch, in_world

from fencepost.client import Admin
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, World
from fencepost.spark.attempt import BATCH_BYTES, Plan, batch_bytes
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
