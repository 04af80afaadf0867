"""Spark, topic to nowhere, nowhere to topic and topic to topic: rows of 100 bytes per second, warm.

--engine fencepost: our source and our exactly-once sink.  --engine kafka: Spark's own connector, whose sink is
at-least-once (it needs its jars in --jars and a Spark that they were built for).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from typing import Any

from benchmarks.measure import fresh_topic, report

PARTITIONS = 4
SIZE = 100


def fill(bootstrap: str, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    for number in range(count):
        while True:
            try:
                producer.produce(topic, b"v" * SIZE, key=b"%d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def session(engine: str, jars: str) -> Any:
    if engine == "fencepost":
        from fencepost.spark import local_session

        return local_session("bench", 2, {"spark.ui.showConsoleProgress": "false"})
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    found = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def warm(rounds: int, once: Callable[[], None]) -> float:
    """Seconds of the fastest round."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        once()
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--engine", choices=("fencepost", "kafka"), default="fencepost")
    parser.add_argument("--jars", default="")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    bootstrap, rows = options.bootstrap, options.rows
    source, sink = fresh_topic(bootstrap, PARTITIONS), fresh_topic(bootstrap, PARTITIONS)
    fill(bootstrap, source, rows)
    spark = session(options.engine, options.jars)

    def reader(stream: bool) -> Any:
        made = (spark.readStream if stream else spark.read).format(options.engine)
        made = made.option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
        return made.option("startingOffsets", "earliest").load()

    made = spark.range(0, rows, 1, PARTITIONS).selectExpr(
        "cast(cast(id as string) as binary) as key", f"cast(repeat('v', {SIZE}) as binary) as value"
    )

    def read() -> None:
        reader(False).write.format("noop").mode("overwrite").save()

    def write() -> None:
        if options.engine == "fencepost":
            from fencepost.spark import write as write_once

            write_once(made, application_id="bench", run_id=uuid.uuid4().hex, bootstrap_servers=bootstrap, topic=sink)
        else:
            made.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", sink).save()

    def stream() -> None:
        checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
        rows_of = reader(True).select("key", "value")
        if options.engine == "fencepost":
            from fencepost.spark import write_stream

            query = write_stream(
                rows_of,
                topic=sink,
                application_id=uuid.uuid4().hex,
                bootstrap_servers=bootstrap,
                checkpoint_location=checkpoint,
                trigger={"availableNow": True},
            )
        else:
            writer = rows_of.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
            writer = writer.option("topic", sink).option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        shutil.rmtree(checkpoint, ignore_errors=True)

    figures = {
        "read_per_second": rows / warm(options.rounds, read),
        "written_per_second": rows / warm(options.rounds, write),
        "streamed_per_second": rows / warm(options.rounds, stream),
    }
    spark.stop()
    report(**figures)


if __name__ == "__main__":
    main()
