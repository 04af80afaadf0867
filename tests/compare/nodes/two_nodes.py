"""An Apache Kafka and a Fencepost that are set up alike: started, ended and started again here and nowhere else.

Both are processes of their own with a port and a data directory that they keep from one start to the next.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.apache_kafka import ApacheKafka, NoPeer, restartable_apache_kafka
from tests.compare.nodes import requests
from tests.compare.nodes.connection import Connection, wait_until

from fencepost.protocol.messages import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    UpdateFeaturesRequest,
)
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.messages.update_features import FeatureUpdateKey

SIDES = ("Apache Kafka", "Fencepost")
HOW = {"killed": signal.SIGKILL, "stopped": signal.SIGTERM}
_PATIENCE = 90.0
_GROUP, _TRANSACTIONAL_ID = 0, 1
_UPGRADE, _UNSAFE_DOWNGRADE = 1, 3


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
        assert self.bootstrap in line, f"Fencepost did not start: {line!r} {self._log.read_text()[-2000:]}"

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the node runs"
        return self._process.pid

    def end(self, how: signal.Signals) -> None:
        """SIGTERM stops it in order, SIGKILL does not."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


class TwoNodes:
    """The two processes.  `folders`: their data directories, Apache Kafka's first."""

    def __init__(self, kafka: ApacheKafka, ours: Fencepost, folders: tuple[Path, Path]) -> None:
        self.kafka, self.ours, self.folders = kafka, ours, folders

    @property
    def addresses(self) -> tuple[str, str]:
        """Apache Kafka's first."""
        return self.kafka.bootstrap, self.ours.bootstrap

    def on(self, side: str) -> ApacheKafka | Fencepost:
        """The node of one of `SIDES`."""
        return (self.kafka, self.ours)[SIDES.index(side)]

    def restart(self, how: str) -> None:
        """End both, start both, and wait until every partition has its leader again."""
        for node in (self.kafka, self.ours):
            node.end(HOW[how])
        for node in (self.kafka, self.ours):
            node.start()
        for address in self.addresses:
            connection = Connection(address)
            wait_until(lambda c=connection: _is_led(c), _PATIENCE, "a leader of each partition")  # type: ignore[misc]
            connection.hang_up()

    def set_level(self, level: int) -> None:
        """Finalize transaction.version on both; both say so when this returns."""
        for address in self.addresses:
            connection = Connection(address)
            for kind in (_UPGRADE, _UNSAFE_DOWNGRADE):
                key = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=kind)
                connection.ask(UpdateFeaturesRequest(feature_updates=[key]), 1)
            wait_until(lambda c=connection: _level(c) == level, _PATIENCE, f"transaction.version {level}")  # type: ignore[misc]
            connection.hang_up()

    def make_topics(self, topics: Mapping[str, int]) -> None:
        """Topics with so many partitions, where they are not there yet."""
        for address in self.addresses:
            connection = Connection(address)
            connection.ask(requests.create_topics(topics), 5)
            connection.hang_up()


@contextmanager
def two_nodes(
    settings: Mapping[str, str] | None = None, level: int = 2, only_kafka: Mapping[str, str] | None = None
) -> Iterator[TwoNodes]:
    """Both, running, with coordinators at their service; they and their data go when the block ends.

    `level`: of transaction.version; `only_kafka`: settings that Fencepost does not have.  Skips the test if Apache
    Kafka cannot be started here.
    """
    alike = dict(settings or {})
    with tempfile.TemporaryDirectory(prefix="two-nodes-") as folder, skipped_without_kafka():
        folders = Path(folder) / "kafka", Path(folder) / "fencepost"
        ours = Fencepost(folders[1], alike)
        theirs = {**alike, **(only_kafka or {}), "log.dirs": str(folders[0])}
        with restartable_apache_kafka(theirs, {"transaction.version": level}) as kafka:
            try:
                ours.start()
                nodes = TwoNodes(kafka, ours, folders)
                for address in nodes.addresses:
                    connection = Connection(address)
                    for kind in (_GROUP, _TRANSACTIONAL_ID):
                        wait_until(lambda c=connection, k=kind: _coordinates(c, k), _PATIENCE, "a coordinator")  # type: ignore[misc]
                    connection.hang_up()
                nodes.set_level(level)
                yield nodes
            finally:
                ours.end(signal.SIGKILL)


@contextmanager
def skipped_without_kafka() -> Iterator[None]:
    """Skip the test, with the reason, if Apache Kafka cannot be had here."""
    try:
        yield
    except NoPeer as reason:
        pytest.skip(str(reason))


def _coordinates(node: Connection, kind: int) -> bool:
    answer = node.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"]), 4)
    return not isinstance(answer, str) and answer.coordinators[0].error_code == 0


def _level(node: Connection) -> int:
    answer = node.ask(ApiVersionsRequest(client_software_name="comparison", client_software_version="1"), 4)
    found = [one.max_version_level for one in answer.finalized_features if one.name == "transaction.version"]
    return found[0] if found else 0


def _is_led(node: Connection) -> bool:
    """Whether the leader of every partition answers."""
    known = node.ask(MetadataRequest(topics=None), 12)
    if isinstance(known, str) or not known.topics:
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
    if isinstance(answer, str):
        return False
    return not any(one.error_code for topic in answer.topics for one in topic.partitions)
