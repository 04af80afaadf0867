"""The examples with a schema registry: payments of several versions, and of none, become entries of a ledger once."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.apache_kafka import CACHE, NoPeer, fetch_jars
from examples.schema_registry import Registry, body, framed, schema_id
from examples.stand_in_registry import registry

from examples import avro_payments, protobuf_payments
from fencepost.broker import Broker, running_broker
from fencepost.client.blocking import Admin, Consumer, Producer
from fencepost.protocol.types import TopicPartition
from fencepost.spark import local_session

#: Of Spark's package for Avro; that of the Spark that is used is not everywhere to be had, and 4.2's works with 4.3.
AVRO = "4.2.0"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fencepost</groupId><artifactId>spark-avro</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-avro_2.13</artifactId><version>{AVRO}</version>
    </dependency>
  </dependencies>
</project>
"""
JARS = CACHE / f"spark-avro-{AVRO}"
ROOT = Path(__file__).parents[2]
TOPICS = ("payments", "ledger", "payments-refused")

#: A version without a currency, and one with a field that the ledger does not have.
FIRST = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "account", "type": "string"}, {"name": "amount", "type": "long"}],
}
NEWER = FIRST | {
    "fields": [
        {"name": "note", "type": ["null", "string"]},
        *FIRST["fields"],
        {"name": "currency", "type": "string"},
    ]
}


#: What begins with a byte 0 and is no frame, as a number of 8 bytes may.
LIKE_FRAMES = [(80_908_587_008).to_bytes(8), b"\x00" + b"\xff" * 7]


def text(value: str) -> bytes:
    return number(len(value)) + value.encode()


def number(value: int) -> bytes:
    """Zigzag, in groups of seven bits, as both Avro and Protobuf's sint64 have them."""
    return varint(value << 1 ^ value >> 63)


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def frame(schema: int, encoded: bytes) -> bytes:
    return b"\x00" + schema.to_bytes(4) + encoded


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    config = {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
    session = local_session("tests", 2, config)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker(
        settings={"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    ) as found:
        yield found


@pytest.fixture(scope="module")
def schemas() -> Iterator[Registry]:
    with registry() as address:
        yield Registry(address)


#: The example in a process of its own, since Java takes packages of Spark's only when it starts.
AVRO_TWICE = """
import sys
from examples.avro_payments import start
from examples.schema_registry import Registry
from fencepost.spark import local_session
jars, servers, registry, checkpoint, prefix = sys.argv[1:]
spark = local_session("avro", 2, {"spark.jars": jars, "spark.ui.showConsoleProgress": "false"})
for _ in range(2):
    start(spark, servers, Registry(registry), checkpoint, prefix).awaitTermination()
"""


def fill(servers: str, prefix: str, values: Sequence[bytes | None]) -> None:
    """The topics of an example, these values in the one that it reads."""
    with Admin(servers) as admin, Producer(servers) as producer:
        for name in TOPICS:
            admin.create_topic(prefix + name, partitions=1)
        for value in values:
            producer.send(f"{prefix}payments", value)
        producer.flush()


def written(servers: str, prefix: str) -> list[list[bytes | None]]:
    """What is in the ledger, and what was refused."""
    found = []
    for name in TOPICS[1:]:
        at = TopicPartition(prefix + name, 0)
        with Consumer(bootstrap_servers=servers) as consumer:
            consumer.assign([at])
            (end,) = consumer.end_offsets([at]).values()
            values = [record.value for record in consumer.poll(1000)]
            while consumer.position(at) < end:
                values += [record.value for record in consumer.poll(1000)]
        found.append(values)
    return found


def test_payments_in_avro_of_any_version_are_entries_of_the_newest(broker: Broker, tmp_path: Path) -> None:
    try:
        fetch_jars(JARS, POM, "Spark's package for Avro", "-DincludeArtifactIds=spark-avro_2.13")
    except NoPeer as reason:
        pytest.skip(str(reason))
    with registry() as address:
        payments_in_avro(broker.bootstrap_servers, Registry(address), address, tmp_path)


def payments_in_avro(servers: str, schemas: Registry, address: str, folder: Path) -> None:
    first, newer = (schemas.register("payments-value", json.dumps(schema)) for schema in (FIRST, NEWER))
    amiss: list[bytes | None] = [frame(first, b"\xff" * 3), *LIKE_FRAMES, b"no frame", b"", None]
    payments = [
        frame(first, text("alice") + number(-7)),
        frame(newer, number(1) + text("rent") + text("bob") + number(2**40) + text("CHF")),
    ]
    fill(servers, "avro-", [*payments, *amiss])
    jars = ",".join(map(str, JARS.glob("*.jar")))
    words = [jars, servers, address, str(folder), "avro-"]
    done = subprocess.run(
        [sys.executable, "-c", AVRO_TWICE, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ledger, refused = written(servers, "avro-")
    entry = schemas.register("avro-ledger-value", avro_payments.ENTRY)
    assert ledger == [
        frame(entry, text("alice") + number(-7) + text("EUR")),
        frame(entry, text("bob") + number(2**40) + text("CHF")),
    ]
    assert sorted(refused, key=str) == sorted(amiss, key=str)


def test_payments_in_protobuf_are_entries(spark: Any, broker: Broker, schemas: Registry, tmp_path: Path) -> None:
    def payment(account: str, amount: int, *more: bytes) -> bytes:
        fields = b"\x0a" + varint(len(account)) + account.encode() + b"\x10" + varint(amount % 2**64)
        return b"\x00" + fields + b"".join(more)

    known = schemas.register("payments-value", protobuf_payments.PAYMENT, "PROTOBUF")
    amiss: list[bytes | None] = [frame(known, b"\x00\xff\xff"), frame(known, b"\x02\x02"), b"no frame", b"", None]
    amiss += LIKE_FRAMES
    payments = [frame(known, payment("alice", -7)), frame(known, payment("bob", 2**40, b"\x1a\x03CHF", b"\x22\x01n"))]
    servers = broker.bootstrap_servers
    fill(servers, "protobuf-", [*payments, *amiss])
    for _ in range(2):
        protobuf_payments.start(spark, servers, schemas, str(tmp_path), "protobuf-").awaitTermination()
    ledger, refused = written(servers, "protobuf-")
    assert [(value or b"")[:6] for value in ledger] == [frame(known, b"\x00")] * 2
    read = [protobuf_payments.payment_class().FromString((value or b"")[6:]) for value in ledger]
    assert [(one.account, one.amount, one.currency) for one in read] == [("alice", -7, "EUR"), ("bob", 2**40, "CHF")]
    assert sorted(refused, key=str) == sorted(amiss, key=str)


def test_a_frame_is_read_as_it_was_made(spark: Any) -> None:
    from pyspark.sql import functions as sf

    ids = (0, 1, 255, 256, 2**31 - 1)
    rows = spark.createDataFrame([(bytearray(b"body"),)], "value binary")
    made = rows.select(*(framed(each, sf.col("value")).alias(str(each)) for each in ids)).first()
    assert [bytes(value) for value in made] == [frame(each, b"body") for each in ids]
    for each, value in zip(ids, made, strict=True):
        row = spark.createDataFrame([(value,)], "value binary").select(
            schema_id(sf.col("value")), body(sf.col("value"))
        )
        assert [*map(bytes, row.first()[1:])] == [b"body"] and row.first()[0] == each


def test_an_id_that_the_registry_does_not_have_is_told_from_a_registry_that_is_not_there() -> None:
    with registry() as address:
        assert Registry(address).schema(10**6) is None
        with pytest.raises(urllib.error.HTTPError, match="404"):
            Registry(f"{address}/elsewhere").schema(10**6)
    with pytest.raises(OSError, match="refused"):
        Registry(address).schema(10**6)


def test_what_only_begins_like_a_frame_stops_nobody(spark: Any, schemas: Registry) -> None:
    rows = spark.createDataFrame([(bytearray(value),) for value in LIKE_FRAMES], "value binary")
    assert [row[0] for row in rows.select(schema_id(rows.value)).collect()] == [0x12D6, None]
    read = rows.select(avro_payments.payment(rows, schemas).alias("payment"))
    assert [tuple(row) for row in read.select("payment.account", "payment.amount", "payment.currency").collect()] == [
        (None, None, None)
    ] * 2
