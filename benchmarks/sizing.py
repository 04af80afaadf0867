"""What a micro-batch takes on a cluster of Spark's own, by its rows, the topic's partitions, and the tasks that write.

    python -m benchmarks.sizing --bootstrap host:port --master spark://host:port

Rows are of 100 bytes, made by Spark; each batch is one transaction.  Of each kind the first batch is not counted.  The
executors need the package (docs/pipelines.md).  For `transaction_timeout_ms` the longest transaction counts.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import uuid
from typing import TYPE_CHECKING

from benchmarks.measure import fresh_topic
from fencepost.spark import Report, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BYTES = 100


def batch(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, 2).selectExpr(
        "cast(cast(id as string) as binary) as key", f"cast(repeat('v', {BYTES}) as binary) as value"
    )


def reports(spark: SparkSession, bootstrap: str, rows: int, partitions: int, tasks: int, rounds: int) -> list[Report]:
    """Of `rounds` batches, after one that is not counted."""
    topic, query, found = fresh_topic(bootstrap, partitions), uuid.uuid4().hex, list[Report]()
    sink = Sink(f"sizing-{query}", bootstrap, [topic], tasks=tasks, report=found.append)
    for number in range(rounds + 1):
        sink.write(batch(spark, rows), number, query, topic=topic, new_query=number == 0)
    sink.close()
    return found[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--master", required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--partitions", type=int, nargs="+", default=[2, 16, 128])
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(options.master).config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print("| rows | partitions | tasks | tasks take, ms | begin and commit, ms | longest transaction, ms | rows/s |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for rows, partitions, tasks in itertools.product(options.rows, options.partitions, options.tasks):
        if tasks > partitions:
            continue
        told = reports(spark, options.bootstrap, rows, partitions, tasks, options.rounds)
        work = statistics.median(each.tasks_ms for each in told)
        around = statistics.median(each.begin_ms + each.commit_ms for each in told)
        longest = max(each.begin_ms + each.tasks_ms + each.commit_ms for each in told)
        print(f"| {rows} | {partitions} | {tasks} | {work:.0f} | {around:.0f} | {longest} ", end="")
        print(f"| {rows / (work + around) * 1000:.0f} |", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
