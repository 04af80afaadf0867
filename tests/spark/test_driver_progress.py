"""Which batch was committed last: how a driver finds the progress record, whatever happened to it."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from tests.spark.test_driver import Bench, Tasks, batch, in_world

from fencepost.client import Admin, ConfigChange, Producer
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, ClosedError, ProducerFencedError, TimedOutError
from fencepost.client.fetch_requests import fetch_partition
from fencepost.client.sender import Sender
from fencepost.client.transactional_id import TransactionalId
from fencepost.protocol.errors import ErrorCode
from fencepost.simulation.world import ADDRESS
from fencepost.spark import progress
from fencepost.spark.attempt import Plan
from fencepost.spark.driver import Step, WriteFailed
from fencepost.spark.progress import Progress, ProgressUnusable, read_progress


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


async def delete_the_topic(bench: Bench) -> None:
    async with Admin(ADDRESS, runtime=bench.world.runtime("admin")) as admin:
        await admin.delete_topic(progress.TOPIC)


@pytest.mark.parametrize("level", [2, 1])
@pytest.mark.parametrize("in_a_batch", [True, False])
def test_a_query_that_ends_since_its_progress_topic_is_deleted_says_what_to_do(in_a_batch: bool, level: int) -> None:
    """Not to make the topic, which by hand would be one that loses records."""

    async def test(bench: Bench) -> None:
        driver, tasks = bench.driver(), Tasks(bench, b"1")
        assert await driver.write(batch(0, 10), 2, False, Tasks(bench, b"0"))
        if in_a_batch:
            tasks.between = lambda _: delete_the_topic(bench)
        else:
            await delete_the_topic(bench)
        with pytest.raises(ProgressUnusable, match=r"was deleted.*start the query again.*how to go on$"):
            await driver.write(batch(1, 20), 2, False, tasks)
        restarted = bench.driver("restarted", accept_gap=True)
        assert await restarted.write(batch(1, 20), 2, False, Tasks(bench, b"1"))
        assert await bench.values() == [b"0", b"0", b"1", b"1"]

    in_world(test, level)


def test_a_record_that_cannot_be_read_stops_whoever_needs_it_and_disturbs_nobody() -> None:
    async def test(bench: Bench) -> None:
        older = bench.driver("older")
        assert await older.write(batch(0, 1), 2, False, Tasks(bench, b"0"))
        async with Producer(bootstrap_servers=ADDRESS, runtime=bench.world.runtime("foreign")) as producer:
            await (await producer.send(progress.TOPIC, b"what is this?", key=b"app"))
        tasks = Tasks(bench, b"again")
        with pytest.raises(ProgressUnusable, match=r"of application 'app' in topic .* cannot be read"):
            await bench.driver("newer").write(batch(0, 1), 2, False, tasks)
        assert tasks.plans == []
        assert await older.write(batch(1, 2), 2, False, Tasks(bench, b"1"))
        assert not await bench.driver("newest").write(batch(1, 2), 2, False, Tasks(bench, b"again"))
        assert await bench.values() == [b"0", b"0", b"1", b"1"]

    in_world(test)


def test_who_repeats_what_was_committed_does_not_fence_the_healthy_driver() -> None:
    """As a copy of its checkpoint does that is started while it runs: it is refused behind that, or goes on for it."""

    async def test(bench: Bench) -> None:
        healthy, copy = bench.driver("healthy"), bench.driver("copy")
        for number in range(3):
            assert await healthy.write(batch(number, 10 + 10 * number), 2, False, Tasks(bench, b"%d" % number))
        before, repeated = healthy.producer_id_and_epoch, Tasks(bench, b"repeated")
        for number in (1, 2):
            assert not await copy.write(batch(number, 10 + 10 * number), 2, False, repeated)
        assert repeated.plans == [] and repeated.steps == [Step.SKIPPED] * 2
        tasks = Tasks(bench, b"3")
        assert await healthy.write(batch(3, 40), 2, False, tasks)
        assert tasks.plans[0].ticket.producer_id_and_epoch == before
        assert not await copy.write(batch(3, 40), 2, False, repeated)
        assert await copy.write(batch(4, 50), 2, False, Tasks(bench, b"4"))
        with pytest.raises(ProducerFencedError):
            await healthy.write(batch(4, 45), 2, False, Tasks(bench, b"zombie"))
        assert await bench.values() == sorted([b"%d" % number for number in range(5)] * 2)

    in_world(test)


def test_whoever_may_make_no_topics_writes_where_the_topic_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka says so of topics that are there, too."""

    async def test(bench: Bench) -> None:
        assert await bench.driver().write(batch(0, 1), 2, False, Tasks(bench, b"0"))

        async def refused(*_: Any, **__: Any) -> None:
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic 'fencepost.progress' was not created")

        monkeypatch.setattr(progress, "create_topic", refused)
        successor = bench.driver("successor")
        assert await successor.write(batch(1, 2), 2, False, Tasks(bench, b"1"))
        assert await bench.values() == [b"0", b"0", b"1", b"1"]
        async with Admin(ADDRESS, runtime=bench.world.runtime("admin")) as admin:
            await admin.delete_topic(progress.TOPIC)
        with pytest.raises(BrokerError, match="was not created"):
            await bench.driver("late").write(batch(2, 3), 2, False, Tasks(bench, b"2"))

    in_world(test)


def test_a_topic_that_was_deleted_since_it_was_looked_at_is_made_again() -> None:
    async def test(bench: Bench) -> None:
        cluster = bench.cluster("looks")
        await progress.ensure_topic(cluster)
        async with Admin(ADDRESS, runtime=bench.world.runtime("admin")) as admin:
            await admin.delete_topic(progress.TOPIC)
        await progress.ensure_topic(cluster)
        assert await read_progress(cluster, "app") is None
        await cluster.close()

    in_world(test)


def test_making_the_topic_leaves_no_client_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(bench: Bench) -> None:
        opened: list[Cluster] = []

        def counted(*given: Any, **named: Any) -> Cluster:
            opened.append(Cluster(*given, **named))
            return opened[-1]

        monkeypatch.setattr(progress, "Cluster", counted)
        assert await bench.driver().write(batch(0, 1), 2, False, Tasks(bench, b"0"))
        assert opened
        for each in opened:
            with pytest.raises(ClosedError):
                await each.refresh(None)

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


def test_a_driver_of_many_batches_holds_no_more_than_one_of_few() -> None:
    """A stream may run for months."""

    async def test(bench: Bench) -> None:
        driver, held = bench.driver(), list[int]()
        for number in range(6):
            assert await driver.write(batch(number), 2, False, Tasks(bench, b"row"))
            await asyncio.sleep(1)
            gc.collect()
            held.append(len([each for each in gc.get_objects() if isinstance(each, Sender)]))
        assert held[-1] == held[1]

    in_world(test)
