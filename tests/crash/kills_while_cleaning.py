"""A node killed -9 in the middle of compaction, while settings change and topics are deleted, and the verdict.

Producers write the newest state of keys of their own, in transactions.  The partition of a key shows in the end what
the transactions that were committed make of it, applied in their order: each of those whose end nobody knows as a whole
or not at all.  A record stands at the offset that was told when it was acknowledged, whatever went around it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.crash.kill_cycles import Node

from fencepost.client import Admin, ConfigChange, Producer
from fencepost.client.errors import ClientError

STATE, DOOMED = "state", "doomed"
PARTITIONS = 2
KEYS = 12
"""Of each producer."""
SIZE = 3000
"""Bytes of a value."""
CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
    "file.delete.delay.ms": "0",
    "retention.ms": "-1",
}
SETTINGS = ["--set", "log.cleaner.backoff.ms=20", "--set", "log.cleaner.io.max.bytes.per.second=4000000"]
POLICIES = ("compact", "delete", "compact,delete", "compact")


class Shown(NamedTuple):
    """A record as a reader is shown it; `value`: without its padding."""

    partition: int
    offset: int
    key: str
    value: str | None


@dataclass
class Transaction:
    """`changes`: key -> its new value, None for a tombstone; `committed`: None if nobody knows."""

    changes: dict[str, str | None]
    committed: bool | None = None
    told: dict[tuple[int, int], str] = field(default_factory=dict)
    """(partition, offset) -> key, of what was acknowledged."""


@dataclass
class Work:
    """What was done, by producer in its order; what was made of the topic that is deleted again and again."""

    transactions: dict[str, list[Transaction]] = field(default_factory=dict)
    generations: int = 0
    kept: set[str] = field(default_factory=set)
    """Keys of the newest of them that were acknowledged."""
    cut_off: int = 0
    """Kills that left files of a pass behind."""


def number(name: str, nth: int) -> str:
    """The key that a transaction alone has: by it is seen whether it was committed."""
    return f"{name}-transaction-{nth}"


def verdict(work: Work, shown: Sequence[Shown]) -> list[str]:
    """Every broken promise as a sentence."""
    table: dict[str, str] = {}
    for record in shown:
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    places = {(record.partition, record.offset): record.key for record in shown}
    faults = [] if len(places) == len(shown) else ["an offset was shown twice"]
    expected: dict[str, str] = {}
    for name, transactions in work.transactions.items():
        for nth, transaction in enumerate(transactions):
            for place, key in transaction.told.items():
                if places.get(place, key) != key:
                    faults.append(f"at {place} there was {key}, and is {places[place]}")
            if transaction.committed or (transaction.committed is None and number(name, nth) in table):
                for key, value in transaction.changes.items():
                    if value is None:
                        expected.pop(key, None)
                    else:
                        expected[key] = value
    wrong = [key for key in sorted({*table, *expected}) if table.get(key) != expected.get(key)]
    return [*faults, *(f"{key} is {table.get(key)}, and should be {expected.get(key)}" for key in wrong)]


def value_of(text: str, chance: random.Random) -> bytes:
    return text.encode() + b" " + chance.randbytes(SIZE)


async def produce(address: str, name: str, work: Work, chance: random.Random, stop: asyncio.Event) -> None:
    """Transactions of some keys until told to stop; one in five is aborted, one record in ten is a tombstone."""
    done = work.transactions.setdefault(name, [])
    while not stop.is_set():
        async with Producer(address, transactional_id=name, request_timeout_ms=2000) as producer:
            try:
                await producer.init_transactions()
                while not stop.is_set():
                    await one_transaction(producer, name, done, chance)
            except ClientError:
                continue  # the next producer of this name takes over


async def one_transaction(producer: Producer, name: str, done: list[Transaction], chance: random.Random) -> None:
    nth = len(done)
    changes: dict[str, str | None] = {number(name, nth): "done"}
    for _ in range(chance.randint(1, 12)):
        changes[f"{name}-{chance.randrange(KEYS)}"] = None if chance.random() < 0.1 else f"{nth}"
    done.append(transaction := Transaction(changes))
    await producer.begin_transaction()
    sent = []
    for key, text in changes.items():
        value = None if text is None else text.encode() if text == "done" else value_of(text, chance)
        sent.append((key, await producer.send(STATE, value, key=key.encode())))
    if chance.random() < 0.2:
        await producer.abort_transaction()
        transaction.committed = False
        return
    await producer.commit_transaction()
    transaction.committed = True
    for key, result in sent:
        record = await result
        transaction.told[record.partition, record.offset] = key


async def change_policy(address: str, chance: random.Random, stop: asyncio.Event) -> None:
    """Switch between policies: none of them lets anything go by age."""
    async with Admin(address, request_timeout_ms=2000) as admin:
        while not stop.is_set():
            await asyncio.sleep(chance.uniform(0.02, 0.3))
            try:
                await admin.alter_topic_config(STATE, ConfigChange(set={"cleanup.policy": chance.choice(POLICIES)}))
            except ClientError:
                continue


async def make_and_delete(address: str, work: Work, chance: random.Random, stop: asyncio.Event) -> None:
    """A compacted topic that is written to, deleted in the middle of that, and made again with other records."""
    async with Admin(address, request_timeout_ms=2000) as admin, Producer(address, request_timeout_ms=2000) as producer:
        while not stop.is_set():
            work.kept.clear()
            with suppress(ClientError):
                await admin.delete_topic(DOOMED)
            try:
                await admin.create_topic(DOOMED, partitions=1, config=CONFIG)
                work.generations += 1
                for _ in range(chance.randint(1, 20)):
                    keys = [f"{chance.randrange(KEYS)}" for _ in range(10)]
                    values = [value_of(f"{work.generations}", chance) for _ in keys]
                    await (await producer.send_many(DOOMED, values, keys=[key.encode() for key in keys]))
                    work.kept.update(keys)
            except ClientError:
                continue


def half_a_pass(data: Path) -> bool:
    """Whether a pass has files of its own on the disk."""
    with suppress(FileNotFoundError):  # what was found is gone when it is looked at
        return any(data.glob("*/*.cleaned")) or any(data.glob("*/*.swap"))
    return False


async def await_a_pass(data: Path) -> None:
    """Until the node is in the middle of one, or for two seconds."""
    for _ in range(2000):
        if half_a_pass(data):
            return
        await asyncio.sleep(0.001)


async def run(node: Node, data: Path, kills: int, seed: int) -> Work:
    """Kill and start the node so often, mostly in the middle of a pass, while all that goes on."""
    chance, work, stop = random.Random(seed), Work(), asyncio.Event()
    await asyncio.to_thread(node.start)
    async with Admin(node.address) as admin:
        await admin.create_topic(STATE, partitions=PARTITIONS, config=CONFIG)
    tasks = [
        asyncio.create_task(produce(node.address, f"producer{n}", work, random.Random(f"{seed}-{n}"), stop))
        for n in range(3)
    ]
    tasks.append(asyncio.create_task(change_policy(node.address, random.Random(f"{seed}-policy"), stop)))
    tasks.append(asyncio.create_task(make_and_delete(node.address, work, random.Random(f"{seed}-doomed"), stop)))
    for _ in range(kills):
        await asyncio.sleep(chance.uniform(0.05, 0.6))
        await await_a_pass(data)
        await asyncio.sleep(chance.choice([0, 0, chance.uniform(0, 0.02)]))
        node.kill()
        work.cut_off += half_a_pass(data)
        await asyncio.to_thread(node.start)
    await asyncio.sleep(0.5)
    stop.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 120)
    return work
