"""A row that can never be written ends its batch at the first attempt."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from tests.spark.test_driver import Bench, Tasks, batch, in_world

from fencepost.client import Admin
from fencepost.client.admin.configs import ConfigChange
from fencepost.simulation.world import ADDRESS
from fencepost.spark.attempt import Plan, RowError
from fencepost.spark.claims import Written
from fencepost.spark.driver import Step, WriteFailed

TOO_LARGE = (
    r"was tried 1 times .* RowError: a row is larger by itself than its topic takes: .*2070 bytes, max\.message\.bytes "
    r"is 1000\. Make the row smaller, or raise max\.message\.bytes of the topic$"
)


class Refusing(Tasks):
    """Has a row for a partition that is not there, behind rows that are written."""

    async def run_tasks(self, plan: Plan) -> Sequence[Written]:
        await super().run_tasks(plan)
        raise RowError("topic out has no partition 9")


@pytest.mark.parametrize("level", [2, 1])
def test_a_row_that_can_never_be_written_is_not_tried_again(level: int) -> None:
    async def test(bench: Bench) -> None:
        driver, tasks = bench.driver(), Refusing(bench, b"no")
        for number in range(2):
            with pytest.raises(WriteFailed, match=r"was tried 1 times .* RowError: topic out has no partition 9"):
                await driver.write(batch(0), 2, False, tasks)
            assert len(tasks.plans) == number + 1
        assert tasks.steps == []
        put_right = Tasks(bench, b"yes")
        assert await driver.write(batch(0), 2, False, put_right)
        assert put_right.steps == [Step.WRITTEN, Step.COMMITTED]
        assert await bench.values() == [b"yes", b"yes"]

    in_world(test, level)


@pytest.mark.parametrize("level", [2, 1])
def test_a_record_that_is_larger_than_its_topic_takes_is_not_tried_again(level: int) -> None:
    async def test(bench: Bench) -> None:
        async with Admin(ADDRESS, runtime=bench.world.runtime("limits")) as admin:
            await admin.alter_topic_config("out", ConfigChange({"max.message.bytes": "1000"}))
        driver, tasks = bench.driver(), Tasks(bench, b"small", random.Random(1).randbytes(2000))
        with pytest.raises(WriteFailed, match=TOO_LARGE):
            await driver.write(batch(0), 2, False, tasks)
        assert len(tasks.plans) == 1
        assert await driver.write(batch(0), 2, False, Tasks(bench, b"small"))
        assert await bench.values() == [b"small", b"small"]

    in_world(test, level)
