"""Transactional producers that note what they were told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from fencepost.client import Admin, Producer, RecordMetadata, TransactionAbortableError
from fencepost.client.errors import (
    ClientError,
    CommitInDoubtError,
    OutcomeUnknownError,
    TimedOutError,
    TransactionTimedOutError,
)
from fencepost.simulation.record_shapes import Shape
from fencepost.simulation.script import End, Transaction, Write
from fencepost.simulation.sights import Sights
from fencepost.simulation.surroundings import ClientProcess, Surroundings
from fencepost.simulation.waiting import all_of

ABORTS: Final = 0.2
DEATHS: Final = 0.03
_LAST_TRIES: Final = 20
_LONGEST_END: Final = 180
"""Seconds after which no further try is begun."""

EARLY: Final = ", and is told that its time was up"


class Load(NamedTuple):
    """The load of producers: what they do beside writing, committing and aborting, and by which settings."""

    positions: float = 0
    """The share of transactions that also commit an offset of a group: the number of the transaction."""
    prepares: bool = False
    """Whether impatient ones also prepare transactions."""
    two_phase: bool = False
    """Whether the transactions of impatient ones have no time-out (KIP-939)."""
    takeovers: float = 0
    """The share of transactions in which another instance takes over while the first goes on."""
    transaction_timeout_ms: int = 60_000
    request_timeout_ms: int = 2000
    delivery_timeout_ms: int = 120_000
    pause: float = 0
    """Seconds between transactions, about."""
    most_records: int = 6
    """The most records that a transaction has."""
    batch_bytes: int = 256 * 1024
    max_in_flight: int = 5
    compression: str = "none"
    """The codec of the batches."""
    together: float = 0
    """The share of transactions in which one call hands over the records of a partition."""
    batches: bool = False
    """Whether readers take what was fetched of one partition at once."""
    impatience_ms: int = 400
    """Milliseconds that readers, and those who send raw requests or single records, wait for an answer."""
    shape: Shape = Shape()
    """The keys and the size of the records."""


class Sent(NamedTuple):
    """A record that a producer handed over."""

    topic: str
    partition: int
    value: str


@dataclass
class Outcomes:
    """The records of transactions by the outcome that producers were told, `unknown` if a failed commit may be made."""

    committed: dict[str, list[Sent]] = field(default_factory=dict)
    aborted: dict[str, list[Sent]] = field(default_factory=dict)
    unknown: dict[str, list[Sent]] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    """Transaction -> the position that its group has if it is committed."""
    surprises: list[str] = field(default_factory=list)
    """What no producer should be told."""
    removed: Set[tuple[str, int, str]] = frozenset()
    """Records that somebody deleted, or retention took: topic, partition, value."""
    keys: int = 0
    """The number of keys of each producer, where the topics are compacted; 0 where they are not."""
    sights: Sights = field(default_factory=Sights, compare=False)
    """The records that readers were shown."""


async def send(producer: Producer, sent: Sent, shape: Shape) -> asyncio.Future[RecordMetadata]:
    """Hand a record over to a producer; the future of its metadata."""
    key, headers = shape.key_of(sent.value), shape.headers_of(sent.value)
    return await producer.send(sent.topic, sent.value.encode(), key=key, partition=sent.partition, headers=headers)


def goes_together(world: Surroundings, tag: str, load: Load) -> bool:
    """Whether the records of this transaction are handed over in one call for each partition."""
    return bool(load.together) and world.chance(f"{tag}/together").random() < load.together


def sent_together(tag: str, planned: Transaction, shape: Shape) -> list[list[Sent]]:
    """The records of a transaction, those that one call takes together: of one partition, and without headers."""
    sent = [Sent(topic, partition, f"{tag}-{n}") for n, (topic, partition, _) in enumerate(planned.records)]
    calls: list[list[Sent]] = []
    for _, there in groupby(sorted(sent, key=itemgetter(0, 1)), itemgetter(0, 1)):
        for has_headers, alike in groupby(there, lambda one: bool(shape.headers_of(one.value))):
            found = [*alike]
            calls += [[one] for one in found] if has_headers else [found]
    return calls


async def send_together(producer: Producer, sent: Sequence[Sent], shape: Shape) -> asyncio.Future[Any]:
    """Hand these records over in one call, where they are several."""
    (topic, partition, _), keys = sent[0], [shape.key_of(each.value) for each in sent]
    if len(sent) == 1:
        return await send(producer, sent[0], shape)
    values = [each.value.encode() for each in sent]
    return await producer.send_many(topic, values, keys=keys if shape.keys else None, partition=partition)


async def make_topics(
    world: Surroundings,
    transaction_version: int | None = 2,
    settings: Mapping[str, str] = {},
) -> None:
    """Make the topics, and finalize a level of the feature (None: leave it as it is)."""
    async with Admin(world.cluster.address, runtime=world.runtime("admin")) as admin:
        if transaction_version is not None:
            await admin.update_feature("transaction.version", transaction_version)
        for topic, partitions in world.cluster.topics.items():
            await admin.create_topic(topic, partitions=partitions, config=settings)


class Died(Exception):
    """A producer is to end in the middle of its transaction; the next one of its name has it aborted."""


class Replaced(Exception):
    """Another instance is to take over while this one goes on."""


def producer_of(process: ClientProcess, number: int, load: Load, *, two_phase: bool = False) -> Producer:
    """The producer of one life of a process."""
    return Producer(
        process.world.cluster.address,
        transactional_id=process.world.cluster.name_of(process.name),
        transaction_timeout_ms=load.transaction_timeout_ms,
        request_timeout_ms=load.request_timeout_ms,
        delivery_timeout_ms=load.delivery_timeout_ms,
        batch_bytes=load.batch_bytes,
        max_in_flight_requests_per_connection=load.max_in_flight,
        compression=load.compression,
        transaction_two_phase_commit_enable=two_phase,
        runtime=process.runtime(f"{process.name}-{number}"),
    )


def start_producer(
    process: ClientProcess,
    outcomes: Outcomes,
    stop: asyncio.Event,
    load: Load = Load(),  # noqa: B008
) -> asyncio.Future[None]:
    """Have a process do `produce`."""
    return process.start(produce(process, outcomes, stop, load))


async def produce(process: ClientProcess, outcomes: Outcomes, stop: asyncio.Event, load: Load) -> None:
    """Write transactions of some records until told to stop; one in five is aborted on purpose."""
    world, name = process.world, process.name
    chance = world.chance(name)
    number = 0
    zombie: Zombie | None = None
    haunting: list[asyncio.Task[None]] = []
    while not stop.is_set():
        producer = producer_of(process, number, load)
        try:
            await producer.start()
            await producer.init_transactions()
            if zombie is not None:
                haunting.append(asyncio.get_running_loop().create_task(_haunt(world, zombie, outcomes, load)))
                zombie = None
            while not stop.is_set():
                planned = world.prompter.transaction(name, partial(drawn, world, number, chance, load))
                if planned is None:
                    await stop.wait()
                    break
                await world.until(planned.time)
                tag, number, begun = f"{name}-{planned.number}", planned.number + 1, world.loop.time()
                try:
                    await _transaction(world, producer, tag, outcomes, load, planned)
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
            gave_up(world, name, error, outcomes)
            number += 1
        await producer.close()
    if zombie is not None:
        await zombie.producer.abandon()
    await all_of(*haunting)
    await commit_at_last(process, number, outcomes, load)


async def commit_at_last(process: ClientProcess, number: int, outcomes: Outcomes, load: Load) -> None:
    """Have a producer, or others after it, commit a record to every partition, when nothing goes wrong any more."""
    world, name = process.world, process.name
    producer = producer_of(process, number, load)
    latest = world.loop.time() + min(_LONGEST_END, world.patience)
    is_ready = False
    for following in range(number, number + _LAST_TRIES):
        if world.loop.time() >= latest:
            break
        try:
            if not is_ready:
                await producer.start()
                await producer.init_transactions()
                is_ready = True
            if await _commit_everywhere(world, producer, f"{name}-{following}", outcomes, load):
                await producer.close()
                return
        except ClientError as error:
            # What became of it is not known; the next one is to come to it.
            gave_up(world, name, error, outcomes)
            await producer.close()
            producer, is_ready = producer_of(process, following + 1, load), False
    await producer.close()
    outcomes.surprises.append(f"{name} does not come to commit anything though nothing goes wrong any more")


async def _commit_everywhere(world: Surroundings, producer: Producer, tag: str, outcomes: Outcomes, load: Load) -> bool:
    """Write a record to each partition in one transaction; whether it is committed."""
    sent = [Sent(*at, f"{tag}-{at.topic}{at.partition}") for at in world.cluster.places]
    outcomes.unknown[tag] = sent
    await producer.begin_transaction()
    try:
        for each in sent:
            await send(producer, each, load.shape)
        await producer.commit_transaction()
    except TransactionAbortableError as error:
        world.note(f"{tag} has failed: {error}")
        await producer.abort_transaction()
        outcomes.aborted[tag] = outcomes.unknown.pop(tag)
        return False
    outcomes.committed[tag] = outcomes.unknown.pop(tag)
    world.note(f"{tag} committed, the last one")
    return True


def _check_time(
    world: Surroundings, tag: str, error: TransactionAbortableError, begun: float, load: Load, outcomes: Outcomes
) -> None:
    world.note(f"{tag} has failed: {error}")
    took = (world.loop.time() - begun) * 1000
    if isinstance(error, TransactionTimedOutError) and took < load.transaction_timeout_ms:
        outcomes.surprises.append(f"{tag} took {took:.0f} ms{EARLY}")


def gave_up(world: Surroundings, name: str, error: ClientError, outcomes: Outcomes) -> None:
    """Note the error that ended a producer, as a surprise if none should have."""
    world.note(f"{name} gives up: {type(error).__name__}")
    if not isinstance(error, TimedOutError | OutcomeUnknownError | CommitInDoubtError):
        outcomes.surprises.append(f"{name}, whom nobody had replaced, is told: {error}")


class Zombie(NamedTuple):
    """A producer that has a successor and does not know."""

    producer: Producer
    tag: str


async def _haunt(world: Surroundings, zombie: Zombie, outcomes: Outcomes, load: Load) -> None:
    """Go on with a transaction after the successor has taken over: it must not be committed."""
    producer, tag = zombie
    try:
        await send(producer, Sent(*world.cluster.position, f"{tag}-zombie"), load.shape)
        await producer.commit_transaction()
    except ClientError as error:
        world.note(f"{tag} is fenced: {type(error).__name__}")
    else:
        outcomes.surprises.append(f"{tag} was committed by a zombie")
    await producer.abandon()


def drawn(world: Surroundings, number: int, chance: random.Random, load: Load) -> Transaction:
    """Draw the next transaction of a producer."""
    pause = chance.expovariate(1 / load.pause) if load.pause else 0
    records, topics = [], world.cluster.topics
    for _ in range(chance.randint(1, load.most_records)):
        topic = chance.choice(list(topics))
        partition = chance.randrange(topics[topic])
        records.append(Write(topic, partition, chance.uniform(0, 0.01) if chance.random() < 0.3 else 0))
    position = bool(load.positions) and chance.random() < load.positions
    if load.takeovers and chance.random() < load.takeovers:
        end = End.IS_REPLACED
    elif chance.random() < DEATHS:
        end = End.DIES
    else:
        end = End.ABORTS if chance.random() < ABORTS else End.COMMITS
    return Transaction(number, world.loop.time() + pause, tuple(records), end, position)


async def _transaction(
    world: Surroundings, producer: Producer, tag: str, outcomes: Outcomes, load: Load, planned: Transaction
) -> None:
    records: list[Sent] = []
    outcomes.unknown[tag] = records
    await producer.begin_transaction()
    if goes_together(world, tag, load):
        for each in sent_together(tag, planned, load.shape):
            records += each
            await send_together(producer, each, load.shape)
    else:
        await _send_one_by_one(producer, tag, records, planned, load.shape)
    if planned.position:
        await _commit_position(world, producer, tag, outcomes)
    if planned.end is End.IS_REPLACED:
        records.append(Sent(*world.cluster.position, f"{tag}-zombie"))
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


async def _send_one_by_one(
    producer: Producer, tag: str, records: list[Sent], planned: Transaction, shape: Shape
) -> None:
    for n, (topic, partition, pause) in enumerate(planned.records):
        records.append(sent := Sent(topic, partition, f"{tag}-{n}"))
        await send(producer, sent, shape)
        if pause:
            await asyncio.sleep(pause)


async def _commit_position(world: Surroundings, producer: Producer, tag: str, outcomes: Outcomes) -> None:
    name, _, number = tag.rpartition("-")
    outcomes.positions[tag] = int(number)
    at, group = world.cluster.position, world.cluster.name_of(name)
    await producer.send_offsets_to_transaction({at: int(number)}, group)
