"""A Java consumer in a group, in a process of its own, and which partitions it says that it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.apache_kafka import java

from fencepost.client.assignors import COOPERATIVE_STICKY, RANGE, ROUND_ROBIN, STICKY

PROGRAM = Path(__file__).parent / "java" / "GroupMember.java"
_PACKAGE = "org.apache.kafka.clients.consumer"
_CLASSES: Mapping[str, str] = {
    RANGE: f"{_PACKAGE}.RangeAssignor",
    ROUND_ROBIN: f"{_PACKAGE}.RoundRobinAssignor",
    STICKY: f"{_PACKAGE}.StickyAssignor",
    COOPERATIVE_STICKY: f"{_PACKAGE}.CooperativeStickyAssignor",
}


class JavaMember:
    """What a Java consumer says that it has."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.owned: set[int] = set()

    async def listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.startswith(b"owns"):
                self.owned = {int(number) for number in line.decode()[5:].strip().split(",") if number}


@asynccontextmanager
async def java_member(bootstrap: str, group: str, topic: str, strategy: str) -> AsyncIterator[JavaMember]:
    command = java(str(PROGRAM), bootstrap, group, topic, _CLASSES.get(strategy, strategy))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)
    member = JavaMember(process)
    listening = asyncio.ensure_future(member.listen())
    try:
        yield member
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await listening
