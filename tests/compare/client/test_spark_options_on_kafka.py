"""Options of the source beside Spark's own on one Apache Kafka; an audit of its log; the lag that its tools show."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.apache_kafka import apache_kafka
from benchmarks.spark_peer import spark_peer
from pyspark.sql.streaming.datasource import ReadMaxRows
from tests.compare.nodes.two_nodes import skipped_without_kafka
from tests.spark.test_audit import audit_what_is_written
from tests.spark.test_source import SCHEMA, rows_of

from fencepost.client.blocking import Admin, Producer
from fencepost.spark.options import parse
from fencepost.spark.source import BatchReader, StreamReader

pytestmark = pytest.mark.compare

#: Timestamps of the records of each partition, in milliseconds since 1970.
TIMES = {0: [1000, 2000, 2000, 3000, 5000], 1: [1500, 2500, 6000]}
LATE = 10_000


def by_partition(first: int, second: int) -> str:
    return json.dumps({"times": {"0": first, "1": second}})


#: What both take, or both refuse.
OPTIONS: list[dict[str, Any]] = [
    {},
    *({"startingTimestamp": str(time)} for time in (999, 1000, 1001, 2000, 5000, 5001, LATE)),
    *({"endingTimestamp": str(time)} for time in (999, 1000, 1001, 2000, 5000, 5001, LATE)),
    {"startingTimestamp": str(LATE), "startingOffsetsByTimestampStrategy": "latest"},
    {"startingTimestamp": "5001", "startingOffsetsByTimestampStrategy": "latest"},
    {"startingTimestamp": "1500", "endingTimestamp": "2500"},
    {"startingOffsetsByTimestamp": by_partition(2000, 2501)},
    {"startingOffsetsByTimestamp": by_partition(2000, LATE)},
    {"startingOffsetsByTimestamp": by_partition(2000, LATE), "startingOffsetsByTimestampStrategy": "latest"},
    {"startingOffsetsByTimestamp": '{"times": {"0": 1000}}'},
    {"endingOffsetsByTimestamp": by_partition(2001, 1500)},
    {"endingOffsetsByTimestamp": by_partition(LATE, 2500)},
    {"startingOffsets": by_partition(1, 2), "endingOffsets": by_partition(3, -1)},
    {"startingOffsets": by_partition(-2, 2)},
    {"startingOffsets": '{"times": {"0": 1}}'},
    {"startingOffsets": by_partition(4, 0), "startingTimestamp": "2000"},
    {"startingOffsetsByTimestamp": by_partition(1000, 1000), "startingTimestamp": "2000"},
    {"startingOffsets": by_partition(4, 0), "startingOffsetsByTimestamp": by_partition(3000, 6000)},
    {"minPartitions": "5"},
    {"startingOffsetsByTimestampStrategy": "earliest", "startingTimestamp": "1000"},
    {"startingTimestamp": "soon"},
    {"startingOffsets": "soon"},
    {"assign": '{"times": [1]}'},
    {"subscribePattern": "tim.*"},
    {"subscribePattern": "time.?"},
]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with skipped_without_kafka(), apache_kafka({"log.retention.ms": "-1"}) as (servers, _):
        with Admin(servers) as admin:
            admin.create_topic("times", partitions=2)
        with Producer(servers) as producer:
            for partition, times in TIMES.items():
                for time in times:
                    producer.send("times", b"%d" % time, partition=partition, timestamp=time)
        yield servers


def test_every_bound_of_a_batch_means_what_it_means_in_sparks_own_source(servers: str) -> None:
    given = [
        {"kafka.bootstrap.servers": servers}
        | ({} if {"assign", "subscribePattern"} & options.keys() else {"subscribe": "times"})
        | options
        for options in OPTIONS
    ]
    with skipped_without_kafka():
        python, jars = spark_peer()
    program = Path(__file__).with_name("spark_peer_reads.py")
    command = [str(python), str(program), jars, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    theirs = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("read ")]
    assert len(theirs) == len(OPTIONS), done.stderr[-2000:]
    differing = [
        (options, kafka, fencepost)
        for options, kafka, fencepost in zip(OPTIONS, theirs, map(read, given), strict=True)
        if kafka != fencepost
    ]
    assert differing == []
    assert sum(each is None for each in theirs) > 5 < sum(bool(each) for each in theirs)


def read(options: dict[str, str]) -> list[list[int]] | None:
    try:
        reader = BatchReader(parse(options, streaming=False), SCHEMA)
        rows = rows_of(reader, reader.partitions(), "times")
    except ValueError:
        return None
    return sorted([row.partition, row.offset] for row in rows)


@pytest.mark.parametrize("seed", range(3))
def test_an_audit_of_apache_kafkas_log_agrees_with_what_producers_were_told(servers: str, seed: int) -> None:
    audit_what_is_written(servers, seed)


def test_kafkas_tool_shows_how_far_a_stream_is_behind(servers: str, kafka_tool: Callable[..., str]) -> None:
    options = {"kafka.bootstrap.servers": servers, "subscribe": "times", "startingOffsets": "earliest"}
    reader = StreamReader(parse(options | {"kafka.group.id": "lag"}, streaming=True), SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(4))
    reader.latestOffset(end, ReadMaxRows(4))
    reader.stop()
    main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    shown = kafka_tool(main, "--bootstrap-server", servers, "--describe", "--group", "lag")
    rows = [line.split() for line in shown.splitlines() if line.startswith("lag ")]
    lag = {int(row[2]): int(row[5]) for row in rows}
    assert lag == {n: len(TIMES[n]) - end["times"][str(n)] for n in TIMES}
    assert sum(lag.values()) == 4
