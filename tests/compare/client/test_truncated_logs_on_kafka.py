"""An Apache Kafka whose log lost its end while it was down, and a consumer that had read that (KIP-320)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from benchmarks.apache_kafka import ApacheKafka, restartable_apache_kafka
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.compare.nodes.two_nodes import skipped_without_kafka
from tests.spark.test_source import SCHEMA, rows_of

from fencepost.client import Admin, Consumer, LogTruncatedError, Producer, TopicPartition
from fencepost.client.errors import BrokerError
from fencepost.protocol.batch import headers
from fencepost.spark.options import parse
from fencepost.spark.source import StreamReader

pytestmark = pytest.mark.compare
READ, KEPT, MORE = 8, 5, 6


async def write(bootstrap: str, values: list[bytes]) -> None:
    """Each record in a batch of its own."""
    async with Producer(bootstrap) as producer:
        for value in values:
            await (await producer.send("t", value, partition=0))


def cut(log: Path) -> None:
    """Leave the first records of a partition that nobody has open."""
    data = log.read_bytes()
    (end,) = (at for at, header in headers(data) if header.base_offset == KEPT)
    with log.open("r+b") as file:
        file.truncate(end)


async def values(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += [record.value for record in await consumer.poll(1000)]
    return found


def lose_the_end(kafka: ApacheKafka) -> None:
    kafka.end(signal.SIGKILL)
    cut(kafka.data / "t-0" / "00000000000000000000.log")
    kafka.start()


@pytest.mark.parametrize("starts_again", [False, True])
@pytest.mark.parametrize("reset", ["latest", "error"])
def test_what_was_written_anew_is_read(reset: str, starts_again: bool) -> None:
    async def scenario(kafka: ApacheKafka) -> None:
        old, new = [b"old %d" % n for n in range(READ)], [b"new %d" % n for n in range(MORE)]
        at = TopicPartition("t", 0)
        async with Admin(kafka.bootstrap) as admin:
            await admin.create_topic("t", partitions=1)
        await write(kafka.bootstrap, old)

        def consumer() -> Consumer:
            return Consumer(bootstrap_servers=kafka.bootstrap, group_id="g", auto_commit=False, auto_offset_reset=reset)

        reader = consumer()
        try:
            reader.assign([at])
            reader.seek(at, 0)
            assert await values(reader, READ) == old
            await reader.commit()
            if starts_again:
                await reader.close()
            await asyncio.to_thread(lose_the_end, kafka)
            await write(kafka.bootstrap, new)
            if starts_again:
                reader = consumer()
                reader.assign([at])
            if reset == "error":
                with pytest.raises(LogTruncatedError) as raised:
                    await values(reader, 1)
                assert (raised.value.position, raised.value.parted) == (READ, KEPT)
                reader.seek(at, raised.value.parted)
            assert await values(reader, MORE) == new
        finally:
            await reader.close()

    with skipped_without_kafka(), restartable_apache_kafka() as kafka:
        asyncio.run(scenario(kafka))


@pytest.mark.parametrize("fails", [True, False])
def test_a_source_of_spark_that_is_started_again_reads_or_names_what_it_passed_over(fails: bool) -> None:
    with skipped_without_kafka(), restartable_apache_kafka() as kafka:
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
        options = parse(given | {"failOnDataLoss": str(fails)}, streaming=True)
        asyncio.run(write(kafka.bootstrap, [b"old %d" % n for n in range(READ)]))
        before = StreamReader(options, SCHEMA)
        start = before.latestOffset(before.initialOffset(), ReadAllAvailable())
        before.stop()
        lose_the_end(kafka)
        new = [b"new %d" % n for n in range(MORE)]
        asyncio.run(write(kafka.bootstrap, new))
        reader = StreamReader(options, SCHEMA)
        if fails:
            with pytest.raises(BrokerError, match=f"read to offset {READ}, but lost its records from {KEPT} on since"):
                reader.latestOffset(start, ReadAllAvailable())
        else:
            there = reader.latestOffset(start, ReadAllAvailable())
            parts = reader.partitions(there, reader.latestOffset(there, ReadAllAvailable()))
            assert [row.value for row in rows_of(reader, parts, "t")] == new
        reader.stop()
