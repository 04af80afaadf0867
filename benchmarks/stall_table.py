"""A node to make stall, who writes to it, and the table of how long others waited meanwhile."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.prober import PROBED, Prober, Waits, Wire, probing
from benchmarks.steps import Longest, LongestStep
from fencepost.protocol.messages import CreateTopicsRequest
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from fencepost.protocol.records import encode_batch

CREATE_VERSION = 7
MOST_MS = 50
"""The aim: what others may wait."""


class Node:
    """A node of its own process, and the one who gives it work."""

    def __init__(self, data: Path, *settings: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        # Beside the data, and made before the node is, so that both share it.
        longest = data.with_name(data.name + ".steps")
        self.steps = LongestStep(longest)
        command = [sys.executable, "-m", "benchmarks.steps", str(longest)]
        command += ["serve", "--listen", self.address, "--data", str(data)]
        for setting in settings:
            command += ["--set", setting]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.data = data

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        if self.address not in self.process.stdout.readline():
            raise SystemExit("fencepost serve did not become ready")

    def wire(self) -> Wire:
        return Wire(self.address)

    @property
    def most_memory(self) -> int:
        """Bytes: the most that it has had so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.wait()


@contextmanager
def folder() -> Iterator[Path]:
    # Beside the checkout, not in /tmp: that may be memory, and then nothing is durable.
    root = Path(__file__).resolve().parent.parent / ".bench"
    root.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as path:
        yield Path(path)


class Table:
    """What was measured."""

    def __init__(self) -> None:
        self.slow: list[str] = []
        heads = f"{'took':>8} {'asked ms':>9} {'produced ms':>12} {'times':>6} {'step ms':>8} {'of CPU':>7}"
        print(f"{'while':46} {heads}", flush=True)

    def add(self, what: str, seconds: float, waits: Waits, longest: Longest) -> None:
        waited = f"{waits.asked_ms:9.1f} {waits.produced_ms:12.1f} {waits.times:6d}"
        print(f"{what:46} {seconds:6.2f} s {waited} {longest.wall_ms:8.1f} {longest.cpu_ms:7.1f}", flush=True)
        if max(waits.asked_ms, waits.produced_ms) > MOST_MS:
            self.slow.append(what)
        if longest.cpu_ms > MOST_MS / 2:
            print(f"    the longest step: {longest.what}", flush=True)

    @contextmanager
    def measuring(self, what: str, prober: Prober) -> Iterator[None]:
        prober.waits()
        prober.longest_step()
        begin = time.perf_counter()
        yield
        self.add(what, time.perf_counter() - begin, prober.waits(), prober.longest_step())


@contextmanager
def served(*settings: str) -> Iterator[tuple[Node, Wire, Prober]]:
    """A fresh node that is being probed, and a connection to it."""
    with folder() as path:
        node = Node(path / "data", *settings)
        try:
            node.wait_ready()
            wire = node.wire()
            create(wire, PROBED, 1)
            with probing(node.address, node.steps) as prober:
                prober.waits()
                yield node, wire, prober
        finally:
            node.end()


def create(wire: Wire, name: str, partitions: int, **settings: str) -> None:
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=configs)
    (made,) = wire.ask(CreateTopicsRequest(topics=[topic]), CREATE_VERSION).topics
    if made.error_code:
        raise SystemExit(f"{name} with {partitions} partitions: {made}")


def record(timestamp: int | None = None, value: bytes = b"x") -> bytes:
    return encode_batch([(int(time.time() * 1000) if timestamp is None else timestamp, None, value, ())])


def wait_until(what: str, holds: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"not within {seconds} s: {what}")
        time.sleep(0.05)
