"""A pipeline of Spark between topics of an Apache Kafka that wants TLS and SASL, by options of Spark's own format."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benchmarks.apache_kafka import ApacheKafka
from tests.client.sasl.servers import PASSWORD, USERNAME
from tests.client.secured import CERTIFICATES
from tests.compare.nodes.secured_kafka import secured_kafka, settings, token

from fencepost.client import Admin, Consumer, Producer
from fencepost.spark import local_session, write_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.compare

MODULES = "org.apache.kafka.common.security"
PEM = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": str(CERTIFICATES / "ca.pem")}
SASL = {"kafka.security.protocol": "SASL_SSL", **PEM}


def by_password(mechanism: str, module: str) -> dict[str, str]:
    jaas = f'{MODULES}.{module} required username="{USERNAME}" password="{PASSWORD}";'
    return SASL | {"kafka.sasl.mechanism": mechanism, "kafka.sasl.jaas.config": jaas}


WAYS = {
    "PLAIN": by_password("PLAIN", "plain.PlainLoginModule"),
    "SCRAM-SHA-256": by_password("SCRAM-SHA-256", "scram.ScramLoginModule"),
    "SCRAM-SHA-512": by_password("SCRAM-SHA-512", "scram.ScramLoginModule"),
    "OAUTHBEARER": SASL
    | {"kafka.sasl.mechanism": "OAUTHBEARER", "tokenProvider": f"{token.__module__}:{token.__name__}"},
    "SSL": {
        "kafka.security.protocol": "SSL",
        **PEM,
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": str(CERTIFICATES / "client.pem"),
    },
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with secured_kafka() as found:
        yield found


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    config = {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
    session = local_session("tests", 2, config)
    yield session
    session.stop()


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_reads_and_writes(way: str, kafka: ApacheKafka, spark: SparkSession, tmp_path: Path) -> None:
    source, target = f"in-{way.lower()}", f"out-{way.lower()}"
    plain = kafka.bootstrap
    servers = kafka.addresses["SSL" if way == "SSL" else "SASL_SSL"]

    async def fill() -> None:
        async with Admin(plain) as admin, Producer(plain) as producer:
            for topic in (source, target):
                await admin.create_topic(topic, partitions=2)
            for number in range(200):
                await producer.send(source, b"%d" % number)

    async def shown() -> list[int]:
        how = settings("SASL_SSL", "SCRAM-SHA-256")
        async with Consumer(target, bootstrap_servers=kafka.addresses["SASL_SSL"], **how) as consumer:
            return sorted([int((await anext(consumer)).value or b"") for _ in range(200)])

    asyncio.run(fill())
    rows = (
        spark.readStream.format("fencepost")
        .options(**WAYS[way])
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    write_stream(
        rows.select("key", "value"),
        topic=target,
        application_id=f"app-{way}",
        bootstrap_servers=servers,
        checkpoint_location=str(tmp_path / "checkpoint"),
        kafka_options=WAYS[way],
        trigger={"availableNow": True},
    ).awaitTermination()
    assert asyncio.run(shown()) == list(range(200))
