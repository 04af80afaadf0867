"""Micro-batches under Spark that fail, are run again, take too long or are replaced: each is written once or never."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.spark.places import Place

from fencepost.client.blocking import Admin
from fencepost.client.cluster import Cluster
from fencepost.client.portal import Portal
from fencepost.client.transactional_id import TransactionalId
from fencepost.spark import Sink, Step, WriteFailed, foreach_batch, write
from fencepost.spark.claims import slot_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a_batch_that_was_committed_is_not_written_again(spark: SparkSession, place: Place) -> None:
    rows = spark.range(10).selectExpr("cast(id as string) as value")
    sink = Sink(place.application, place.servers, [place.target])
    assert sink.write(rows, 0, "query", topic=place.target)
    sink.close()
    again = Sink(place.application, place.servers, [place.target])
    assert not again.write(rows, 0, "query", topic=place.target)
    assert again.write(rows, 1, "query", topic=place.target)
    with pytest.raises(WriteFailed, match="another query"):
        again.write(rows, 2, "another", topic=place.target)
    again.close()
    assert place.shown() == sorted([*range(10), *range(10)])


def test_a_sink_that_was_interrupted_writes_what_it_is_given_next(spark: SparkSession, place: Place) -> None:
    """All rows of the interrupted batch are in the log, and its transaction is open."""

    def interrupt(step: Step, batch: int) -> None:
        if (step, batch) == (Step.WRITTEN, 1):
            sink.watch = None
            raise KeyboardInterrupt

    sink = Sink(place.application, place.servers, [place.target], watch=interrupt)
    assert sink.write(spark.range(50).selectExpr("cast(id as string) as value"), 0, "query", topic=place.target)
    with pytest.raises(KeyboardInterrupt):
        sink.write(spark.range(1000, 1050).selectExpr("cast(id as string) as value"), 1, "query", topic=place.target)
    assert sink.write(spark.range(50, 100).selectExpr("cast(id as string) as value"), 1, "query", topic=place.target)
    sink.close()
    assert place.shown() == list(range(100))


def _in_threads(place: Place, sink: Sink, halves: Sequence[str]) -> Callable[[DataFrame, int], None]:
    """A function for foreachBatch that writes each of these in a thread that Spark knows nothing of."""
    write_half = foreach_batch(sink, place.checkpoint, topic=place.target)

    def write_halves(batch: DataFrame, batch_id: int) -> None:
        for half in halves:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(write_half, batch.filter(half), batch_id).result()

    return write_halves


def test_rows_that_a_thread_writes_beside_those_of_another_are_not_left_out_in_silence(
    spark: SparkSession, place: Place
) -> None:
    """And a query that is started again in the same process repeats its last batch, which is no second write."""
    even = "cast(cast(value as string) as int) % 2 = 0"
    sink = Sink(place.application, place.servers, [place.target])
    writer = place.stream(spark).writeStream.option("checkpointLocation", place.checkpoint).trigger(availableNow=True)
    with pytest.raises(Exception, match=r"batch 0 .* was committed by another write"):
        writer.foreachBatch(_in_threads(place, sink, [even, f"not {even}"])).start().awaitTermination()
    writer.foreachBatch(_in_threads(place, sink, [even])).start().awaitTermination()
    sink.close()
    assert place.shown() == list(range(0, 500, 2))


def test_a_batch_that_takes_too_long_is_told_which_setting_to_raise(spark: SparkSession, place: Place) -> None:
    def dawdle(step: Step, _: int) -> None:
        """Until the cluster has aborted the transaction."""
        if step is Step.WRITTEN:
            with Admin(place.servers) as admin:
                while admin.list_transactions()[place.application] == "Ongoing":
                    time.sleep(0.2)

    sink = Sink(place.application, place.servers, [place.target], transaction_timeout_ms=1000, attempts=1, watch=dawdle)
    with pytest.raises(Exception, match="transaction_timeout_ms=1000 a transaction is aborted: raise that"):
        sink.write(spark.range(5).selectExpr("cast(id as string) as value"), 0, "query", topic=place.target)
    sink.close()
    assert place.shown() == []


def test_topics_that_are_not_there_are_named_and_not_made(spark: SparkSession, place: Place) -> None:
    """Also where the cluster makes a topic when somebody asks for it."""
    rows = spark.range(5).selectExpr("cast(id as string) as value")
    names = {"application_id": place.application, "run_id": "1", "bootstrap_servers": place.servers}
    with pytest.raises(WriteFailed, match="there is no topic 'misspelt-sink' to write to"):
        write(rows, topic="misspelt-sink", **names)
    with pytest.raises(Exception, match="there is no topic 'misspelt-source' to read"):
        place.write(place.stream(spark, topic="misspelt-source"))
    source = spark.read.format("fencepost").option("kafka.bootstrap.servers", place.servers)
    with pytest.raises(Exception, match="there is no topic 'misspelt-source' to read"):
        source.option("subscribe", "misspelt-source").load().count()
    with Admin(place.servers) as admin:
        assert not [name for name in admin.topics() if "misspelt" in name]


def test_times_that_the_broker_sets_are_those_of_the_rows(spark: SparkSession, place: Place) -> None:
    """A topic with message.timestamp.type=LogAppendTime, from a source and as the target."""
    begun = time.time()
    place.target = f"{place.target}-stamped"
    with Admin(place.servers) as admin:
        admin.create_topic(place.target, partitions=3, config={"message.timestamp.type": "LogAppendTime"})
    old = spark.range(40).selectExpr("cast(id as string) as value", "timestamp_millis(1000 + id) as timestamp")
    for run in range(2):
        names = {"application_id": place.application, "run_id": str(run), "topic": place.target}
        assert write(old, bootstrap_servers=place.servers, compression=("none", "gzip")[run], **names)
    source = spark.read.format("fencepost").option("kafka.bootstrap.servers", place.servers)
    source = source.option("subscribe", place.target)
    for rows in (source.load(), source.option("startingTimestamp", str(int(begun * 1000))).load()):
        found = rows.collect()
        assert sorted(int(row.value) for row in found) == sorted([*range(40), *range(40)])
        assert {row.timestampType for row in found} == {1}
        assert all(begun - 1 < row.timestamp.timestamp() < time.time() + 1 for row in found)
    after = source.option("startingTimestamp", str(int(time.time() * 1000) + 60_000))
    assert after.option("startingOffsetsByTimestampStrategy", "latest").load().count() == 0


def test_an_attempt_that_fails_leaves_nothing_and_the_batch_is_run_again(spark: SparkSession, place: Place) -> None:
    steps: list[Step] = []

    def poison(step: Step, _batch: int) -> None:
        """Somebody claims a slot while the first attempt is under way, as a task of a lost executor would."""
        steps.append(step)
        if step is Step.WRITTEN and steps.count(Step.WRITTEN) == 1:
            portal, cluster = Portal(), Cluster(place.servers)
            portal.call(TransactionalId(cluster, slot_name(place.application, 0)).init(10_000))
            portal.call(cluster.close())
            portal.close()

    sink = Sink(place.application, place.servers, [place.target], watch=poison)
    rows = spark.range(50).selectExpr("cast(id as string) as value")
    assert sink.write(rows, 0, "query", topic=place.target)
    sink.close()
    assert steps == [Step.WRITTEN, Step.REPEATED, Step.WRITTEN, Step.COMMITTED]
    assert place.shown() == list(range(50))


def test_a_driver_that_was_replaced_cannot_commit(spark: SparkSession, place: Place) -> None:
    rows = spark.range(5).selectExpr("cast(id as string) as value")
    old = Sink(place.application, place.servers, [place.target])
    assert old.write(rows, 0, "query", topic=place.target)
    new = Sink(place.application, place.servers, [place.target])
    assert new.write(rows, 1, "query", topic=place.target)
    with pytest.raises(Exception, match="taken over"):
        old.write(rows, 2, "query", topic=place.target)
    old.close()
    new.close()
    assert place.shown() == sorted([*range(5), *range(5)])


def test_rows_that_can_never_be_written_fail_at_once_with_the_reason(spark: SparkSession, place: Place) -> None:
    steps: list[Step] = []
    sink = Sink(place.application, place.servers, [place.target], watch=lambda step, _: steps.append(step))
    with pytest.raises(ValueError, match="value"):
        sink.write(spark.range(1), 0, "query", topic=place.target)
    wrong = spark.range(1).selectExpr("cast(id as string) as value", "99 as partition")
    with pytest.raises(WriteFailed, match="no partition 99"):
        sink.write(wrong, 0, "query", topic=place.target)
    large = spark.range(1).selectExpr("repeat('x', 2000000) as value")
    with pytest.raises(WriteFailed, match=r"RowError: .*max\.message\.bytes"):
        sink.write(large, 0, "query", topic=place.target)
    sink.close()
    assert steps == []
    assert place.shown() == []
