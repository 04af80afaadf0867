"""The driver's steps against a real broker in the simulated world, without Spark."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from fencepost.client import Admin, ConfigChange, Consumer, Producer
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, ProducerFencedError, TimedOutError
from fencepost.client.fetch_requests import fetch_partition
from fencepost.client.transactional_id import TransactionalId, fenced_error
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, World
from fencepost.spark import progress
from fencepost.spark.attempt import Plan, PoisonedError, claim
from fencepost.spark.claims import Written
from fencepost.spark.driver import Driver, Step, WriteCancelled, WriteFailed, group_offsets
from fencepost.spark.progress import Progress, ProgressUnusable, read_progress

T = TypeVar("T")
PLACES = [TopicPartition("out", number) for number in range(6)]


class Bench:
    """A world with a topic, drivers that write to it, and a reader."""

    def __init__(self, world: World) -> None:
        self.world = world

    def cluster(self, name: str) -> Cluster:
        return Cluster(ADDRESS, runtime=self.world.runtime(name), patience_ms=5000, request_timeout_ms=1000)

    def driver(self, name: str = "driver", attempts: int = 3, resume: bool = False) -> Driver:
        cluster = self.cluster(name)
        return Driver(cluster, "app", ["out"], transaction_timeout_ms=60_000, attempts=attempts, resume=resume)

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
        assert again.plans[0].ticket.identity.producer_epoch > tasks.plans[0].ticket.identity.producer_epoch
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


def test_who_was_fenced_before_transaction_version_2_may_have_taken_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka answers both alike there, and this is all that is known of it; after a short time it is fencing."""

    async def test(bench: Bench) -> None:
        async def fenced(_: TransactionalId, *__: Any) -> Any:
            raise fenced_error("app")

        for seconds, said in (
            (1, "an id of its own$"),
            (70, "Or nobody has: this took 7. s, .* start the query again$"),
        ):
            driver, tasks = bench.driver(), Tasks(bench, b"row")

            async def dawdle(_: Plan, seconds: int = seconds) -> None:
                await asyncio.sleep(seconds)
                monkeypatch.setattr(TransactionalId, "end", fenced)

            tasks.between = dawdle
            with pytest.raises(ProducerFencedError, match=said):
                await driver.write(batch(0), 2, False, tasks)
            monkeypatch.undo()

    in_world(test, 1)


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
        before = healthy.identity
        refused = Tasks(bench, b"refused")
        with pytest.raises(WriteFailed, match=r"older copy|another query"):
            await bench.driver("wrong").write(wrong, 2, False, refused)
        assert refused.plans == []
        tasks = Tasks(bench, b"2")
        assert await healthy.write(batch(2, 30), 2, False, tasks)
        assert tasks.plans[0].ticket.identity == before
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


def begun(at: int, end: int) -> Progress:
    """The first batch of a successor: where it began, and its end."""
    return Progress.of("successor", 0, [{"in": {"0": end}, "@began": {"in": {"0": at}}}])


@pytest.mark.parametrize("level", [2, 1])
def test_a_successor_with_a_new_checkpoint_goes_on_where_the_last_batch_ended(level: int) -> None:
    async def test(bench: Bench) -> None:
        assert await bench.driver("first").write(batch(3, 10), 2, False, Tasks(bench, b"first"))
        for wrong in (begun(9, 20), begun(11, 20), batch(0, 20, "successor")):
            with pytest.raises(WriteFailed, match="resume_offsets"):
                await bench.driver("astray", resume=True).write(wrong, 2, False, Tasks(bench, b"wrong"))
        with pytest.raises(WriteFailed, match="resume_offsets"):
            await bench.driver("unasked").write(begun(10, 20), 2, False, Tasks(bench, b"wrong"))
        successor, tasks = bench.driver("successor", resume=True), Tasks(bench, b"second")

        async def fail(_: Plan) -> None:
            if len(tasks.plans) == 1:
                raise OSError("an executor is lost")

        tasks.between = fail
        assert await successor.write(begun(10, 20), 2, False, tasks)
        assert not await bench.driver("restarted", resume=True).write(begun(10, 20), 2, False, Tasks(bench, b"wrong"))
        following = Progress.of("successor", 1, [{"in": {"0": 30}}])
        assert await bench.driver("again", resume=True).write(following, 2, False, Tasks(bench, b"third"))
        found = [b"first", b"second", b"third"]
        assert await bench.values() == sorted(found + found)

    in_world(test, level)


def test_what_an_older_driver_commits_before_it_is_fenced_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It wakes up between its successor's look at the progress and the take-over."""

    async def test(bench: Bench) -> None:
        older, init = bench.driver("older"), TransactionalId.init
        assert await older.write(batch(0, 1), 2, False, Tasks(bench, b"0"))

        async def late(self: TransactionalId, *how: Any) -> Any:
            if self.name == "app":
                monkeypatch.setattr(TransactionalId, "init", init)
                assert await older.write(batch(1, 2), 2, False, Tasks(bench, b"1"))
            return await init(self, *how)

        monkeypatch.setattr(TransactionalId, "init", late)
        assert not await bench.driver("newer").write(batch(1, 2), 2, False, Tasks(bench, b"again"))
        assert await bench.values() == [b"0", b"0", b"1", b"1"]

    in_world(test)


@pytest.mark.parametrize("config", [{"cleanup.policy": "delete"}, {"cleanup.policy": "compact,delete"}, None])
def test_a_progress_topic_that_others_made_wrong_is_refused(config: dict[str, str] | None) -> None:
    async def test(bench: Bench) -> None:
        async with Admin(ADDRESS, runtime=bench.world.runtime("admin")) as admin:
            compact = {"cleanup.policy": "compact"}
            await admin.create_topic(progress.TOPIC, partitions=2 if config is None else 1, config=config or compact)
        tasks = Tasks(bench, b"row")
        with pytest.raises(ProgressUnusable, match="2 partitions" if config is None else "cleanup.policy"):
            await bench.driver().write(batch(0), 2, False, tasks)
        assert tasks.plans == []

    in_world(test)


def test_progress_is_found_without_reading_all_of_it() -> None:
    async def test(bench: Bench) -> None:
        assert await bench.driver().write(batch(0), 2, False, Tasks(bench, b"row"))
        async with Producer(ADDRESS, runtime=bench.world.runtime("others")) as others:
            for number in range(2000):
                await others.send(progress.TOPIC, b"{}", key=b"%d" % number, partition=0)
        assert await bench.driver("second").write(batch(1), 2, False, Tasks(bench, b"row"))
        fetched: list[int] = []

        async def watched(*how: Any, **more: Any) -> Any:
            fetched.append(how[3])
            return await fetch_partition(*how, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(progress, "fetch_partition", watched)
            assert await bench.progress() == batch(1)
            assert len(fetched) == 1 and fetched[0] > 1500
            patch.setattr(progress, "_FETCH_BYTES", 1)
            assert await bench.progress() == batch(1)
            cluster = bench.cluster("another")
            assert await read_progress(cluster, "nobody") is None
            assert min(fetched) == 0
            await cluster.close()

    in_world(test)


@pytest.mark.parametrize("removed", [1, 3, 7, 400])
def test_progress_is_looked_for_from_where_its_topic_begins(removed: int) -> None:
    """Whoever had no batch yet reads all of what is there, and no more."""

    async def test(bench: Bench) -> None:
        async with Producer(ADDRESS, runtime=bench.world.runtime("others")) as others:
            assert await bench.driver().write(batch(0), 2, False, Tasks(bench, b"row"))
            for number in range(removed):
                await others.send(progress.TOPIC, b"{}", key=b"%d" % number, partition=0)
        async with Admin(ADDRESS, runtime=bench.world.runtime("admin")) as admin:
            # Somebody once had it lose records, and has set that right.
            await admin.alter_topic_config(progress.TOPIC, ConfigChange({"cleanup.policy": "delete"}))
            await admin.delete_records({progress.PARTITION: removed})
            await admin.alter_topic_config(progress.TOPIC, ConfigChange({"cleanup.policy": "compact"}))
        cluster = bench.cluster("another")
        assert await read_progress(cluster, "nobody") is None
        await cluster.close()
        assert await bench.driver("second").write(batch(1), 2, True, Tasks(bench, b"row"))
        assert await bench.progress() == batch(1)

    in_world(test)


@pytest.mark.parametrize("level", [2, 1])
def test_progress_is_found_behind_the_open_transaction_of_another_producer(level: int) -> None:
    async def test(bench: Bench) -> None:
        first = bench.driver()
        assert await first.write(batch(0), 2, False, Tasks(bench, b"0"))
        async with Producer(ADDRESS, transactional_id="slow", runtime=bench.world.runtime("slow")) as slow:
            await slow.init_transactions()
            await slow.begin_transaction()
            await (await slow.send(progress.TOPIC, b"{}", key=b"slow", partition=0))
            assert await first.write(batch(1), 2, False, Tasks(bench, b"1"))
            assert await bench.progress() == batch(1)
            assert not await bench.driver("second").write(batch(1), 2, False, Tasks(bench, b"again"))
            await slow.abort_transaction()
        assert await bench.values() == [b"0", b"0", b"1", b"1"]

    in_world(test, level)


@pytest.mark.parametrize("level", [2, 1])
@pytest.mark.parametrize("carried_out", [True, False])
def test_a_commit_whose_answer_is_lost_is_looked_for(carried_out: bool, level: int) -> None:
    async def test(bench: Bench) -> None:
        end, lost = TransactionalId.end, list[bool]()

        async def losing(self: TransactionalId, who: Any, commit: bool, *how: Any) -> Any:
            if commit and not lost:
                lost.append(True)
                if carried_out:
                    await end(self, who, commit, *how)
                raise TimedOutError("EndTxn was not answered in time")
            return await end(self, who, commit, *how)

        driver, tasks = bench.driver(), Tasks(bench, b"row")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TransactionalId, "end", losing)
            assert await driver.write(batch(0), 2, False, tasks)
        assert len(tasks.plans) == (1 if carried_out else 2)
        assert await bench.values() == [b"row", b"row"]

    in_world(test, level)


def test_a_commit_that_arrives_while_its_batch_is_settled_is_seen() -> None:
    async def test(bench: Bench) -> None:
        end, on_its_way = TransactionalId.end, list[Any]()

        async def late(self: TransactionalId, who: Any, commit: bool, *how: Any) -> Any:
            if commit and not on_its_way:
                on_its_way.append(who)
                raise TimedOutError("EndTxn was not answered in time")
            if not commit:
                await end(self, on_its_way[0], True, *how)
            return await end(self, who, commit, *how)

        driver, tasks = bench.driver(), Tasks(bench, b"row")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TransactionalId, "end", late)
            assert await driver.write(batch(0), 2, False, tasks)
        assert len(tasks.plans) == 1
        assert await bench.values() == [b"row", b"row"]

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


def test_the_positions_in_topics_of_this_cluster_are_committed() -> None:
    """Not those in topics of another one, or of nobody knows which, or in a topic that was made anew."""
    here = {"@cluster": "ours", "@topics": {"in": "one", "more": "two"}}
    read = {"in": {"0": 5, "1": -1}, "more": {"0": 7}, "old": {"0": 3}}
    others = [None, 7, {"logOffset": 3, "@cluster": "ours"}, {"more": {"x": 1}, **here}, {"in": {"0": 9}}]
    found = group_offsets([*others, {**read, **here}, {**read, **here, "@cluster": "theirs"}], "ours", {"in": "one"})
    assert {at: position.offset for at, position in found.items()} == {TopicPartition("in", 0): 5}
    assert group_offsets([read], "", {}) == {}


@pytest.mark.parametrize("level", [2, 1])
def test_positions_are_committed_where_the_source_is_or_nowhere(level: int) -> None:
    async def test(bench: Bench) -> None:
        cluster = bench.cluster("source")
        deadline = cluster.deadline("looking up a topic")
        view = await cluster.topic("in", deadline)
        ours = {"@cluster": cluster.cluster_id, "@topics": {"in": str(view.topic_id)}}
        another = {"@topics": {"in": "7b0f2c10-0000-4000-8000-000000000000"}}
        driver = bench.driver()
        for number, (marks, position) in enumerate(
            [(ours, 5), (ours | {"@cluster": "theirs"}, 5), (ours | another, 5), ({}, 5), (ours, 9)]
        ):
            record = Progress.of("query", number, [{"in": {"0": position + number}, **marks}])
            assert await driver.write(record, 2, False, Tasks(bench, b"%d" % number))
            expected = position + number if marks == ours else 5
            assert await bench.position() == expected
        async with Admin(ADDRESS, runtime=bench.world.runtime("admin")) as admin:
            await admin.delete_topic("in")
        began = asyncio.get_running_loop().time()
        record = Progress.of("query", 5, [{"in": {"0": 20}, **ours}])
        assert await driver.write(record, 2, False, Tasks(bench, b"5"))
        assert asyncio.get_running_loop().time() - began < 2
        await cluster.close()

    in_world(test, level)


@pytest.mark.parametrize("level", [2, 1])
@pytest.mark.parametrize("trouble", [BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, "no"), TimedOutError("late")])
def test_positions_that_are_not_taken_fail_no_batch(trouble: Exception, level: int) -> None:
    async def test(bench: Bench) -> None:
        async def refused(self: TransactionalId, *how: Any) -> None:  # noqa: ARG001
            raise trouble

        cluster = bench.cluster("source")
        view = await cluster.topic("in", cluster.deadline("looking up a topic"))
        marks = {"@cluster": cluster.cluster_id, "@topics": {"in": str(view.topic_id)}}
        await cluster.close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TransactionalId, "commit_offsets", refused)
            tasks = Tasks(bench, b"row")
            assert await bench.driver().write(Progress.of("query", 0, [{"in": {"0": 4}, **marks}]), 2, False, tasks)
        assert tasks.steps == [Step.WRITTEN, Step.COMMITTED]
        assert await bench.values() == [b"row", b"row"]

    in_world(test, level)


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


@pytest.mark.parametrize("level", [2, 1])
@pytest.mark.parametrize(
    "before", [batch(7, 5, "another"), batch(6, 5), batch(7, query="another")], ids=["query", "number", "run"]
)
def test_a_batch_that_failed_is_not_taken_for_the_one_that_was_committed_before_it(
    before: Progress, level: int
) -> None:
    """Neither for one of the same number of another query, nor for one of another number of the same query."""

    async def test(bench: Bench) -> None:
        driver = bench.driver()
        assert await driver.write(before, 2, False, Tasks(bench, b"before"))
        tasks = Tasks(bench, b"now")

        async def fail(_: Plan) -> None:
            if len(tasks.plans) == 1:
                raise RuntimeError("an executor is lost")

        tasks.between = fail
        assert await driver.write(batch(7, 9), 2, True, tasks)
        assert tasks.steps == [Step.REPEATED, Step.WRITTEN, Step.COMMITTED]
        assert await bench.values() == [b"before", b"before", b"now", b"now"]
        expected = (before.query_id,) if before.query_id != "query" else ()
        assert await bench.progress() == batch(7, 9)._replace(earlier_runs=expected)

    in_world(test, level)
