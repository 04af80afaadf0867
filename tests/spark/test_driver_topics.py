"""A topic that a micro-batch is written to is deleted, or made anew, meanwhile, or takes small record batches only."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.spark.test_driver import PLACES, Bench, Tasks, batch, in_world

from fencepost.client import Admin
from fencepost.client.admin.configs import ConfigChange
from fencepost.client.errors import ClientError, ConnectionLostError, UnreachableError
from fencepost.protocol.records import BatchBuilder
from fencepost.simulation.world import ADDRESS
from fencepost.spark.attempt import BATCH_BYTES, Plan, claim
from fencepost.spark.claims import Written
from fencepost.spark.driver import Driver, Step, WriteFailed
from fencepost.spark.progress import TOPIC, Progress


class Deleting(Tasks):
    """Deletes the topic behind the first attempt at this slot, and makes it again."""

    def __init__(self, bench: Bench, slot: int, again: bool, *values: bytes) -> None:
        super().__init__(bench, *values)
        self._slot: int | None = slot
        self._again = again

    async def attempt(self, plan: Plan, slot: int, attempt_number: int = 0) -> list[Written]:
        written = await super().attempt(plan, slot, attempt_number)
        if slot == self._slot:
            self._slot = None
            async with Admin(ADDRESS, runtime=self._bench.world.runtime("deletes")) as admin:
                await admin.delete_topic("out")
                if self._again:
                    await admin.create_topic("out", partitions=2)
        return written


@pytest.mark.parametrize("level", [2, 1])
@pytest.mark.parametrize("slot", [0, 1])
def test_a_batch_is_written_again_to_a_topic_that_was_made_anew_meanwhile(slot: int, level: int) -> None:
    """What its tasks wrote before is gone with the old one, whichever of them had not begun by then."""

    async def test(bench: Bench) -> None:
        driver, tasks = bench.driver(), Deleting(bench, slot, True, b"a", b"b")
        assert await driver.write(batch(0), 2, False, Tasks(bench, b"gone"))
        assert await driver.write(batch(1), 2, False, tasks)
        assert tasks.steps == [Step.WRITTEN, Step.REPEATED, Step.WRITTEN, Step.COMMITTED]
        assert await bench.values() == [b"a", b"a", b"b", b"b"]

    in_world(test, level)


def test_a_batch_is_not_committed_whose_topic_was_deleted_meanwhile() -> None:
    async def test(bench: Bench) -> None:
        driver = bench.driver()
        with pytest.raises(WriteFailed, match="topic 'out' was deleted while this batch was written"):
            await driver.write(batch(0), 2, False, Deleting(bench, 1, False, b"a"))
        assert await bench.progress() is None
        async with Admin(ADDRESS, runtime=bench.world.runtime("makes")) as admin:
            await admin.create_topic("out", partitions=2)
        assert await driver.write(batch(0), 2, False, Tasks(bench, b"row"))
        assert await bench.values() == [b"row", b"row"]

    in_world(test)


class Full(Tasks):
    """Each slot writes one batch that is as full as it may be."""

    async def attempt(self, plan: Plan, slot: int, attempt_number: int = 0) -> list[Written]:
        cluster, records = self._bench.cluster(f"slot {slot}"), BatchBuilder()
        while records.append(0, None, b"v" * 100, (), plan.batch_bytes):
            pass
        attempt = await claim(cluster, plan, slot, attempt_number)
        try:
            await attempt.write(PLACES[slot], records)
            return await attempt.finish(records.count)
        finally:
            await attempt.close()
            await cluster.close()


@pytest.mark.parametrize("level", [2, 1])
def test_batches_are_as_large_as_the_topic_takes_them(level: int) -> None:
    """Also where it takes less than when the query began, after an attempt that did not know; a new query knows."""

    async def test(bench: Bench) -> None:
        driver, sizes = bench.driver(), list[int]()
        async with Admin(ADDRESS, runtime=bench.world.runtime("limits")) as admin:
            for number, limit in enumerate((None, 60_000, 5000)):
                if limit is not None:
                    await admin.alter_topic_config("out", ConfigChange({"max.message.bytes": str(limit)}))
                tasks = Full(bench)
                assert await driver.write(batch(number), 2, False, tasks)
                assert len(tasks.plans) == (1 if limit is None else 2)
                sizes.append(tasks.plans[-1].batch_bytes)
        assert sizes == [BATCH_BYTES, 52_500, 4375]
        successor = Full(bench)
        assert await bench.driver("successor").write(batch(3), 2, False, successor)
        assert [plan.batch_bytes for plan in successor.plans] == [4375]

    in_world(test, level)


@pytest.mark.parametrize("level", [2, 1])
def test_a_topic_of_progress_that_is_deleted_is_not_made_by_a_write(level: int) -> None:
    """It would be made with the settings of any other, and lose records of queries that pause."""

    async def test(bench: Bench) -> None:
        async def delete(_: Plan) -> None:
            async with Admin(ADDRESS, runtime=bench.world.runtime("deletes")) as admin:
                await admin.delete_topic(TOPIC)

        record = Progress.of("query", 1, [{"in": {"0": 9}}], [{"in": {"0": 5}}])
        driver, tasks = bench.driver(), Tasks(bench, b"row")
        assert await driver.write(batch(0), 2, False, Tasks(bench, b"first"))
        tasks.between = delete
        with pytest.raises(ClientError):
            await driver.write(record, 2, False, tasks)
        with pytest.raises(WriteFailed, match=r"accept_gap=True .* only the topic 'fencepost\.progress' was deleted"):
            await driver.write(record, 2, False, tasks)
        assert await bench.values() == [b"first", b"first"]

    in_world(test, level)


def test_who_looks_for_topics_while_there_is_no_connection_pauses_before_each_try() -> None:
    """And so for as long as its deadline says."""
    lost, paused = [ConnectionLostError("lost"), UnreachableError("nobody listens")], list[object]()

    async def refresh(_: object) -> Any:
        if len(paused) < len(lost):
            raise lost[len(paused)]
        return SimpleNamespace(topics=[SimpleNamespace(name="out", topic_id="id", error_code=0)])

    async def pause(because: object) -> None:
        assert len(paused) < 5
        paused.append(because)

    driver: Any = SimpleNamespace(_cluster=SimpleNamespace(refresh=refresh))
    deadline: Any = SimpleNamespace(pause=pause)

    async def look_up() -> dict[str, str]:
        async with asyncio.timeout(5):
            return await Driver._look_up(driver, ["out"], deadline)

    assert asyncio.run(look_up()) == {"out": "id"}
    assert paused == lost
