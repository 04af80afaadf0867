"""A real node on a device that fails under it: nothing acknowledged is lost, and it says what to do.

The device is a file of a tmpfs.  When that is full, a write to the device is an error that its file system did not
count with: ext4 gives EIO to a sync, and then can only be read.
"""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.crash.kill_cycles import TOPICS, Node, Outcomes, produce, verdict
from tests.crash.test_kill_cycles import read_committed

from fencepost.client import Admin

_ROOM = "size=24m"
_MORE_ROOM = "size=256m"
_SIZE = 128 * 1024 * 1024


class Device:
    """A file system on a device that takes less than it has said."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "mounted"
        self._below = folder / "below"
        self._image = self._below / "image"

    def make(self) -> None:
        self.path.mkdir()
        self._below.mkdir()
        run("mount", "-t", "tmpfs", "-o", _ROOM, "tmpfs", self._below)
        with self._image.open("wb") as image:
            image.truncate(_SIZE)
        run("mkfs.ext4", "-q", "-e", "remount-ro", self._image)
        run("mount", "-o", "loop", self._image, self.path)

    def repair(self) -> None:
        run("umount", self.path)
        run("mount", "-o", f"remount,{_MORE_ROOM}", self._below)
        assert subprocess.run(["e2fsck", "-fy", self._image], capture_output=True).returncode <= 1
        run("mount", "-o", "loop", self._image, self.path)

    def remove(self) -> None:
        for path in (self.path, self._below):
            subprocess.run(["umount", "-l", path], capture_output=True)


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def failing_device(folder: Path) -> Iterator[Device]:
    device = Device(folder)
    try:
        try:
            device.make()
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no device can be made that fails: {error}")
        yield device
    finally:
        device.remove()


async def until_it_ends(node: Node) -> tuple[Outcomes, int]:
    """What producers are told until the node has ended by itself, and its exit code."""
    outcomes, stop = Outcomes(), asyncio.Event()
    await asyncio.to_thread(node.start)
    async with Admin(node.address) as admin:
        for topic, partitions in TOPICS.items():
            await admin.create_topic(topic, partitions=partitions)
    tasks = [
        asyncio.create_task(produce(node.address, name, outcomes, random.Random(name), stop, size=30_000))
        for name in ("one", "two", "three")
    ]
    code = await asyncio.to_thread(node.ended)
    stop.set()
    waiting = set(tasks)
    while waiting:  # the first time a producer begins to close, and would wait for the node
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=0.1)
    return outcomes, code


def start_anew(node: Node) -> str:
    """What refuses to start says.  The device is never so well that a start could write."""
    refused = subprocess.run(node.command, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2
    return refused.stderr


def test_a_device_that_fails_ends_the_node_and_what_was_acknowledged_is_there_when_it_is_well(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with failing_device(tmp_path) as device:
        node = Node(device.path / "data", said)
        try:
            outcomes, code = asyncio.run(until_it_ends(node))
            assert code == 1
            assert said.read_text().count("nothing acknowledged is lost, start again when the disk is well") == 1
            assert len(outcomes.committed) > 10

            refused = start_anew(node)
            assert re.fullmatch(r"fencepost serve: .*(Read-only file system|Input/output error).*\n", refused), refused

            device.repair()
            node.start()
            assert verdict(outcomes, read_committed(node.address)) == []
            node.stop()
        finally:
            node.kill()
        assert "Traceback" not in said.read_text()
