"""Payments in Protobuf, by a schema registry, into a ledger, exactly once; no package of Spark's is needed.

Reads topic `payments` and writes `ledger`.  A reader in Protobuf understands each version of a message, so the schema
that a record names is not asked for.  What cannot be read goes to `payments-refused` as it is, in the same transaction.

    python examples/protobuf_payments.py 127.0.0.1:9092 http://127.0.0.1:8081
"""

from __future__ import annotations

import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from examples.schema_registry import Registry, body, framed, schema_id
from fencepost.spark import local_session, write_stream

PAYMENT = """syntax = "proto3";
message Payment {
  string account = 1;
  int64 amount = 2;
  string currency = 3;
}
"""
FIRST_MESSAGE = b"\x00"


@cache
def payment_class() -> Any:
    """The class that `protoc --python_out` makes of PAYMENT, so that no compiler is needed here."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="payment.proto", syntax="proto3")
    message = file.message_type.add(name="Payment")
    fields = (("account", kinds.TYPE_STRING), ("amount", kinds.TYPE_INT64), ("currency", kinds.TYPE_STRING))
    for number, (name, kind) in enumerate(fields, 1):
        message.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Payment"))


def entry(framed_body: bytes | None) -> bytes | None:
    """The message of the ledger for a payment, both behind their frames; None if it is none."""
    if framed_body is None or not framed_body.startswith(FIRST_MESSAGE):
        return None
    payment = payment_class()()
    try:
        payment.ParseFromString(framed_body[len(FIRST_MESSAGE) :])
    except DecodeError:
        return None
    payment.currency = payment.currency or "EUR"
    return FIRST_MESSAGE + payment.SerializeToString(deterministic=True) if payment.account else None


def entries(rows: DataFrame, _batch_id: int, entry_id: int, prefix: str = "") -> DataFrame:
    """The rows of both topics for one micro-batch."""
    read = sf.udf(entry, "binary")
    payment = sf.when(schema_id(sf.col("value")).isNotNull(), body(sf.col("value")))
    made = rows.withColumn("entry", read(payment))
    is_one = sf.col("entry").isNotNull()
    return made.select(
        sf.when(is_one, f"{prefix}ledger").otherwise(f"{prefix}payments-refused").alias("topic"),
        "key",
        sf.when(is_one, framed(entry_id, sf.col("entry"))).otherwise(sf.col("value")).alias("value"),
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
    entry_id = registry.register(f"{prefix}ledger-value", PAYMENT, "PROTOBUF")
    return write_stream(
        rows,
        topics=[f"{prefix}ledger", f"{prefix}payments-refused"],
        application_id=f"{prefix}ledger",
        bootstrap_servers=servers,
        checkpoint_location=checkpoint,
        transform=partial(entries, entry_id=entry_id, prefix=prefix),
        trigger={"availableNow": True},
    )


if __name__ == "__main__":
    start(local_session("ledger"), sys.argv[1], Registry(sys.argv[2]), "checkpoints/ledger").awaitTermination()
