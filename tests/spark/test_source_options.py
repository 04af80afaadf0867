"""Options of the source against a broker: times, the least of a micro-batch, the most of a task, what is not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from tests.spark.test_source import SCHEMA, rows_of

from fencepost.broker import Broker, running_broker
from fencepost.client.blocking import Admin, Producer
from fencepost.client.errors import TimedOutError
from fencepost.protocol.types import TopicPartition
from fencepost.spark.options import BadOption, parse
from fencepost.spark.positions import Positions
from fencepost.spark.source import BatchReader, Range, StreamReader

#: Timestamps of the records of each partition, in milliseconds since 1970.
TIMES = {0: [1000, 2000, 2000, 3000, 5000], 1: [1500, 2500], 2: []}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with running_broker(settings=settings, flush="os") as broker, Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("times", partitions=len(TIMES))
        with Producer(broker.bootstrap_servers) as producer:
            for partition, times in TIMES.items():
                for time in times:
                    producer.send("times", b"%d" % time, partition=partition, timestamp=time)
        yield broker


def options(broker: Broker, topic: Any = "times", **more: object) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    return given | {name: str(value) for name, value in more.items()}


def times_read(broker: Broker, **more: object) -> dict[int, list[int]]:
    """Of each partition that a batch read gives rows of."""
    reader = BatchReader(parse(options(broker, **more), streaming=False), SCHEMA)
    found: dict[int, list[int]] = {}
    for row in rows_of(reader, reader.partitions(), "times"):
        found.setdefault(row.partition, []).append(int(row.value or b""))
    return found


def by_partition(*times: int) -> str:
    return json.dumps({"times": {str(n): time for n, time in enumerate(times)}})


@pytest.mark.parametrize("time", [999, 1000, 1001, 1500, 2000, 2500, 2501, 4999, 5000])
def test_times_bound_a_read_at_the_first_record_that_is_not_older(broker: Broker, time: int) -> None:
    """The record of that very time is in what begins there, and not in what ends there."""
    younger = {n: [each for each in times if each >= time] for n, times in TIMES.items()}
    older = {n: [each for each in times if each < time] for n, times in TIMES.items()}
    each = by_partition(time, time, time)
    bounds: list[tuple[dict[str, object], dict[str, object]]] = [
        ({"startingTimestamp": time}, {"endingTimestamp": time}),
        ({"startingOffsetsByTimestamp": each}, {"endingOffsetsByTimestamp": each}),
    ]
    for start, end in bounds:
        read = times_read(broker, startingOffsetsByTimestampStrategy="latest", **start)
        assert read == {n: times for n, times in younger.items() if times}
        assert times_read(broker, **end) == {n: times for n, times in older.items() if times}


@pytest.mark.parametrize("zero", [1000, 2001, 5001])
@pytest.mark.parametrize("one", [0, 1501, 2500])
def test_each_partition_has_a_time_of_its_own(broker: Broker, zero: int, one: int) -> None:
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    found = times_read(broker, startingOffsetsByTimestamp=by_partition(zero, one, 0), **strategy)
    younger = {n: [each for each in TIMES[n] if each >= time] for n, time in enumerate((zero, one))}
    assert found == {n: times for n, times in younger.items() if times}


@pytest.mark.parametrize("streaming", [True, False])
def test_a_partition_without_a_record_so_young_is_an_error_unless_it_is_said_otherwise(
    broker: Broker, streaming: bool
) -> None:
    for start in ({"startingTimestamp": 1500}, {"startingOffsetsByTimestamp": by_partition(1500, 1500, 1500)}):
        given = parse(options(broker, **start), streaming)
        reader: Any = StreamReader(given, SCHEMA) if streaming else BatchReader(given, SCHEMA)
        with pytest.raises(BadOption, match="times-2 has no record that is not older than 1500"):
            reader.initialOffset() if streaming else reader.partitions()
        if streaming:
            reader.stop()
            more = start | {"startingOffsetsByTimestampStrategy": "latest"}
            stream = StreamReader(parse(options(broker, **more), streaming), SCHEMA)
            assert stream.initialOffset()["times"] == {"0": 1, "1": 0, "2": 0}
            stream.stop()


def test_no_task_has_more_than_its_most_and_none_of_the_rows_is_left_out(broker: Broker) -> None:
    reader = BatchReader(parse(options(broker, maxRecordsPerPartition=2), streaming=False), SCHEMA)
    parts = reader.partitions()
    assert [(part.at.partition, part.start, part.end) for part in parts if isinstance(part, Range)] == [
        *((0, 0, 2), (0, 2, 4), (0, 4, 5)),
        (1, 0, 2),
    ]
    assert [int(row.value or b"") for row in rows_of(reader, parts, "times")] == TIMES[0] + TIMES[1]


class Hand:
    """A clock that is set by hand."""

    time = 0

    def now(self) -> Any:
        return self.time


def test_a_micro_batch_waits_until_there_is_enough_or_it_has_waited_long_enough(broker: Broker) -> None:
    clock = Hand()
    with Admin(broker.bootstrap_servers) as admin, Producer(broker.bootstrap_servers) as producer:
        admin.create_topic("waits", partitions=1)
        given = options(broker, "waits", startingOffsets="earliest", minOffsetsPerTrigger=3, maxTriggerDelay="10s")
        reader = StreamReader(parse(given, streaming=True), SCHEMA, clock)
        assert reader.getDefaultReadLimit() == ReadMinRows(3)
        both = StreamReader(parse(given | {"maxOffsetsPerTrigger": "4"}, streaming=True), SCHEMA, clock)
        assert both.getDefaultReadLimit() == ReadMaxRows(4)

        def sent(count: int) -> None:
            for _ in range(count):
                producer.send("waits", b"x").result()

        def end(of: StreamReader, start: int, limit: Any) -> int:
            after: int = of.latestOffset({"waits": {"0": start}}, limit)["waits"]["0"]
            return after

        assert end(reader, 0, ReadMinRows(3)) == 0, "there is nothing yet"
        sent(1)
        assert end(reader, 0, ReadMinRows(3)) == 1, "the first one does not wait"
        sent(2)
        clock.time = 9_999
        assert end(reader, 1, ReadMinRows(3)) == 1
        assert end(reader, 1, ReadAllAvailable()) == 3, "it is told to read all"
        clock.time = 10_000
        assert end(reader, 1, ReadMinRows(3)) == 3, "it has waited long enough"
        sent(2)
        clock.time = 19_000
        assert end(reader, 3, ReadMinRows(3)) == 3, "it waits from the last one on"
        sent(1)
        assert end(reader, 3, ReadMinRows(3)) == 6
        assert end(both, 0, ReadMaxRows(4)) == 4, "the first one of another query"
        assert end(both, 4, ReadMaxRows(4)) == 4
        assert end(both, 2, ReadMaxRows(4)) == 6
        both.prepareForTriggerAvailableNow()
        assert end(both, 5, ReadMaxRows(4)) == 6, "nothing comes that could be waited for"
        clock.time = 29_000
        assert end(reader, 6, ReadMinRows(3)) == 6
        sent(1)
        assert end(reader, 6, ReadMinRows(3)) == 7, "a look that found nothing puts nothing off"
        reader.stop()
        both.stop()


def test_a_task_that_gets_no_records_fails_when_its_time_is_over(broker: Broker) -> None:
    """Half a second, where the default is a minute."""
    given = parse(options(broker, **{"kafkaConsumer.pollTimeoutMs": 500}), streaming=False)
    reader = BatchReader(given, SCHEMA)
    part = next(part for part in reader.partitions() if isinstance(part, Range))
    with pytest.raises(TimedOutError, match="did not succeed within 500 ms"):
        list(reader.read(Range(part.at, part.end, part.end + 1)))


def test_a_topic_that_is_not_there_is_named(broker: Broker) -> None:
    reader = BatchReader(parse(options(broker, "tmies"), streaming=False), SCHEMA)
    with pytest.raises(Exception, match="there is no topic 'tmies' to read: make it, or put its name right"):
        reader.partitions()


def test_a_position_is_committed_for_the_group_once_and_again_after_another_one() -> None:
    """A trigger comes many times a second, and mostly finds nothing new."""
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.group.id": "g"}
    reader, told = StreamReader(parse(given, streaming=True), SCHEMA), list[Positions]()
    reader._asker_ = cast(Any, SimpleNamespace(report=told.append))
    one, other = (Positions({TopicPartition("t", 0): offset}) for offset in (1, 2))
    for done in (one, one, other, other, one):
        reader._report(done)
    assert told == [one, other, one]
