"""Spark, topic to nowhere, nowhere to topic and topic to topic: rows per second, warm.

--engine fencepost: our source and our exactly-once sink.  --engine kafka: Spark's own connector, whose sink is
at-least-once (it needs its jars in --jars and a Spark that they were built for).
--follow: do what each line of standard input says, a JSON object of `Order`'s fields, and answer each with the seconds
that it took (`benchmarks.spark_beside` gives the orders).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import uuid
from typing import Any, Final, NamedTuple

from benchmarks.measure import fresh_topic, report

PARTITIONS = 4
SIZE = 100


#: kind of key -> key and value of row `id`, in SQL.  Without a key its value says where a row goes: those differ in
#: length, from half of the size to one and a half.
ROWS: Final = {
    "number": ("cast(cast(id as string) as binary)", "cast(repeat('v', {size}) as binary)"),
    "none": ("cast(null as binary)", "cast(repeat('v', cast({size} / 2 + id % {size} as int)) as binary)"),
    "long": (
        "cast(lpad(cast(id as string), cast(150 + id % 100 as int), 'k') as binary)",
        "cast(repeat('v', {size}) as binary)",
    ),
}


class Order(NamedTuple):
    """One piece of work: `what` is a method of `Work`, `size` the bytes of a value, `key` one of `ROWS`."""

    what: str
    source: str
    sink: str
    rows: int
    size: int
    key: str = "number"


def fill(bootstrap: str, topic: str, count: int, size: int = SIZE) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 100_000})
    value = b"v" * size
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, key=b"%d" % number, partition=number % PARTITIONS)
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


class Work:
    """What is measured, on one cluster through one session."""

    def __init__(self, engine: str, bootstrap: str, jars: str) -> None:
        self._engine, self._bootstrap = engine, bootstrap
        self.spark = session(engine, jars)

    def _reader(self, source: str, stream: bool) -> Any:
        made = (self.spark.readStream if stream else self.spark.read).format(self._engine)
        made = made.option("kafka.bootstrap.servers", self._bootstrap).option("subscribe", source)
        return made.option("startingOffsets", "earliest").load()

    def read(self, order: Order) -> None:
        self._reader(order.source, False).write.format("noop").mode("overwrite").save()

    def write(self, order: Order) -> None:
        key, value = ROWS[order.key]
        value = value.format(size=order.size)
        made = self.spark.range(0, order.rows, 1, PARTITIONS).selectExpr(f"{key} as key", f"{value} as value")
        if self._engine == "fencepost":
            from fencepost.spark import write

            names = {"application_id": "bench", "run_id": uuid.uuid4().hex, "topic": order.sink}
            write(made, bootstrap_servers=self._bootstrap, **names)
        else:
            writer = made.write.format("kafka").option("kafka.bootstrap.servers", self._bootstrap)
            writer.option("topic", order.sink).save()

    def stream(self, order: Order) -> None:
        checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
        rows = self._reader(order.source, True).select("key", "value")
        if self._engine == "fencepost":
            from fencepost.spark import write_stream

            query = write_stream(
                rows,
                topic=order.sink,
                application_id=uuid.uuid4().hex,
                bootstrap_servers=self._bootstrap,
                checkpoint_location=checkpoint,
                trigger={"availableNow": True},
            )
        else:
            writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", self._bootstrap)
            writer = writer.option("topic", order.sink).option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        shutil.rmtree(checkpoint, ignore_errors=True)

    def seconds(self, order: Order) -> float:
        begin = time.perf_counter()
        getattr(self, order.what)(order)
        return time.perf_counter() - begin


def follow(work: Work) -> None:
    """Answer orders until there are no more."""
    for line in sys.stdin:
        report(seconds=work.seconds(Order(**json.loads(line))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--engine", choices=("fencepost", "kafka"), default="fencepost")
    parser.add_argument("--jars", default="")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--follow", action="store_true")
    options = parser.parse_args()
    if options.follow:
        follow(Work(options.engine, options.bootstrap, options.jars))
        return
    source, sink = fresh_topic(options.bootstrap, PARTITIONS), fresh_topic(options.bootstrap, PARTITIONS)
    fill(options.bootstrap, source, options.rows)
    work = Work(options.engine, options.bootstrap, options.jars)

    def rate(what: str) -> float:
        order = Order(what, source, sink, options.rows, SIZE)
        return float(options.rows / min(work.seconds(order) for _ in range(options.rounds)))

    figures = {
        "read_per_second": rate("read"),
        "written_per_second": rate("write"),
        "streamed_per_second": rate("stream"),
    }
    work.spark.stop()
    report(**figures)


if __name__ == "__main__":
    main()
