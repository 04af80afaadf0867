"""Spark itself: read, write exactly once, replay, refuse.  One session for all of it."""

from __future__ import annotations

import re
import shutil
import threading
import time
import traceback
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from demo.audit import Audit, audit
from pyspark.sql import functions as sf
from tests.spark.killed_queries import expected, fill, written
from tests.spark.places import ROWS, Place
from tests.spark.stateful_query import MOST, STORES, windows

from fencepost.broker import running_broker
from fencepost.client.blocking import Admin, Producer
from fencepost.client.blocking import Consumer as Group
from fencepost.protocol.partitioning import partition_for_key
from fencepost.protocol.types import TopicPartition as ClientPartition
from fencepost.spark import Sink, Step, offsets_behind_latest, resume_offsets, write, write_stream
from fencepost.spark.source import WRITES, FencepostDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


def test_a_batch_read_has_the_rows_and_columns_of_a_topic(spark: SparkSession, place: Place) -> None:
    df = spark.read.format("fencepost").option("kafka.bootstrap.servers", place.servers)
    rows = df.option("subscribe", place.source).option("includeHeaders", "true").load().collect()
    assert sorted(int(row.value) for row in rows) == list(range(ROWS))
    assert all(bytes(row.key) == b"k" + bytes(row.value) for row in rows)
    assert {row.topic for row in rows} == {place.source}
    assert len({(row.partition, row.offset) for row in rows}) == ROWS


@pytest.mark.parametrize(
    ("topic", "options"),
    [
        ("target", {}),
        ("source", {"startingOffsets": "latest"}),
        ("source", {"startingTimestamp": "4102444800000", "startingOffsetsByTimestampStrategy": "latest"}),
        ("source", {"endingOffsets": "earliest"}),
    ],
    ids=["empty topic", "from the end", "from 2100 on", "to the beginning"],
)
def test_a_batch_read_of_nothing_has_no_rows(
    spark: SparkSession, place: Place, topic: str, options: dict[str, str]
) -> None:
    df = spark.read.format("fencepost").option("kafka.bootstrap.servers", place.servers).options(**options)
    found = df.option("subscribe", getattr(place, topic)).load()
    assert found.count() == 0
    assert found.select("key", "offset").collect() == []


def test_a_stream_is_written_once_over_restarts(spark: SparkSession, place: Place) -> None:
    steps: list[tuple[Step, int]] = []
    query = place.run(spark, most=200, watch=lambda step, batch: steps.append((step, batch)))
    assert place.shown() == list(range(ROWS))
    behind = [source for each in query.recentProgress for source in offsets_behind_latest(each)]
    assert [3 * each.avg_offsets for each in behind] == pytest.approx([ROWS - 200, ROWS - 400, 0])
    assert {each.description.split(" of ")[0] for each in behind} == {f"fencepost[{place.source}"}
    place.fill(ROWS, 100)
    place.run(spark)
    assert place.shown() == list(range(ROWS + 100))
    batches = [batch for step, batch in steps if step is Step.COMMITTED]
    assert batches == list(range(len(batches))) and len(batches) > 1


def test_a_query_that_ended_while_spark_wrote_its_first_offsets_starts_again(spark: SparkSession, place: Place) -> None:
    """Spark starts none on a checkpoint that has anything before its first batch, be it a file that Spark began."""
    offsets = Path(place.checkpoint) / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.0c4d07eb-7a07-4920-9f1e-d5f852228534.tmp").touch()
    place.run(spark)
    assert place.shown() == list(range(ROWS))


def test_a_query_whose_checkpoint_is_lost_goes_on_where_it_was(spark: SparkSession, place: Place) -> None:
    place.run(spark)
    place.checkpoint += "-new"
    for more in (100, 200):
        place.fill(ROWS + more - 100, 100)
        place.run(spark, resume_offsets(place.application, place.servers), resume=True)
        assert place.shown() == list(range(ROWS + more))


def test_an_older_copy_of_a_checkpoint_is_refused_unless_it_has_the_same_rows(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    """With the same rows it is only a query whose last files were lost, and comes to where it was."""
    place.run(spark)
    for name in ("kept", "older"):
        shutil.copytree(place.checkpoint, tmp_path / name)
    place.fill(ROWS, 100)
    place.run(spark)
    place.checkpoint = str(tmp_path / "kept")
    steps: list[Step] = []
    place.run(spark, watch=lambda step, _: steps.append(step))
    assert (steps, place.shown()) == ([Step.SKIPPED], list(range(ROWS + 100)))
    place.fill(ROWS + 100, 7)
    place.checkpoint = str(tmp_path / "older")
    with pytest.raises(Exception, match="this checkpoint is an older copy, or its last files were lost"):
        place.run(spark)
    place.checkpoint = str(tmp_path / "new")
    place.run(spark, resume_offsets(place.application, place.servers), resume=True)
    assert place.shown() == list(range(ROWS + 107))


def test_a_second_query_under_the_same_id_is_refused_and_disturbs_nobody(spark: SparkSession, place: Place) -> None:
    sink = Sink(place.application, place.servers, [place.target])
    rows = spark.range(10).selectExpr("cast(id as string) as value")
    assert sink.write(rows, 0, "healthy", topic=place.target)
    before = sink.producer_id_and_epoch
    with pytest.raises(Exception, match="belongs to another query"):
        place.run(spark)
    assert sink.producer_id_and_epoch == before
    assert sink.write(rows, 1, "healthy", topic=place.target)
    sink.close()
    assert place.shown() == sorted([*range(10), *range(10)])


def test_the_last_line_of_an_error_says_which_option_of_a_stream_is_amiss(spark: SparkSession, place: Place) -> None:
    with pytest.raises(Exception, match="maxOffsetsPerTrigger=0") as refused:
        place.write(place.stream(spark, most=0))
    said = str(refused.value).split("=== Streaming Query ===")[0].strip().splitlines()
    lines = [line for line in said if line.strip() and "SQLSTATE" not in line]
    assert lines[-1].endswith("BadOption: maxOffsetsPerTrigger=0: it must be 1 or more")
    printed = "".join(traceback.format_exception(refused.value)).rstrip().splitlines()
    assert printed[-1] == lines[-1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "nowhere"}, "there is no topic 'nowhere' to read"),
        ({"subscribe": "nowhere", "minPartitions": "0"}, "BadOption: minPartitions=0: it must be 1 or more"),
    ],
)
def test_a_batch_read_that_cannot_be_planned_says_why_in_the_line_before_the_last(
    spark: SparkSession, place: Place, options: dict[str, str], said: str
) -> None:
    """Behind Python's traceback Spark puts the SQLSTATE, in a line of its own."""
    rows = spark.read.format("fencepost").option("kafka.bootstrap.servers", place.servers).options(**options).load()
    rows.createOrReplaceTempView("unreadable")
    for action in (rows.count, spark.table("unreadable").collect):
        with pytest.raises(Exception, match=said) as refused:
            action()
        lines = [line for line in str(refused.value).splitlines() if line.strip()]
        assert said in lines[-2] and lines[-1].strip().startswith("SQLSTATE:")


def test_a_query_that_has_ended_holds_nothing(spark: SparkSession, place: Place) -> None:
    """However it ended: a job that is started again and again has no more connections than one."""
    before = threading.enumerate()
    place.run(spark)
    place.fill(ROWS, 1)
    with pytest.raises(Exception, match="foo"):
        place.run(spark, watch=lambda *_: int("foo"))
    until = time.monotonic() + 30
    while left := [thread for thread in threading.enumerate() if thread not in before and "fencepost" in thread.name]:
        assert time.monotonic() < until, left
        time.sleep(0.1)


def test_a_query_whose_batches_are_not_in_the_cluster_stops(spark: SparkSession, place: Place) -> None:
    """As after it was put back from an older copy: what it has of the query is here under another id."""
    place.run(spark)
    place.fill(ROWS, 100)
    place.application += "-other"
    with pytest.raises(Exception, match="no batch was committed: the rows in between are missing"):
        place.run(spark)
    assert place.shown() == list(range(ROWS))
    place.run(spark, accept_gap=True)
    assert place.shown() == list(range(ROWS + 100))


def test_a_query_that_is_stopped_in_a_batch_aborts_it_at_once(spark: SparkSession, place: Place) -> None:
    """The batch would take minutes."""
    steps: list[Step] = []
    # Nothing that an optimizer knows to be true, or it leaves the sleep out.
    slow = place.stream(spark).where("length(coalesce(reflect('java.lang.Thread', 'sleep', 1000L), 'none')) > 0")
    query = write_stream(
        slow,
        topic=place.target,
        application_id=place.application,
        bootstrap_servers=place.servers,
        checkpoint_location=place.checkpoint,
        watch=lambda step, _: steps.append(step),
    )
    tracker = spark.sparkContext.statusTracker()
    while query.isActive and not tracker.getActiveStageIds():
        query.awaitTermination(1)
    assert query.isActive
    query.stop()
    assert (steps, query.exception()) == ([], None)
    with Admin(place.servers) as admin:
        assert "Ongoing" not in admin.list_transactions().values()
    place.run(spark)
    assert place.shown() == list(range(ROWS))


@pytest.mark.parametrize("store", ["default", "rocksdb, format 2"])
def test_a_query_with_state_goes_on_after_a_batch_that_spark_does_not_know_to_be_committed(
    spark: SparkSession, place: Place, tmp_path: Path, store: str
) -> None:
    """Its driver ended between the commit and Spark's own log, and with it the executors and what they had.

    As after kill -9 (tests/soak has the real one) only the files of the checkpoint are left: it goes on with a copy.
    """
    lives = count()

    def die(step: Step, batch: int) -> None:
        if step is Step.COMMITTED and batch in (1, 2):
            left = str(tmp_path / f"left {next(lives)}")
            shutil.copytree(place.checkpoint, left)
            place.checkpoint = left
            raise RuntimeError("killed")

    source = f"{place.source}-events"
    fill(place.servers, source)
    events = spark.readStream.format("fencepost").option("kafka.bootstrap.servers", place.servers)
    events = events.option("maxOffsetsPerTrigger", MOST).option("startingOffsets", "earliest")
    rows = windows(events.option("subscribe", source).load())
    for name, value in STORES[store].items():
        spark.conf.set(name, value)
    for _ in range(2):
        with pytest.raises(Exception, match="killed"):
            place.write(rows, watch=die)
    place.write(rows)
    for name in STORES[store]:
        spark.conf.unset(name)
    assert written(place.servers, place.target) == expected("windows")


def test_a_batch_with_state_is_not_taken_for_another_one_of_its_number(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    """An older copy reads in one batch what two read, and gives its windows under the number of the second."""
    source = f"{place.source}-events"
    with Admin(place.servers) as admin:
        admin.create_topic(source, partitions=1)

    def feed(*seconds: int) -> None:
        with Producer(place.servers) as producer:
            for second in seconds:
                producer.send(source, b"%d" % second, timestamp=1_700_000_000_000 + 1000 * second)
            producer.flush()

    def run(most: int = 100, killed_before: int = -1) -> None:
        def begun(rows: DataFrame, batch: int) -> DataFrame:
            assert batch != killed_before, "killed"
            return rows

        events = spark.readStream.format("fencepost").option("kafka.bootstrap.servers", place.servers)
        events = events.option("maxOffsetsPerTrigger", most).option("startingOffsets", "earliest")
        place.write(windows(events.option("subscribe", source).load()), transform=begun)

    feed(0, 10, 20)
    run()
    shutil.copytree(place.checkpoint, tmp_path / "older")
    feed(30, 40)
    with pytest.raises(Exception, match="killed"):
        run(most=1, killed_before=4)
    newest, place.checkpoint = place.checkpoint, str(tmp_path / "older")
    with pytest.raises(Exception, match="this checkpoint is an older copy, or its last files were lost"):
        run()
    place.checkpoint = newest
    run()
    starts = (1_700_000_000 + second for second in (0, 10, 20))
    assert written(place.servers, place.target) == [f"{start}:1" for start in starts]


def test_from_one_cluster_to_another_positions_stay_where_the_source_is(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    """Though the other one has a topic of the source's name."""
    with running_broker(settings={"transaction.state.log.num.partitions": 4}) as other:
        there = Place(other, tmp_path, place)
        there.fill(0, 7, there.source)
        write_stream(
            place.stream(spark, most=300, group=place.application),
            topic=there.target,
            application_id=there.application,
            bootstrap_servers=there.servers,
            checkpoint_location=place.checkpoint,
            trigger={"availableNow": True},
        ).awaitTermination()
        assert there.shown() == list(range(ROWS))
        assert there.read_by_the_group() is None
    assert place.read_by_the_group() == ROWS


def test_a_run_is_written_once(spark: SparkSession, place: Place) -> None:
    rows = spark.range(20).selectExpr("cast(id as string) as value")
    told = [
        write(rows, application_id=place.application, run_id=run, bootstrap_servers=place.servers, topic=place.target)
        for run in ("monday", "monday", "tuesday")
    ]
    assert told == [True, False, True]
    assert place.shown() == sorted([*range(20), *range(20)])


def test_the_format_only_reads_and_says_what_to_use_instead(spark: SparkSession) -> None:
    rows = spark.range(1).selectExpr("cast(id as string) as value")
    with pytest.raises(Exception, match=re.escape(WRITES)):
        rows.write.format("fencepost").mode("append").save()
    with pytest.raises(ValueError, match=re.escape(WRITES)):
        FencepostDataSource({}).streamWriter(rows.schema, overwrite=False)


def test_the_questions_of_the_page_are_answered_by_an_audit(spark: SparkSession, place: Place) -> None:
    """One producer has a transaction open and an aborted one, another one committed: nothing is torn but by hand."""
    hanging, done = (Producer(place.servers, transactional_id=f"{place.name}-{n}") for n in range(2))
    for producer in (hanging, done):
        producer.init_transactions()
        producer.begin_transaction()
        for partition in range(3):
            producer.send(place.target, b"1", partition=partition).result()
    hanging.abort_transaction()
    done.commit_transaction()
    hanging.begin_transaction()
    hanging.send(place.target, b"2", partition=1).result()
    page = PAGE.read_text()
    example = next(each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "audit" in each)
    found: dict[str, Any] = {"spark": spark, "servers": place.servers}
    exec(example.replace("payments", place.target), found)
    asked = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    open_, in_vain, torn = (spark.sql(each).collect() for each in asked)
    assert [(row.topic, row.partition, row.first_offset, row.records) for row in open_] == [(place.target, 1, 4, 1)]
    assert sorted((row.aborted, row.records) for row in in_vain) == [(0, 3), (3, 4)]
    assert torn == []
    (aborted,) = (row for row in in_vain if row.aborted)
    assert audit(spark, place.servers, [place.target]) == Audit(1, 0, [(aborted.producerId, 3, 4)])
    half = "CASE WHEN partition = 2 AND outcome = 'committed' THEN 'open' ELSE outcome END"
    found["audit"].withColumn("outcome", sf.expr(half)).createOrReplaceTempView("audit")
    assert [sorted(row.outcomes) for row in spark.sql(asked[-1]).collect()] == [["committed", "open"]]
    hanging.abort_transaction()
    for producer in (hanging, done):
        producer.close()


def test_rows_go_to_the_partitions_that_kafkas_partitioner_chooses(spark: SparkSession, place: Place) -> None:
    """Those without a key by their value, and where a row names its partition, there."""
    rows = [(f"key {n}" if n % 3 else None, f"{n}", n % 3 if n % 5 == 0 else None) for n in range(60)]
    df = spark.createDataFrame(rows, "key string, value string, partition int")
    sink = Sink(place.application, place.servers, [place.target])
    assert sink.write(df, 0, "query", topic=place.target)
    sink.close()
    written = spark.read.format("fencepost").option("kafka.bootstrap.servers", place.servers)
    found = {bytes(row.value): row.partition for row in written.option("subscribe", place.target).load().collect()}
    assert found == {
        value.encode(): partition_for_key((key or value).encode(), 3) if partition is None else partition
        for key, value, partition in rows
    }


def test_the_group_stands_where_every_source_of_a_stream_stands(spark: SparkSession, place: Place) -> None:
    """Also where one of them gave nothing new."""
    other = f"{place.source}-too"
    with Admin(place.servers) as admin:
        admin.create_topic(other, partitions=1)
    partitions = [*(ClientPartition(place.source, n) for n in range(3)), ClientPartition(other, 0)]
    sent = {place.source: ROWS, other: 0}
    for topic in (other, place.source):
        place.fill(0, 10, topic)
        sent[topic] += 10
        write_stream(
            place.stream(spark).unionByName(place.stream(spark, topic=other)),
            topic=place.target,
            application_id=place.application,
            bootstrap_servers=place.servers,
            checkpoint_location=place.checkpoint,
            trigger={"availableNow": True},
        ).awaitTermination()
        with Group(bootstrap_servers=place.servers, group_id=place.application) as group:
            stored = group.committed(partitions)
        positions = dict.fromkeys(sent, 0)
        for at, position in stored.items():
            assert position is not None
            positions[at.topic] += position.offset
        assert positions == sent
