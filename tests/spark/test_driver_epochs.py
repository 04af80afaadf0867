"""Batches of a driver across the last epoch of its own id and of its slots, with a limit that is made small."""

from __future__ import annotations

import pytest
from tests.spark.test_driver import PLACES, Bench, Tasks, batch, in_world

from fencepost.client.errors import ClientError
from fencepost.client.shared_transaction import SharedTransaction
from fencepost.protocol.records import BatchBuilder
from fencepost.simulation.small_limits import lowered
from fencepost.spark import claims
from fencepost.spark.attempt import Plan
from fencepost.spark.driver import WriteCancelled, WriteFailed

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
            identities.add(driver.producer_id_and_epoch.producer_id)
        assert len(identities) > 1
        assert await bench.values() == sorted([b"%d" % number for number in range(BATCHES)] * 2)

    monkeypatch.setattr(claims, "LAST_CLIENT_EPOCH", LARGEST)
    with lowered({"largest epoch of a client": LARGEST}):
        in_world(test, level)


@pytest.mark.parametrize("level", [2, 1])
@pytest.mark.parametrize(("kind", "rows"), [(OSError, [b"row"]), (WriteCancelled, [b"row"]), (WriteCancelled, [])])
def test_a_task_that_is_late_writes_nothing_after_its_batch_was_given_up(
    kind: type[Exception], rows: list[bytes], level: int
) -> None:
    """Nobody begins another run, whose new epoch would stop it too: it would open a transaction, and nobody end it.

    `rows`: of each task that was not late; without any no transaction is open that could be aborted.
    """

    async def test(bench: Bench) -> None:
        async def fail(_: Plan) -> None:
            raise kind("gone")

        driver, tasks = bench.driver(attempts=1), Tasks(bench, *rows)
        tasks.between = fail
        with pytest.raises((WriteFailed, WriteCancelled)):
            await driver.write(batch(0), 2, False, tasks)
        cluster, records = bench.cluster("late"), BatchBuilder()
        records.append(0, None, b"late", ())
        late = SharedTransaction(cluster, tasks.plans[0].ticket)

        async def write() -> None:
            await late.write(PLACES[0], records)
            await late.finish()

        with pytest.raises(ClientError):
            await write()
        await late.close()
        await cluster.close()
        assert await driver.write(batch(0), 2, False, Tasks(bench, b"new"))
        assert await bench.values() == [b"new", b"new"]

    in_world(test, level)
