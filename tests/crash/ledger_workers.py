"""Workers of `examples/ledger.py` in processes of their own, killed and started again while payments come."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fencepost.client import Admin, Consumer, Producer

ROOT = Path(__file__).parents[2]
PARTITIONS = 6
ACCOUNTS = 20
#: Milliseconds: the least that the nodes are set to allow.
SESSION_MS = 1000
PATIENCE = 90.0
"""Seconds after the last payment and the last kill, for everything to be in the ledger."""

_PROGRAM = f"""
import asyncio, sys
from examples.ledger import keep_ledger
servers, prefix, name, *static = sys.argv[1:]
quick = dict(session_timeout_ms={SESSION_MS}, rebalance_timeout_ms=3000, heartbeat_interval_ms=200)
asyncio.run(keep_ledger(servers, name, prefix, group_instance_id=name if static else None, **quick))
"""


class Worker:
    """One place, and the process that has it now."""

    def __init__(self, servers: str, prefix: str, name: str, *, static: bool, log: Path) -> None:
        self._command = [sys.executable, "-c", _PROGRAM, servers, prefix, name, *(["static"] if static else [])]
        self._log = log
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("a") as log:
            return subprocess.Popen(self._command, cwd=ROOT, stderr=log)

    def again(self, how: signal.Signals) -> None:
        """End it, and start the next one in its place."""
        self.end(how)
        self.process = self._start()

    def end(self, how: signal.Signals) -> None:
        """SIGTERM lets it finish what it has begun."""
        self.process.send_signal(how)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()


@contextmanager
def workers(servers: str, prefix: str, count: int, log: Path) -> Iterator[list[Worker]]:
    """The first of them is a static member."""
    found = [Worker(servers, prefix, f"worker-{n}", static=n == 0, log=log) for n in range(count)]
    try:
        yield found
    finally:
        for worker in found:
            worker.end(signal.SIGKILL)


async def pay(servers: str, prefix: str, count: int, seconds: float) -> None:
    """So many payments over so many seconds: the amounts count up, and every account has its own."""
    async with Producer(servers) as producer:
        for number in range(count):
            await producer.send(f"{prefix}payments", b"%d" % number, key=b"%d" % (number % ACCOUNTS))
            await asyncio.sleep(seconds / count)


async def entries(servers: str, prefix: str, count: int) -> dict[str, list[int]]:
    """What the ledger says of each account, in order: once there are so many entries, and nothing more comes."""
    found: dict[str, list[int]] = defaultdict(list)
    end = time.monotonic() + PATIENCE
    async with Consumer(f"{prefix}ledger", bootstrap_servers=servers) as reader:
        while True:
            records = await reader.poll(2000)
            for record in records:
                entry = json.loads(record.value or b"")
                found[entry["account"]].append(entry["amount"])
            if time.monotonic() > end or (not records and sum(map(len, found.values())) >= count):
                return found


def faults_of(found: dict[str, list[int]], count: int) -> list[str]:
    """Payments that are lost, doubled, or in another order than they came in."""
    faults = []
    for account in range(ACCOUNTS):
        amounts, expected = found.get(str(account), []), list(range(account, count, ACCOUNTS))
        faults += [f"payment {amount} is lost" for amount in expected if amount not in amounts]
        doubled = [amount for amount in expected if amounts.count(amount) > 1]
        faults += [f"payment {amount} is there {amounts.count(amount)} times" for amount in doubled]
        faults += [f"{amount} is no payment" for amount in amounts if amount not in expected]
        if not faults and amounts != expected:
            faults.append(f"the payments of account {account} are not in order")
    return faults


async def storm(servers: str, prefix: str, log: Path, *, kills: int, count: int, seed: int) -> list[str]:
    """Three workers and, for a while, a fourth; faults of the ledger when everything has come to rest."""
    chance = random.Random(seed)
    async with Admin(servers) as admin:
        for topic, partitions in {"payments": PARTITIONS, "ledger": 3, "payments-refused": 1}.items():
            await admin.create_topic(prefix + topic, partitions=partitions)
    with workers(servers, prefix, 3, log) as three:
        paying = asyncio.ensure_future(pay(servers, prefix, count, kills * 0.8))
        with _fourth(servers, prefix, log):
            await _kill(three, kills // 2, chance)
        await _kill(three, kills - kills // 2, chance)
        await paying
        found = await entries(servers, prefix, count)
        for worker in three:
            worker.end(signal.SIGTERM)
            if worker.process.returncode != 0:
                return [f"a worker ended with {worker.process.returncode}: see {log}"]
    return faults_of(found, count)


@contextmanager
def _fourth(servers: str, prefix: str, log: Path) -> Iterator[None]:
    worker = Worker(servers, prefix, "worker-3", static=False, log=log)
    try:
        yield
    finally:
        worker.end(signal.SIGTERM)


async def _kill(those: Sequence[Worker], times: int, chance: random.Random) -> None:
    for _ in range(times):
        await asyncio.sleep(chance.uniform(0.1, 1.5))
        how = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        await asyncio.to_thread(chance.choice(those).again, how)
