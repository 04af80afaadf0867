"""Transactional producers that note what they were told, and a reader that notes what it was shown."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from fencepost.client import Admin, Consumer, Producer, TopicPartition, TransactionAbortableError
from fencepost.client.errors import (
    ClientError,
    CommitInDoubtError,
    OutcomeUnknownError,
    TimedOutError,
    TransactionTimedOutError,
)
from fencepost.simulation.processes import Process
from fencepost.simulation.script import End, Transaction, Write
from fencepost.simulation.world import ADDRESS, World

TOPICS: Final[Mapping[str, int]] = {"left": 2, "right": 3}
ABORTS: Final = 0.2
DEATHS: Final = 0.03
_LAST_TRIES: Final = 20
_LONGEST_END: Final = 180
"""Seconds after which no further try is begun."""


POSITIONS: Final = TopicPartition("left", 0)
"""What the groups of the workload have a position in."""

EARLY: Final = ", and is told that its time was up"


class Load(NamedTuple):
    """What producers do beside writing, committing, aborting and dying."""

    positions: float = 0
    """How many of the transactions also commit a position of a group: the number of the transaction."""
    takeovers: float = 0
    """In how many another instance takes over while the first goes on."""
    transaction_timeout_ms: int = 60_000
    request_timeout_ms: int = 2000
    delivery_timeout_ms: int = 120_000
    pause: float = 0
    """Seconds between transactions, about."""
    most_records: int = 6
    """Of a transaction."""
    batch_bytes: int = 256 * 1024
    max_in_flight: int = 5


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
    positions: dict[str, int] = field(default_factory=dict)
    """Transaction -> the position that its group has if it is committed."""
    surprises: list[str] = field(default_factory=list)
    """What no producer should be told."""
    removed: Set[tuple[str, int, str]] = frozenset()
    """Records that somebody deleted, or retention took: topic, partition, value."""


async def make_topics(
    world: World,
    transaction_version: int = 2,
    settings: Mapping[str, str] = {},
) -> None:
    """Make the topics, and finalize a level of the feature."""
    async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
        await admin.update_feature("transaction.version", transaction_version)
        for topic, partitions in TOPICS.items():
            await admin.create_topic(topic, partitions=partitions, config=settings)


class Died(Exception):
    """A producer ended in the middle of its transaction; the next one of its name has it aborted."""


class Replaced(Exception):
    """Another instance is to take over while this one goes on."""


def _producer(process: Process, number: int, load: Load) -> Producer:
    return Producer(
        ADDRESS,
        transactional_id=process.name,
        transaction_timeout_ms=load.transaction_timeout_ms,
        request_timeout_ms=load.request_timeout_ms,
        delivery_timeout_ms=load.delivery_timeout_ms,
        batch_bytes=load.batch_bytes,
        max_in_flight_requests_per_connection=load.max_in_flight,
        runtime=process.runtime(f"{process.name}-{number}"),
    )


def start_producer(
    world: World,
    name: str,
    outcomes: Outcomes,
    stop: asyncio.Event,
    load: Load = Load(),  # noqa: B008
) -> asyncio.Future[None]:
    """`produce` in a process of its own."""
    process = Process(world, name)
    return process.start(produce(process, outcomes, stop, load))


async def produce(process: Process, outcomes: Outcomes, stop: asyncio.Event, load: Load) -> None:
    """Transactions of some records until told to stop; one in five is aborted on purpose."""
    world, name = process.world, process.name
    chance = world.chance(name)
    number = 0
    zombie: Zombie | None = None
    haunting: list[asyncio.Task[None]] = []
    while not stop.is_set():
        producer = _producer(process, number, load)
        try:
            await producer.start()
            await producer.init_transactions()
            if zombie is not None:
                haunting.append(asyncio.get_running_loop().create_task(_haunt(world, zombie, outcomes)))
                zombie = None
            while not stop.is_set():
                planned = world.prompter.transaction(name, partial(_drawn, world, number, chance, load))
                if planned is None:
                    await stop.wait()
                    break
                await world.until(planned.time)
                tag, number, begun = f"{name}-{planned.number}", planned.number + 1, world.loop.time()
                try:
                    await _transaction(world, producer, tag, outcomes, planned)
                except TransactionAbortableError as error:
                    _check_time(world, tag, error, begun, load, outcomes)
                    await producer.abort_transaction()
                    outcomes.aborted[tag] = outcomes.unknown.pop(tag)
                    world.note(f"{tag} could not be committed")
        except Died:
            number += 1
        except Replaced:
            zombie = Zombie(producer, tag)
            number += 1
            continue
        except ClientError as error:
            # The next producer of this name takes over; what became of the transaction is not known.
            _gave_up(world, name, error, outcomes)
            number += 1
        await producer.close()
    if zombie is not None:
        await zombie.producer.abandon()
    await asyncio.gather(*haunting)
    await _commit_at_last(process, number, outcomes, load)


async def _commit_at_last(process: Process, number: int, outcomes: Outcomes, load: Load) -> None:
    """When nothing goes wrong any more, somebody who writes to every partition comes to commit that."""
    world, name = process.world, process.name
    producer = _producer(process, number, load)
    latest = world.loop.time() + _LONGEST_END
    try:
        await producer.start()
        await producer.init_transactions()
        for tag in (f"{name}-{number + tries}" for tries in range(_LAST_TRIES) if world.loop.time() < latest):
            sent = [Sent(topic, n, f"{tag}-{topic}{n}") for topic, count in TOPICS.items() for n in range(count)]
            outcomes.unknown[tag] = sent
            await producer.begin_transaction()
            try:
                for each in sent:
                    await producer.send(each.topic, each.value.encode(), partition=each.partition)
                await producer.commit_transaction()
            except TransactionAbortableError as error:
                world.note(f"{tag} has failed: {error}")
                await producer.abort_transaction()
                outcomes.aborted[tag] = outcomes.unknown.pop(tag)
            else:
                outcomes.committed[tag] = outcomes.unknown.pop(tag)
                world.note(f"{tag} committed, the last one")
                break
        else:
            outcomes.surprises.append(f"{name} does not come to commit anything though nothing goes wrong any more")
    except ClientError as error:
        _gave_up(world, name, error, outcomes)
    await producer.close()


def _check_time(
    world: World, tag: str, error: TransactionAbortableError, begun: float, load: Load, outcomes: Outcomes
) -> None:
    world.note(f"{tag} has failed: {error}")
    took = (world.loop.time() - begun) * 1000
    if isinstance(error, TransactionTimedOutError) and took < load.transaction_timeout_ms:
        outcomes.surprises.append(f"{tag} took {took:.0f} ms{EARLY}")


def _gave_up(world: World, name: str, error: ClientError, outcomes: Outcomes) -> None:
    world.note(f"{name} gives up: {type(error).__name__}")
    if not isinstance(error, TimedOutError | OutcomeUnknownError | CommitInDoubtError):
        outcomes.surprises.append(f"{name}, whom nobody had replaced, is told: {error}")


class Zombie(NamedTuple):
    """A producer that has a successor and does not know."""

    producer: Producer
    tag: str


async def _haunt(world: World, zombie: Zombie, outcomes: Outcomes) -> None:
    """Go on with a transaction after the successor has taken over: it must not be committed."""
    producer, tag = zombie
    try:
        await producer.send("left", f"{tag}-zombie".encode(), partition=0)
        await producer.commit_transaction()
    except ClientError as error:
        world.note(f"{tag} is fenced: {type(error).__name__}")
    else:
        outcomes.surprises.append(f"{tag} was committed by a zombie")
    await producer.abandon()


def _drawn(world: World, number: int, chance: random.Random, load: Load) -> Transaction:
    """What a producer does next."""
    pause = chance.expovariate(1 / load.pause) if load.pause else 0
    records = []
    for _ in range(chance.randint(1, load.most_records)):
        topic = chance.choice(list(TOPICS))
        partition = chance.randrange(TOPICS[topic])
        records.append(Write(topic, partition, chance.uniform(0, 0.01) if chance.random() < 0.3 else 0))
    position = bool(load.positions) and chance.random() < load.positions
    if load.takeovers and chance.random() < load.takeovers:
        end = End.IS_REPLACED
    elif chance.random() < DEATHS:
        end = End.DIES
    else:
        end = End.ABORTS if chance.random() < ABORTS else End.COMMITS
    return Transaction(number, world.loop.time() + pause, tuple(records), end, position)


async def _transaction(world: World, producer: Producer, tag: str, outcomes: Outcomes, planned: Transaction) -> None:
    records: list[Sent] = []
    outcomes.unknown[tag] = records
    await producer.begin_transaction()
    for n, (topic, partition, pause) in enumerate(planned.records):
        records.append(sent := Sent(topic, partition, f"{tag}-{n}"))
        await producer.send(sent.topic, sent.value.encode(), partition=sent.partition)
        if pause:
            await asyncio.sleep(pause)
    if planned.position:
        await _commit_position(producer, tag, outcomes)
    if planned.end is End.IS_REPLACED:
        records.append(Sent("left", 0, f"{tag}-zombie"))
        outcomes.aborted[tag] = outcomes.unknown.pop(tag)
        world.note(f"{tag} is to be taken over")
        raise Replaced
    if planned.end is End.DIES:
        outcomes.aborted[tag] = outcomes.unknown.pop(tag)
        await producer.abandon()
        world.note(f"{tag} left open")
        raise Died
    if planned.end is End.ABORTS:
        await producer.abort_transaction()
        outcomes.aborted[tag] = outcomes.unknown.pop(tag)
        world.note(f"{tag} aborted")
    else:
        await producer.commit_transaction()
        outcomes.committed[tag] = outcomes.unknown.pop(tag)
        world.note(f"{tag} committed")


async def _commit_position(producer: Producer, tag: str, outcomes: Outcomes) -> None:
    name, _, number = tag.rpartition("-")
    outcomes.positions[tag] = int(number)
    await producer.send_offsets_to_transaction({POSITIONS: int(number)}, name)


async def read_positions(world: World, names: Sequence[str]) -> dict[str, int]:
    """The position of each producer's group, none if it has none."""
    found = {}
    for name in names:
        runtime = world.runtime(f"group-{name}")
        async with Consumer(bootstrap_servers=ADDRESS, group_id=name, runtime=runtime) as consumer:
            position = (await consumer.committed([POSITIONS]))[POSITIONS]
            if position is not None:
                found[name] = position.offset
    return found


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
        partition = world.broker.node.storage.partition(*at)
        assert partition is not None
        await world.broker.node.storage.wait_durable(world.broker.node.storage.lsn)
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


async def read_meanwhile(process: Process, passes: list[dict[TopicPartition, list[str]]], stop: asyncio.Event) -> None:
    """What read_committed consumers are shown while everything goes on, each from the start of every partition."""
    world, name = process.world, process.name
    partitions = [TopicPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)]
    chance = world.chance(name)
    while not stop.is_set():
        shown: dict[TopicPartition, list[str]] = {at: [] for at in partitions}
        runtime = process.runtime(f"{name}-{len(passes)}")
        passes.append(shown)
        until = world.loop.time() + chance.uniform(0.05, 1)
        try:
            async with Consumer(
                bootstrap_servers=ADDRESS, runtime=runtime, fetch_max_wait_ms=20, request_timeout_ms=400
            ) as consumer:
                consumer.assign(partitions)
                while world.loop.time() < until and not stop.is_set():
                    for record in await consumer.poll(20):
                        shown[TopicPartition(record.topic, record.partition)].append((record.value or b"").decode())
        except ClientError as error:
            world.note(f"{name} begins anew: {type(error).__name__}")
