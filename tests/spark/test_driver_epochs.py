"""Batches of a driver across the last epoch of its own id and of its slots, with a limit that is made small."""

from __future__ import annotations

import pytest
from tests.spark.test_driver import Bench, Tasks, batch, in_world

from fencepost.simulation.small_limits import lowered
from fencepost.spark import claims

LARGEST = 3
BATCHES = 3 * LARGEST


@pytest.mark.parametrize("level", [2, 1])
@pytest.mark.parametrize("ahead", range(LARGEST))
def test_an_epoch_that_ends_costs_no_batch_an_attempt(ahead: int, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the two stand to each other: a query that was started again now and then is ahead of its slots."""

    async def test(bench: Bench) -> None:
        driver, identities = bench.driver(), set()
        for _ in range(ahead):
            driver = bench.driver()
            await driver.take_over(batch(0, 0), False)
        for number in range(BATCHES):
            tasks = Tasks(bench, b"%d" % number)
            assert await driver.write(batch(number, number), 2, False, tasks)
            assert len(tasks.plans) == 1
            identities.add(driver.identity.producer_id)
        assert len(identities) > 1
        assert await bench.values() == sorted([b"%d" % number for number in range(BATCHES)] * 2)

    monkeypatch.setattr(claims, "LAST_CLIENT_EPOCH", LARGEST)
    with lowered({"largest epoch of a client": LARGEST}):
        in_world(test, level)
