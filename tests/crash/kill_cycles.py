"""A broker process killed -9 again and again under a transactional load, and the verdict on what it kept.

Producers write tagged records, a few per transaction over several partitions, and note what became of each
transaction.  Between kills nothing is settled: a producer whose broker dies repeats its request until it is answered.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_port
from tests.preloaded import Preloaded, preloaded

from fencepost.client import Admin, Producer
from fencepost.client.errors import ClientError, TimedOutError

TOPICS = {"left": 2, "right": 3}
READY = "ready"


@dataclass
class Outcomes:
    """What the producers were told: transaction tag -> its records, by outcome."""

    committed: dict[str, list[str]] = field(default_factory=dict)
    aborted: dict[str, list[str]] = field(default_factory=dict)
    unknown: dict[str, list[str]] = field(default_factory=dict)
    one_ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever a transaction is known to have ended."""


def verdict(outcomes: Outcomes, visible: Iterable[str]) -> list[str]:
    """Every broken promise as one sentence: lost, doubled, aborted but visible, torn, never sent."""
    counts = Counter(visible)
    faults = [f"{record} is visible {count} times" for record, count in sorted(counts.items()) if count > 1]
    known: set[str] = set()
    for tag, records in outcomes.committed.items():
        known.update(records)
        faults += [f"{record} of the committed transaction {tag} is lost" for record in records if record not in counts]
    for tag, records in outcomes.aborted.items():
        known.update(records)
        faults += [f"{record} of the aborted transaction {tag} is visible" for record in records if record in counts]
    for tag, records in outcomes.unknown.items():
        known.update(records)
        seen = [record for record in records if record in counts]
        if seen and len(seen) != len(records):
            faults.append(f"transaction {tag} is torn: {len(seen)} of {len(records)} records are visible")
    faults += [f"{record} was never sent" for record in sorted(counts) if record not in known]
    return faults


class Node:
    """A `fencepost serve` process on one port and directory.  What it says is added to `said`."""

    def __init__(self, data: Path, said: Path | None = None) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.command = [sys.executable, "-m", "fencepost", "serve", "--listen", self.address, "--data", str(data)]
        self._said = said
        self._process: Preloaded | None = None
        self.slowest_start = 0.0

    @property
    def call(self) -> tuple[str, list[str]]:
        """The function that the command calls, and its arguments."""
        return "fencepost.cli.main", self.command[3:]

    def start(self) -> None:
        begin = time.monotonic()
        process = preloaded(*self.call, self._said)
        line = process.stdout.readline()
        assert self.address in line, f"the broker did not start: {line!r}"
        self.slowest_start = max(self.slowest_start, time.monotonic() - begin)
        self._process = process

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def stop(self) -> None:
        """A clean stop."""
        process = self._process
        self.kill(signal.SIGTERM)
        assert process is None or process.returncode == 0, f"it stopped with {process.returncode}"

    def ended(self) -> int:
        """The exit code of a process that ends by itself, within a minute."""
        assert self._process is not None
        return self._process.wait(60)


async def produce(
    address: str, name: str, outcomes: Outcomes, chance: random.Random, stop: asyncio.Event, size: int = 0
) -> None:
    """Transactions of one to six records until told to stop; one in five is aborted on purpose.

    Records are filled up to `size` bytes with blanks.
    """
    number = 0
    while not stop.is_set():
        async with Producer(address, transactional_id=name, request_timeout_ms=2000) as producer:
            try:
                await producer.init_transactions()
            except TimedOutError:
                continue  # it lives too short on this machine to be found in time
            while not stop.is_set():
                tag, number = f"{name}-{number}", number + 1
                records = [f"{tag}-{i}" for i in range(chance.randint(1, 6))]
                outcomes.unknown[tag] = records
                try:
                    await producer.begin_transaction()
                    for record in records:
                        topic = chance.choice(list(TOPICS))
                        value = record.encode().ljust(size)
                        await producer.send(topic, value, partition=chance.randrange(TOPICS[topic]))
                    if chance.random() < 0.2:
                        await producer.abort_transaction()
                        outcomes.aborted[tag] = outcomes.unknown.pop(tag)
                    else:
                        await producer.commit_transaction()
                        outcomes.committed[tag] = outcomes.unknown.pop(tag)
                    outcomes.one_ended.set()
                except ClientError:
                    break  # the next producer of this name takes over; what became of the transaction is unknown


async def run(node: Node, cycles: int, seed: int, longest_life: float = 0.5) -> Outcomes:
    """Kill and restart the node `cycles` times while four producers work.

    It lives up to `longest_life` seconds; in three lives of four these begin when a transaction has ended in it.
    """
    chance, outcomes, stop = random.Random(seed), Outcomes(), asyncio.Event()
    await asyncio.to_thread(node.start)
    async with Admin(node.address) as admin:
        for topic, partitions in TOPICS.items():
            await admin.create_topic(topic, partitions=partitions)
    names = [f"producer-{n}" for n in range(4)]
    tasks = [
        asyncio.create_task(produce(node.address, name, outcomes, random.Random(f"{seed}-{name}"), stop))
        for name in names
    ]
    for cycle in range(cycles):
        if cycle % 4:
            outcomes.one_ended.clear()
            await asyncio.wait_for(outcomes.one_ended.wait(), 60)
        await asyncio.sleep(chance.uniform(0.05, longest_life))
        node.kill()
        await asyncio.to_thread(node.start)
    await asyncio.sleep(0.5)
    stop.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    return outcomes
