"""Memory, start and descriptors of a node with many partitions: after they are made, after a clean stop, after kill -9.

Each partition gets one record, so that none is empty.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.fencepost_node import resident_megabytes
from benchmarks.measure import report

PER_TOPIC = 100
LIMIT_MEGABYTES, LIMIT_SECONDS = 150, 2.0


class Node:
    """`fencepost serve` on a directory, with so many descriptors."""

    def __init__(self, data: str, descriptors: int) -> None:
        self._command = [sys.executable, "-m", "fencepost", "serve", "--listen", "127.0.0.1:0", "--data", data]
        if descriptors:
            self._command = ["bash", "-c", f'ulimit -n {descriptors}; exec "$@"', "-", *self._command]

    def start(self) -> float:
        begin = time.perf_counter()
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        found = re.search(r"127\.0\.0\.1:\d+", self._process.stdout.readline())
        if found is None:
            raise SystemExit("fencepost serve did not become ready")
        self.address = found[0]
        return time.perf_counter() - begin

    def stop(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.wait()

    @property
    def megabytes(self) -> float:
        return resident_megabytes(self._process.pid)

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))


def write(bootstrap: str, topics: Sequence[str]) -> None:
    """A record to every partition."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic in topics:
        for partition in range(PER_TOPIC):
            producer.produce(topic, b"x" * 100, partition=partition)
    if producer.flush(60):
        raise SystemExit("not every record was taken")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--descriptors", type=int, default=0, help="ulimit -n of the node; 0 for that of the shell")
    options = parser.parse_args()
    root = Path(__file__).resolve().parent.parent / ".bench"
    root.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as folder:
        node = Node(folder, options.descriptors)
        node.start()
        topics = [f"many-{number}" for number in range(options.partitions // PER_TOPIC)]
        admin = AdminClient({"bootstrap.servers": node.address})
        begin = time.perf_counter()
        for future in admin.create_topics([NewTopic(topic, PER_TOPIC, 1) for topic in topics]).values():
            future.result(60)
        made = time.perf_counter() - begin
        write(node.address, topics)
        loaded, descriptors = node.megabytes, node.descriptors
        node.stop(signal.SIGKILL)
        killed = node.start()
        after_kill = node.megabytes
        begin = time.perf_counter()
        node.stop(signal.SIGTERM)
        stopped = time.perf_counter() - begin
        clean = node.start()
        after_clean = node.megabytes
        write(node.address, topics)
        node.stop(signal.SIGTERM)
    report(
        made_seconds=made,
        megabytes=loaded,
        descriptors=descriptors,
        start_after_kill_seconds=killed,
        megabytes_after_kill=after_kill,
        stop_seconds=stopped,
        start_after_stop_seconds=clean,
        megabytes_after_stop=after_clean,
        limit_megabytes=LIMIT_MEGABYTES,
        limit_seconds=LIMIT_SECONDS,
    )


if __name__ == "__main__":
    main()
