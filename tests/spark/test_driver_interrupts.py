"""A driver that is interrupted anywhere, and writes the same batch again: its rows are there once."""

from __future__ import annotations

from itertools import count

import pytest
from tests.spark.interrupts import interrupted
from tests.spark.test_driver import Bench, Tasks, batch, in_world

from fencepost.spark.attempt import Plan
from fencepost.spark.driver import Driver


@pytest.mark.parametrize("fails", [False, True])
def test_a_driver_that_is_interrupted_at_any_line_writes_each_batch_once(fails: bool) -> None:
    """Also where the batch is committed by then, or an attempt at it has failed."""

    async def test(bench: Bench) -> None:
        driver, done = bench.driver(), 0
        for number in count():
            tasks = Tasks(bench, b"%d" % number)

            async def fail_once(_: Plan, tasks: Tasks = tasks) -> None:
                if len(tasks.plans) == 1 and fails:
                    raise OSError("an executor is lost")

            tasks.between = fail_once
            try:
                with interrupted(number, Driver.write, Driver._try):
                    await driver.write(batch(number, number), 2, False, tasks)
            except KeyboardInterrupt:
                await driver.write(batch(number, number), 2, False, Tasks(bench, b"%d" % number))
            else:
                done = number
                break
        assert done > 20
        assert await bench.values() == sorted(b"%d" % number for number in range(done + 1) for _ in range(2))

    in_world(test)
