"""Payments in Avro, by a schema registry: whatever version each was written with, into a ledger, exactly once.

Reads topic `payments`, each record with the schema that it names, and writes `ledger` in the newest one.  What cannot
be read goes to `payments-refused` as it is, in the same transaction.

    python examples/avro_payments.py 127.0.0.1:9092 http://127.0.0.1:8081

Spark fetches its package for Avro, which is none of pyspark's, from Maven Central.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pyspark
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.streaming.query import StreamingQuery

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from examples.schema_registry import Registry, body, framed, schema_id
from fencepost.spark import local_session, write_stream

#: What the ledger is written in, and payments of whatever version are read as.
ENTRY = json.dumps(
    {
        "type": "record",
        "name": "Payment",
        "fields": [
            {"name": "account", "type": "string"},
            {"name": "amount", "type": "long"},
            {"name": "currency", "type": "string", "default": "EUR"},
        ],
    }
)
#: The same as a type of Spark's, for when there is nothing to read.
READ = "struct<account: string, amount: bigint, currency: string>"


def payment(rows: DataFrame, registry: Registry) -> Column:
    """Each payment, read with the schema that it names.  Null, or of nothing but nulls, where it cannot be."""
    found = sf.lit(None).cast(READ)
    for (number,) in rows.select(schema_id(sf.col("value"))).distinct().collect():  # computes the rows once more
        written = None if number is None else registry.schema(number)
        if written is not None:  # else it is no frame, though it may begin like one
            read = from_avro(body(sf.col("value")), written, {"avroSchema": ENTRY, "mode": "PERMISSIVE"})
            found = sf.when(schema_id(sf.col("value")) == number, read).otherwise(found)
    return found


def entries(rows: DataFrame, _batch_id: int, registry: Registry, entry_id: int, prefix: str = "") -> DataFrame:
    """The rows of both topics for one micro-batch."""
    read = rows.withColumn("payment", payment(rows, registry))
    is_one = sf.coalesce(sf.col("payment.account").isNotNull(), sf.lit(False))
    entry = sf.struct(sf.col("payment.account"), sf.col("payment.amount"), sf.col("payment.currency"))
    return read.select(
        sf.when(is_one, f"{prefix}ledger").otherwise(f"{prefix}payments-refused").alias("topic"),
        "key",
        sf.when(is_one, framed(entry_id, to_avro(entry, ENTRY))).otherwise(sf.col("value")).alias("value"),
    )


def start(spark: SparkSession, servers: str, registry: Registry, checkpoint: str, prefix: str = "") -> StreamingQuery:
    """Process what is in the topic now.  `prefix` comes before the names of all topics."""
    rows = (
        spark.readStream.format("fencepost")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", f"{prefix}payments")
        .option("startingOffsets", "earliest")
        .load()
    )
    entry_id = registry.register(f"{prefix}ledger-value", ENTRY)
    return write_stream(
        rows,
        topics=[f"{prefix}ledger", f"{prefix}payments-refused"],
        application_id=f"{prefix}ledger",
        bootstrap_servers=servers,
        checkpoint_location=checkpoint,
        transform=partial(entries, registry=registry, entry_id=entry_id, prefix=prefix),
        trigger={"availableNow": True},
    )


if __name__ == "__main__":
    package = f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}"
    session = local_session("ledger", config={"spark.jars.packages": package})
    start(session, sys.argv[1], Registry(sys.argv[2]), "checkpoints/ledger").awaitTermination()
