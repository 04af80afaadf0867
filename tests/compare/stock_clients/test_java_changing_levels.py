"""transaction.version goes down and up again under Java producers, which know all its levels: no record is lost."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from pathlib import Path

import pytest
from benchmarks.apache_kafka import java
from benchmarks.fencepost_node import fencepost_node
from tests.stock_clients.test_changing_levels import (
    LEVELS,
    PARTITIONS,
    RECORDS,
    TOPIC,
    Told,
    change_levels,
    check,
    shown,
)

from fencepost.client import Admin

SOURCE = Path(__file__).parent / "java" / "ChangingLevels.java"
PRODUCERS = 2


def start(bootstrap: str, name: str) -> subprocess.Popen[str]:
    command = java(str(SOURCE), bootstrap, TOPIC, str(PARTITIONS), str(RECORDS), name)
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def _first_line(process: subprocess.Popen[str]) -> str:
    """It is under way."""
    assert process.stdout is not None
    return process.stdout.readline()


def told_by(output: str) -> Told:
    told = Told(threading.Event())
    lines = output.splitlines()
    for number, line in enumerate(lines):
        outcome, tag, *_ = line.split()
        assert hasattr(told, outcome), "the client logged an error:\n" + "\n".join(lines[number : number + 20])
        getattr(told, outcome).append(tag)
    return told


@pytest.mark.compare
@pytest.mark.usefixtures("kafka_tool")
def test_no_java_producer_loses_or_doubles_a_record() -> None:
    async def prepare(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS)
            await admin.update_feature("transaction.version", 2)

    with fencepost_node() as (bootstrap, _, _):
        asyncio.run(prepare(bootstrap))
        processes = {name: start(bootstrap, name) for name in (f"java-{n}" for n in range(PRODUCERS))}
        outputs = {name: _first_line(process) for name, process in processes.items()}
        asyncio.run(change_levels(bootstrap, threading.Event()))
        for name, process in processes.items():
            outputs[name] += process.communicate(timeout=60)[0]
        values = asyncio.run(shown(bootstrap))
    for name, output in outputs.items():
        told = told_by(output)
        check(name, told, values)
        assert len(told.committed) > 20, output
        assert len(told.unknown) <= len(LEVELS), output
