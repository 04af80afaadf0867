"""transaction.version goes down and up again while clients of every generation run transactions: no record is lost.

A client may have a transaction fail and abort it, or be built anew; what it was told to be committed is there once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import aiokafka
import confluent_kafka
import kafka
import pytest

from fencepost.broker import running_broker
from fencepost.client import Admin, Consumer, Producer, TransactionAbortableError
from fencepost.client.errors import ClientError

LEVELS = (1, 0, 1, 2)
SECONDS_AT_EACH = 1.5
TOPIC = "changing"
PARTITIONS = 3
RECORDS = 3


@dataclass
class Told:
    """What one client was told of its transactions; of the unknown ones it was told nothing certain."""

    stop: threading.Event
    committed: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def transactions(self, name: str) -> Iterator[tuple[str, bool]]:
        """Their names, and whether to commit them: two of three."""
        while not self.stop.is_set():
            number = len(self.committed) + len(self.aborted) + len(self.unknown)
            yield f"{name}-{number}", number % 3 != 0

    def ended(self, tag: str, commit: bool) -> None:
        (self.committed if commit else self.aborted).append(tag)


def confluent(servers: str, told: Told) -> None:
    """librdkafka, transaction.version 0."""
    while not told.stop.is_set():
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "transactional.id": "confluent", "log_level": 0}
        )
        producer.init_transactions(10)
        for tag, commit in told.transactions("confluent"):
            try:
                producer.begin_transaction()
                for n in range(RECORDS):
                    producer.produce(TOPIC, f"{tag}/{n}".encode(), partition=n % PARTITIONS)
                if commit:
                    producer.commit_transaction(10)
                else:
                    producer.flush(10)
                    producer.abort_transaction(10)
            except confluent_kafka.KafkaException as failed:
                if not failed.args[0].txn_requires_abort():
                    told.unknown.append(tag)
                    break
                producer.abort_transaction(10)
                told.aborted.append(tag)
            else:
                told.ended(tag, commit)


def kafka_python(servers: str, told: Told) -> None:
    """kafka-python, transaction.version 0, later API versions."""
    while not told.stop.is_set():
        producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id="kafka-python")
        producer.init_transactions()
        for tag, commit in told.transactions("kafka-python"):
            try:
                producer.begin_transaction()
                for n in range(RECORDS):
                    producer.send(TOPIC, f"{tag}/{n}".encode(), partition=n % PARTITIONS)
                if commit:
                    producer.commit_transaction()
                else:
                    producer.flush()
                    producer.abort_transaction()
            except kafka.errors.KafkaError:
                told.unknown.append(tag)
                break
            told.ended(tag, commit)
        producer.close(timeout=1)


def through_aiokafka(servers: str, told: Told) -> None:
    """aiokafka, transaction.version 0, the oldest API versions."""

    async def main() -> None:
        while not told.stop.is_set():
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="aiokafka")
            await producer.start()
            for tag, commit in told.transactions("aiokafka"):
                try:
                    await producer.begin_transaction()
                    for n in range(RECORDS):
                        await producer.send(TOPIC, f"{tag}/{n}".encode(), partition=n % PARTITIONS)
                    await (producer.commit_transaction() if commit else producer.abort_transaction())
                except aiokafka.errors.KafkaError:
                    told.unknown.append(tag)
                    break
                told.ended(tag, commit)
            await producer.stop()

    asyncio.run(main())


def own(servers: str, told: Told) -> None:
    """Ours, of whatever transaction.version is finalized."""

    async def main() -> None:
        while not told.stop.is_set():
            async with Producer(servers, transactional_id="own") as producer:
                await producer.init_transactions()
                for tag, commit in told.transactions("own"):
                    try:
                        await producer.begin_transaction()
                        for n in range(RECORDS):
                            await producer.send(TOPIC, f"{tag}/{n}".encode(), partition=n % PARTITIONS)
                        await (producer.commit_transaction() if commit else producer.abort_transaction())
                    except TransactionAbortableError:
                        await producer.abort_transaction()
                        told.aborted.append(tag)
                    except ClientError:
                        told.unknown.append(tag)
                        break
                    else:
                        told.ended(tag, commit)

    asyncio.run(main())


Client = Callable[[str, Told], None]
CLIENTS: dict[str, Client] = {
    "confluent": confluent,
    "kafka-python": kafka_python,
    "aiokafka": through_aiokafka,
    "own": own,
}


async def change_levels(servers: str, stop: threading.Event) -> None:
    try:
        async with Admin(servers) as admin:
            for level in LEVELS:
                await asyncio.sleep(SECONDS_AT_EACH)
                await admin.update_feature("transaction.version", level)
            await asyncio.sleep(SECONDS_AT_EACH)
    finally:
        stop.set()


async def shown(servers: str) -> Counter[str]:
    """Every record that a read_committed reader is shown."""
    values: Counter[str] = Counter()
    async with Consumer(TOPIC, bootstrap_servers=servers) as consumer:
        while records := await consumer.poll(500, 5000):
            values.update((record.value or b"").decode() for record in records)
    return values


def check(name: str, told: Told, values: Counter[str]) -> None:
    of_each = {
        tag: [values[f"{tag}/{n}"] for n in range(RECORDS)] for tag in (*told.committed, *told.aborted, *told.unknown)
    }
    once, never = [1] * RECORDS, [0] * RECORDS
    assert {tag: of_each[tag] for tag in told.committed if of_each[tag] != once} == {}, f"{name}: lost or doubled"
    assert {tag: of_each[tag] for tag in told.aborted if of_each[tag] != never} == {}, f"{name}: aborted, but shown"
    assert {tag: of_each[tag] for tag in told.unknown if of_each[tag] not in (once, never)} == {}, f"{name}: torn"


@pytest.fixture
def changing_servers() -> Iterator[str]:
    settings = {"transaction.state.log.num.partitions": 4}
    with running_broker(settings=settings) as broker:
        yield broker.bootstrap_servers


@pytest.mark.promise("890.levels")
def test_no_client_loses_or_doubles_a_record(changing_servers: str) -> None:
    servers, stop = changing_servers, threading.Event()
    told = {name: Told(stop) for name in CLIENTS}

    async def make_topic() -> None:
        async with Admin(servers) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS)
            await admin.update_feature("transaction.version", 2)

    asyncio.run(make_topic())
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        running = [pool.submit(client, servers, told[name]) for name, client in CLIENTS.items()]
        asyncio.run(change_levels(servers, stop))
        for one in running:
            one.result(30)
    values = asyncio.run(shown(servers))
    for name, client in told.items():
        check(name, client, values)
        assert len(client.committed) > 20, f"{name} goes on: {client}"
        assert len(client.unknown) <= len(LEVELS), f"{name} has to be built anew once for each change at most"
