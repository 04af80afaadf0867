"""The driver's steps against a real broker in the simulated world, without Spark."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from fencepost.client import Admin, Consumer
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ProducerFencedError, TimedOutError
from fencepost.client.transactional_id import TransactionalId
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, World
from fencepost.spark.attempt import Plan, PoisonedError, claim
from fencepost.spark.claims import Written
from fencepost.spark.driver import Driver, Step, WriteCancelled, WriteFailed
from fencepost.spark.progress import Progress, read_progress

T = TypeVar("T")
PLACES = [TopicPartition("out", number) for number in range(6)]


class Bench:
    """A world with a topic, drivers that write to it, and a reader."""

    def __init__(self, world: World) -> None:
        self.world = world

    def cluster(self, name: str) -> Cluster:
        return Cluster(ADDRESS, runtime=self.world.runtime(name), patience_ms=5000, request_timeout_ms=1000)

    def driver(self, name: str = "driver", attempts: int = 3, **more: Any) -> Driver:
        return Driver(self.cluster(name), "app", ["out"], transaction_timeout_ms=60_000, attempts=attempts, **more)

    async def values(self) -> list[bytes]:
        async with Consumer(bootstrap_servers=ADDRESS, runtime=self.world.runtime("reader")) as consumer:
            consumer.assign(PLACES[:2])
            found: list[bytes] = []
            for _ in range(5):
                found += [record.value or b"" for record in await consumer.poll(100)]
        return sorted(found)

    async def position(self) -> int | None:
        """Where the application's group is."""
        runtime = self.world.runtime("group")
        async with Consumer(bootstrap_servers=ADDRESS, group_id="app", runtime=runtime) as consumer:
            found = (await consumer.committed([TopicPartition("in", 0)]))[TopicPartition("in", 0)]
        return None if found is None else found.offset

    async def progress(self) -> Progress | None:
        cluster = self.cluster("look")
        found = await read_progress(cluster, "app")
        await cluster.close()
        return found


class Tasks:
    """Writes values to each place, one task each (spark.driver.Surroundings)."""

    def __init__(self, bench: Bench, *values: bytes) -> None:
        self._bench = bench
        self._values = values
        self.steps: list[Step] = []
        self.plans: list[Plan] = []
        self.between: Callable[[Plan], Awaitable[None]] | None = None
        """Called in each run when its tasks are done."""

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    def tell(self, step: Step, batch_id: int) -> None:  # noqa: ARG002
        self.steps.append(step)

    async def run_tasks(self, plan: Plan) -> Sequence[Written]:
        self.plans.append(plan)
        written = [found for slot in plan.slots for found in await self.attempt(plan, slot)]
        if self.between is not None:
            await self.between(plan)
        return written

    async def attempt(self, plan: Plan, slot: int, attempt_number: int = 0) -> list[Written]:
        cluster = self._bench.cluster(f"slot {slot}")
        try:
            attempt = await claim(cluster, plan, slot, attempt_number)
            for value in self._values:
                records = BatchBuilder()
                records.append(0, None, value, ())
                await attempt.write(PLACES[slot], records)
            found = await attempt.finish(len(self._values))
            await attempt.close()
        finally:
            await cluster.close()
        return found


def in_world(test: Callable[[Bench], Coroutine[Any, Any, None]], level: int = 2) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        await world.start()
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.update_feature("transaction.version", level)
            await admin.create_topic("out", partitions=2)
            await admin.create_topic("in", partitions=1)
        await test(Bench(world))
        await world.stop()

    run(main)


def batch(number: int, end: int | None = None, query: str = "query") -> Progress:
    return Progress.of(query, number, [] if end is None else [{"in": {"0": end}}])


@pytest.mark.parametrize("level", [2, 1])
def test_batches_are_written_one_after_the_other_and_each_once(level: int) -> None:
    async def test(bench: Bench) -> None:
        driver = bench.driver()
        for number in range(3):
            tasks = Tasks(bench, b"%d" % number)
            assert await driver.write(batch(number, number), 2, False, tasks)
            assert tasks.steps == [Step.WRITTEN, Step.COMMITTED]
            assert not await driver.write(batch(number, number), 2, False, tasks)
            assert tasks.steps[2:] == [Step.SKIPPED]
        assert await bench.values() == [b"0", b"0", b"1", b"1", b"2", b"2"]
        assert await bench.progress() == batch(2, 2)

    in_world(test, level)


@pytest.mark.parametrize("after", [1, 2])
def test_a_change_of_transaction_version_between_batches_costs_no_row(after: int) -> None:
    """Before level 2 a commit leaves the epoch as it is: what is written under it again is taken for a duplicate."""

    async def test(bench: Bench) -> None:
        driver = bench.driver()
        assert await driver.write(batch(0), 2, False, Tasks(bench, b"a"))
        async with Admin(ADDRESS, runtime=bench.world.runtime("admin")) as admin:
            await admin.update_feature("transaction.version", after)
        bench.world.network.break_connections(9092)
        await asyncio.sleep(0.1)
        await driver._cluster.refresh([])  # the new connection tells the new level
        assert await driver.write(batch(1), 2, False, Tasks(bench, b"b"))
        assert await bench.values() == [b"a", b"a", b"b", b"b"]

    in_world(test, 3 - after)


@pytest.mark.parametrize("level", [2, 1])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, asyncio.CancelledError])
def test_a_driver_that_was_interrupted_takes_over_anew(kind: type[BaseException], level: int) -> None:
    """The rows of the interrupted write were all there, under an epoch that is open."""

    async def test(bench: Bench) -> None:
        async def interrupt(_: Plan) -> None:
            raise kind

        driver, tasks = bench.driver(), Tasks(bench, b"old")
        assert await driver.write(batch(0), 2, False, Tasks(bench, b"first"))
        tasks.between = interrupt
        with pytest.raises(kind):
            await driver.write(batch(1), 2, False, tasks)
        again = Tasks(bench, b"new")
        assert await driver.write(batch(1), 2, False, again)
        assert (
            again.plans[0].ticket.producer_id_and_epoch.producer_epoch
            > tasks.plans[0].ticket.producer_id_and_epoch.producer_epoch
        )
        assert await bench.values() == [b"first", b"first", b"new", b"new"]

    in_world(test, level)


@pytest.mark.parametrize("level", [2, 1])
def test_a_batch_that_was_cancelled_is_aborted_and_not_run_again(level: int) -> None:
    async def test(bench: Bench) -> None:
        async def cancel(_: Plan) -> None:
            raise WriteCancelled("stop")

        driver, tasks = bench.driver(), Tasks(bench, b"cancelled")
        tasks.between = cancel
        with pytest.raises(WriteCancelled):
            await driver.write(batch(0), 2, False, tasks)
        assert (len(tasks.plans), tasks.steps) == (1, [])
        async with Admin(ADDRESS, runtime=bench.world.runtime("admin")) as admin:
            assert "Ongoing" not in (await admin.list_transactions()).values()
        assert await driver.write(batch(0), 2, False, Tasks(bench, b"row"))
        assert await bench.values() == [b"row", b"row"]

    in_world(test, level)


def test_a_driver_that_could_not_settle_takes_over_anew() -> None:
    async def test(bench: Bench) -> None:
        async def lose_the_broker(_: Plan) -> None:
            bench.world.kill()

        driver, tasks = bench.driver(), Tasks(bench, b"old")
        tasks.between = lose_the_broker
        with pytest.raises(TimedOutError):
            await driver.write(batch(0), 2, False, tasks)
        await bench.world.start()
        assert await driver.write(batch(0), 2, False, Tasks(bench, b"new"))
        assert await bench.values() == [b"new", b"new"]

    in_world(test)


def test_an_interrupt_after_the_commit_does_not_write_again() -> None:
    async def test(bench: Bench) -> None:
        driver, tasks = bench.driver(), Tasks(bench, b"row")
        end = TransactionalId.end

        async def interrupted(self: TransactionalId, *how: Any) -> Any:
            await end(self, *how)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TransactionalId, "end", interrupted)
            with pytest.raises(KeyboardInterrupt):
                await driver.write(batch(0), 2, False, tasks)
        assert not await driver.write(batch(0), 2, False, tasks)
        assert await bench.values() == [b"row", b"row"]

    in_world(test)


def test_a_driver_that_was_replaced_stays_so_and_does_not_disturb_its_successor() -> None:
    async def test(bench: Bench) -> None:
        old, new = bench.driver("old"), bench.driver("new")
        assert await old.write(batch(0), 2, False, Tasks(bench, b"0"))
        assert await new.write(batch(1), 2, False, Tasks(bench, b"1"))
        for _ in range(2):
            with pytest.raises(ProducerFencedError, match="taken over"):
                await old.write(batch(2), 2, False, Tasks(bench, b"zombie"))
        assert await new.write(batch(2), 2, False, Tasks(bench, b"2"))
        assert await bench.values() == [b"0", b"0", b"1", b"1", b"2", b"2"]

    in_world(test)


@pytest.mark.parametrize("wrong", [batch(0, 1, "another"), batch(1, 7), batch(0, 21)])
def test_who_is_refused_does_not_fence_the_healthy_driver(wrong: Progress) -> None:
    async def test(bench: Bench) -> None:
        healthy = bench.driver()
        for number in range(2):
            assert await healthy.write(batch(number, 10 + 10 * number), 2, False, Tasks(bench, b"%d" % number))
        before = healthy.producer_id_and_epoch
        refused = Tasks(bench, b"refused")
        with pytest.raises(WriteFailed, match=r"older copy|another query"):
            await bench.driver("wrong").write(wrong, 2, False, refused)
        assert refused.plans == []
        tasks = Tasks(bench, b"2")
        assert await healthy.write(batch(2, 30), 2, False, tasks)
        assert tasks.plans[0].ticket.producer_id_and_epoch == before
        assert b"refused" not in await bench.values()

    in_world(test)


def test_a_batch_behind_missing_ones_is_refused_and_the_driver_goes_on_with_what_follows() -> None:
    async def test(bench: Bench) -> None:
        driver = bench.driver()
        assert await driver.write(batch(0, 10), 2, False, Tasks(bench, b"0"))
        later = batch(2, 30)._replace(source_starts=[{"in": {"0": 20}}])
        for each in (driver, bench.driver("restarted")):
            refused = Tasks(bench, b"refused")
            with pytest.raises(WriteFailed, match="the rows in between are missing"):
                await each.write(later, 2, False, refused)
            assert refused.plans == []
        follows = batch(1, 20)._replace(source_starts=[{"in": {"0": 10}}])
        assert await each.write(follows, 2, False, Tasks(bench, b"1"))
        assert await each.write(later, 2, False, Tasks(bench, b"2"))
        assert await bench.values() == [b"0", b"0", b"1", b"1", b"2", b"2"]

    in_world(test)


def test_a_run_that_is_not_the_last_is_known_again() -> None:
    async def test(bench: Bench) -> None:
        for name, is_new in zip("abbacabc", (True, True, False, False, True, False, False, False), strict=True):
            record = Progress.of(name, 0, [])
            wrote = await bench.driver(f"driver {name}").write(record, 2, True, Tasks(bench, name.encode()))
            assert wrote is is_new
        assert await bench.values() == [b"a", b"a", b"b", b"b", b"c", b"c"]

    in_world(test)


@pytest.mark.parametrize("level", [2, 1])
def test_a_slot_that_is_claimed_again_is_poison(level: int) -> None:
    async def test(bench: Bench) -> None:
        tasks = Tasks(bench, b"row")

        async def claim_again(plan: Plan) -> None:
            if len(tasks.plans) == 1:
                with pytest.raises(PoisonedError, match="another attempt"):
                    await tasks.attempt(plan, 0)

        tasks.between = claim_again
        assert await bench.driver().write(batch(0), 2, False, tasks)
        assert tasks.steps == [Step.WRITTEN, Step.REPEATED, Step.WRITTEN, Step.COMMITTED]
        assert await bench.values() == [b"row", b"row"]

    in_world(test, level)


@pytest.mark.parametrize("level", [2, 1])
def test_an_attempt_of_an_earlier_run_cannot_write(level: int) -> None:
    """It wakes up in the middle of the next run, before that run's task has claimed the slot."""

    async def test(bench: Bench) -> None:
        tasks = Tasks(bench, b"row")

        async def fail(_: Plan) -> None:
            if len(tasks.plans) == 1:
                raise OSError("an executor is lost")
            if len(tasks.plans) == 2:
                with pytest.raises(Exception, match=r"EPOCH|refused|claimed"):
                    await tasks.attempt(tasks.plans[0], 1)

        tasks.between = fail
        assert await bench.driver().write(batch(0), 2, False, tasks)
        assert await bench.values() == [b"row", b"row"]

    in_world(test, level)


def test_a_second_attempt_that_knows_that_it_is_one_claims_nothing() -> None:
    async def test(bench: Bench) -> None:
        tasks = Tasks(bench, b"row")

        async def try_again(plan: Plan) -> None:
            with pytest.raises(PoisonedError, match="second attempt"):
                await tasks.attempt(plan, 0, 1)

        tasks.between = try_again
        assert await bench.driver().write(batch(0), 2, False, tasks)
        assert len(tasks.plans) == 1

    in_world(test)


def test_rows_that_were_not_acknowledged_are_not_committed() -> None:
    async def test(bench: Bench) -> None:
        tasks = Tasks(bench, b"row")
        run_tasks = tasks.run_tasks

        async def lossy(plan: Plan) -> list[Written]:
            return [found._replace(rows=found.rows + 1) for found in await run_tasks(plan)]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tasks, "run_tasks", lossy)
            with pytest.raises(WriteFailed, match="given 2 rows, and 1 are acknowledged"):
                await bench.driver(attempts=2).write(batch(0), 2, False, tasks)
        assert len(tasks.plans) == 2
        assert await bench.values() == []
        assert await bench.progress() is None

    in_world(test)


@pytest.mark.parametrize("level", [2, 1])
def test_a_topic_that_grew_between_batches_is_written_to_as_it_is(level: int) -> None:
    async def test(bench: Bench) -> None:
        driver, tasks = bench.driver(), Tasks(bench, b"row")
        assert await driver.write(batch(0), 9, False, tasks)
        async with Admin(ADDRESS, runtime=bench.world.runtime("admin")) as admin:
            await admin.create_partitions("out", 5)

        async def grow_again(plan: Plan) -> None:
            if plan.counts == {"out": 5}:
                async with Admin(ADDRESS, runtime=bench.world.runtime("admin")) as admin:
                    await admin.create_partitions("out", 6)
                raise OSError("an executor is lost")

        tasks.between = grow_again
        assert await driver.write(batch(1), 9, False, tasks)
        assert [(plan.counts["out"], len(plan.slots)) for plan in tasks.plans] == [(2, 2), (5, 5), (6, 6)]

    in_world(test, level)


def test_a_topic_that_is_not_there_is_named_and_not_made() -> None:
    async def test(bench: Bench) -> None:
        cluster, tasks = bench.cluster("driver"), Tasks(bench, b"row")
        driver = Driver(cluster, "app", ["out", "uot"], transaction_timeout_ms=60_000, attempts=3)
        for _ in range(2):
            with pytest.raises(WriteFailed, match="there is no topic 'uot'"):
                await driver.write(batch(0), 2, False, tasks)
        assert tasks.plans == []
        async with Admin(ADDRESS, runtime=bench.world.runtime("admin")) as admin:
            assert "uot" not in await admin.topics()
            await admin.create_topic("uot", partitions=1)
            assert await driver.write(batch(0), 2, False, tasks)
            await admin.delete_topic("uot")
        with pytest.raises(WriteFailed, match="there is no topic 'uot'"):
            await driver.write(batch(1), 2, False, tasks)
        assert len(tasks.plans) == 1

    in_world(test)


def test_the_protocol_needs_nothing_of_spark() -> None:
    """Nor of what comes with it."""
    program = (
        "import sys, fencepost.spark.driver, fencepost.spark.sink, fencepost.simulation.drawn_runs\n"
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
