"""Transactional producers that note what they were told, and a reader that notes what it was shown."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fencepost.client import Admin, Consumer, Producer, TopicPartition, TransactionAbortableError
from fencepost.client.errors import ClientError
from fencepost.simulation.world import ADDRESS, World

TOPICS: Final[Mapping[str, int]] = {"left": 2, "right": 3}
ABORTS: Final = 0.2
DEATHS: Final = 0.03


class Sent(NamedTuple):
    """A record that a producer handed over."""

    topic: str
    partition: int
    value: str


@dataclass
class Outcomes:
    """What the producers were told: transaction -> its records, by outcome.  A failed commit may have been made."""

    committed: dict[str, list[Sent]] = field(default_factory=dict)
    aborted: dict[str, list[Sent]] = field(default_factory=dict)
    unknown: dict[str, list[Sent]] = field(default_factory=dict)


async def make_topics(world: World, transaction_version: int = 2) -> None:
    """Make the topics, and finalize a level of the feature."""
    async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
        await admin.update_feature("transaction.version", transaction_version)
        for topic, partitions in TOPICS.items():
            await admin.create_topic(topic, partitions=partitions)


class Died(Exception):
    """A producer ended in the middle of its transaction; the next one of its name has it aborted."""


async def produce(world: World, name: str, outcomes: Outcomes, stop: asyncio.Event) -> None:
    """Transactions of one to six records until told to stop; one in five is aborted on purpose."""
    chance = world.chance(name)
    number = 0
    while not stop.is_set():
        runtime = world.runtime(f"{name}-{number}")
        async with Producer(ADDRESS, transactional_id=name, request_timeout_ms=2000, runtime=runtime) as producer:
            try:
                await producer.init_transactions()
                while not stop.is_set():
                    tag, number = f"{name}-{number}", number + 1
                    try:
                        await _transaction(world, producer, tag, outcomes, chance)
                    except TransactionAbortableError:
                        await producer.abort_transaction()
                        outcomes.aborted[tag] = outcomes.unknown.pop(tag)
                        world.note(f"{tag} could not be committed")
            except Died:
                number += 1
            except ClientError as error:
                # The next producer of this name takes over; what became of the transaction is not known.
                world.note(f"{name} gives up: {type(error).__name__}")
                number += 1


async def _transaction(world: World, producer: Producer, tag: str, outcomes: Outcomes, chance: random.Random) -> None:
    records: list[Sent] = []
    outcomes.unknown[tag] = records
    await producer.begin_transaction()
    for n in range(chance.randint(1, 6)):
        topic = chance.choice(list(TOPICS))
        sent = Sent(topic, chance.randrange(TOPICS[topic]), f"{tag}-{n}")
        records.append(sent)
        await producer.send(sent.topic, sent.value.encode(), partition=sent.partition)
        if chance.random() < 0.3:
            await asyncio.sleep(chance.uniform(0, 0.01))
    if chance.random() < DEATHS:
        outcomes.aborted[tag] = outcomes.unknown.pop(tag)
        await producer.abandon()
        world.note(f"{tag} left open")
        raise Died
    if chance.random() < ABORTS:
        await producer.abort_transaction()
        outcomes.aborted[tag] = outcomes.unknown.pop(tag)
        world.note(f"{tag} aborted")
    else:
        await producer.commit_transaction()
        outcomes.committed[tag] = outcomes.unknown.pop(tag)
        world.note(f"{tag} committed")


async def read_all(world: World, patience: float = 180) -> dict[TopicPartition, list[str]]:
    """What a read_committed consumer is shown from the start to the end of every partition.

    The last producers may have died with a transaction open, so there must be time for its time-out.  Raises
    AssertionError if it does not get to the end: a transaction hangs.
    """
    partitions = [TopicPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)]
    shown: dict[TopicPartition, list[str]] = {at: [] for at in partitions}
    assert world.broker is not None
    ends = {}
    for at in partitions:
        partition = world.broker.storage.partition(*at)
        assert partition is not None
        await world.broker.storage.wait_durable(world.broker.storage.lsn)
        ends[at] = partition.high_watermark
    async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), fetch_max_wait_ms=50) as consumer:
        consumer.assign(partitions)
        give_up = world.loop.time() + patience
        while not consumer.assignment() or any(consumer.position(at) < end for at, end in ends.items()):
            assert world.loop.time() < give_up, f"a transaction hangs: not read to {ends}"
            for record in await consumer.poll(100):
                value = (record.value or b"").decode()
                shown[TopicPartition(record.topic, record.partition)].append(value)
                world.note(f"read {record.topic}-{record.partition} {record.offset} {value}")
    return shown
