"""Ctrl-C at any moment of a loop, with asyncio and without: it ends, nothing stays open, nothing counts twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import pytest
from tests.processes import begun

from fencepost.broker import running_broker
from fencepost.client.blocking import Admin, Consumer, ExactlyOnce, Producer

COUNT = 3000
_CLIENTS = """
    Consumer("in", bootstrap_servers=servers, group_id="g", group_instance_id="i", auto_commit=False) as consumer,
    Producer(servers, transactional_id="id") as producer,
"""
#: Whoever is started in the background of a shell has Ctrl-C ignored.
_HEARD = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
PROGRAMS = {
    "asyncio": f"""
import asyncio, sys
from fencepost.client import Consumer, ExactlyOnce, Producer
servers = sys.argv[1]
async def main():
  async with ({_CLIENTS}):
    async for transaction in ExactlyOnce(consumer, producer, max_records=2):
        print("on", flush=True)
        async with transaction:
            for record in transaction.records:
                await (await transaction.send("out", record.value))
asyncio.run(main())
""",
    "blocking": f"""
import sys
from fencepost.client.blocking import Consumer, ExactlyOnce, Producer
servers = sys.argv[1]
with ({_CLIENTS}):
    for transaction in ExactlyOnce(consumer, producer, max_records=2):
        print("on", flush=True)
        with transaction:
            for record in transaction.records:
                transaction.send("out", record.value).result()
""",
}


def interrupt(program: str, servers: str, seconds: float) -> str:
    """Have it work for a while, then press Ctrl-C; what it says at its end."""
    process = begun(
        subprocess.Popen(
            [sys.executable, "-c", _HEARD + program, servers], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=30)[1]
    except subprocess.TimeoutExpired as unheard:
        # Python drops what is raised while a weak reference ends: whoever sits there presses again.
        if b"Exception ignored in" not in (unheard.stderr or b""):
            raise
        process.send_signal(signal.SIGINT)
        return process.communicate(timeout=30)[1]


@pytest.mark.parametrize("face", PROGRAMS)
def test_ctrl_c_leaves_nothing_open(face: str) -> None:
    chance = random.Random(face)
    place: dict[str, Any] = {"group_id": "g", "group_instance_id": "i", "auto_commit": False}
    with running_broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        servers = broker.bootstrap_servers
        with Producer(servers, linger_ms=20) as producer:
            for number in range(COUNT):
                producer.send("in", b"%d" % number, partition=0)
        with Admin(servers) as admin:
            for _ in range(3):
                said = interrupt(PROGRAMS[face], servers, chance.uniform(0, 0.1))
                assert "KeyboardInterrupt" in said
                assert "never retrieved" not in said
                assert admin.list_transactions(["Ongoing"]) == {}
        with (
            Consumer("in", bootstrap_servers=servers, **place) as consumer,
            Producer(servers, transactional_id="id") as producer,
        ):
            loop = ExactlyOnce(consumer, producer)
            for transaction in loop:
                with transaction:
                    for record in transaction.records:
                        transaction.send("out", record.value)
                        if record.value == b"%d" % (COUNT - 1):
                            loop.stop()
        found: Counter[bytes | None] = Counter()
        with Consumer("out", bootstrap_servers=servers) as judge:
            while records := judge.poll(1000, COUNT):
                found.update(record.value for record in records)
    assert found == {b"%d" % number: 1 for number in range(COUNT)}
