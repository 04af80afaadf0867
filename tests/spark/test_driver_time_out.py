"""Micro-batches that take longer than their transaction may be open: which setting to raise is said."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.spark.test_driver import Bench, Tasks, batch, in_world

from fencepost.client.errors import ProducerFencedError
from fencepost.client.transaction_errors import fenced_error
from fencepost.client.transactional_id import TransactionalId
from fencepost.spark.attempt import Plan
from fencepost.spark.driver import WriteFailed


@pytest.mark.parametrize("level", [2, 1])
@pytest.mark.parametrize(("seconds", "named"), [(59, False), (70, True)])
def test_a_batch_that_takes_too_long_is_told_which_setting_to_raise(level: int, seconds: int, named: bool) -> None:
    async def test(bench: Bench) -> None:
        async def dawdle(_: Plan) -> None:
            await asyncio.sleep(seconds)
            raise ValueError("slow")

        tasks = Tasks(bench, b"row")
        tasks.between = dawdle
        with pytest.raises(WriteFailed) as failed:
            await bench.driver(attempts=2).write(batch(0), 2, False, tasks)
        assert ("transaction_timeout_ms=60000 a transaction is aborted: raise that" in str(failed.value)) is named
        assert await bench.values() == []

    in_world(test, level)


@pytest.mark.parametrize(
    ("level", "late"), [(1, "Or nobody has: this took 7. s, .* start the query again$"), (2, "an id of its own$")]
)
def test_who_was_fenced_before_transaction_version_2_may_have_taken_too_long(
    monkeypatch: pytest.MonkeyPatch, level: int, late: str
) -> None:
    """Apache Kafka answers both alike there, and this is all that is known of it; after a short time it is fencing."""

    async def test(bench: Bench) -> None:
        async def fenced(_: TransactionalId, *__: Any) -> Any:
            raise fenced_error("app")

        for seconds, said in ((1, "an id of its own$"), (70, late)):
            driver, tasks = bench.driver(), Tasks(bench, b"row")

            async def dawdle(_: Plan, seconds: int = seconds) -> None:
                await asyncio.sleep(seconds)
                monkeypatch.setattr(TransactionalId, "end", fenced)

            tasks.between = dawdle
            with pytest.raises(ProducerFencedError, match=said):
                await driver.write(batch(0), 2, False, tasks)
            monkeypatch.undo()

    in_world(test, level)
