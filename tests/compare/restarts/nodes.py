"""Both nodes as processes with a directory and a port of their own, which are ended and started again."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.apache_kafka import ApacheKafka, restartable_apache_kafka
from tests.compare.coordinator.differential import Node
from tests.compare.coordinator.twins import Twins

from fencepost.protocol.messages import ListOffsetsRequest, MetadataRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic

HOW = {"killed": signal.SIGKILL, "stopped": signal.SIGTERM}
_PATIENCE = 90


class Fencepost:
    """A `fencepost serve` process."""

    def __init__(self, data: Path, settings: Mapping[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.bootstrap = f"127.0.0.1:{probe.getsockname()[1]}"
        self._command = [sys.executable, "-m", "fencepost", "serve", "--listen", self.bootstrap, "--data", str(data)]
        self._command += ["--flush", "os", *(word for pair in settings.items() for word in ("--set", "=".join(pair)))]
        self._log = data.with_suffix(".log")
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Run it; it listens when this returns."""
        with open(self._log, "a") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert self.bootstrap in line, f"Fencepost did not start: {line!r}"

    def end(self, how: signal.Signals) -> None:
        """SIGTERM stops it in order, SIGKILL does not."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


class Both:
    """The two processes."""

    def __init__(self, kafka: ApacheKafka, ours: Fencepost) -> None:
        self.kafka, self.ours = kafka, ours

    @property
    def addresses(self) -> tuple[str, str]:
        return self.kafka.bootstrap, self.ours.bootstrap

    def restart(self, how: str) -> None:
        """End both, start both, and wait until every partition has its leader again."""
        for node in (self.kafka, self.ours):
            node.end(HOW[how])
        for node in (self.kafka, self.ours):
            node.start()
        for address in self.addresses:
            _wait_until(lambda address=address: _is_ready(Node(address)))  # type: ignore[misc]


@contextmanager
def restartable(folder: Path, settings: Mapping[str, str]) -> Iterator[Both]:
    """Both nodes, running, with the same settings."""
    ours = Fencepost(folder, settings)
    with restartable_apache_kafka(settings) as kafka:
        try:
            ours.start()
            yield Both(kafka, ours)
        finally:
            ours.end(signal.SIGKILL)


def reconnect(twins: Twins) -> None:
    """Connect anew to both, after a restart."""
    twins.kafka, twins.ours = (Node(address) for address in twins.addresses)


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end, "a node was not ready in time"
        time.sleep(0.2)


def _is_ready(node: Node) -> bool:
    """Whether the leader of every partition answers."""
    try:
        known = node.ask(MetadataRequest(topics=None), 12)
        if known is None or not known.topics:
            return False
        topics = [
            ListOffsetsTopic(
                name=topic.name,
                partitions=[
                    ListOffsetsPartition(partition_index=one.partition_index, timestamp=-1) for one in topic.partitions
                ],
            )
            for topic in known.topics
        ]
        answer = node.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 6)
    except OSError:
        return False
    return answer is not None and not any(one.error_code for topic in answer.topics for one in topic.partitions)
