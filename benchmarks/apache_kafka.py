"""Start a real Apache Kafka on loopback as the peer to compare with.

The jars come from Maven Central into a cache folder; Java 17+ and Maven are needed.  Where they cannot be had, `jars`
raises `NoPeer` with one sentence, and whoever asked skips.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

VERSION = os.environ.get("KAFKA_VERSION", "4.3.1")
#: The newest of before the feature transaction.version.
BEFORE_TRANSACTION_VERSION = "3.9.1"
_LISTENS_AFTER = 300.0
"""Seconds in which a node that runs has to listen, on a machine that others use too."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fencepost"

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fencepost</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>VERSION</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>VERSION</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.4</version></dependency>
  </dependencies>
</project>
"""


class NoPeer(Exception):
    """Apache Kafka cannot be started here; the message says why."""


def fetch_jars(folder: Path, pom: str, what: str, *options: str) -> None:
    """Have Maven copy what a project depends on into a folder, once.  Raises NoPeer."""
    if (folder / "complete").exists():
        return
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise NoPeer(f"{what} cannot be started: {tool} is not on the PATH (Java 17+ and Maven are needed)")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(pom)
    command = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
    if subprocess.run([*command, f"-DoutputDirectory={folder}", *options], capture_output=True).returncode != 0:
        raise NoPeer(f"{what} cannot be started: Maven could not fetch its jars")
    (folder / "complete").touch()


def jars(version: str = VERSION) -> str:
    """The class path of Apache Kafka, fetched on first use.  Raises NoPeer."""
    folder = CACHE / f"apache-kafka-{version}"
    fetch_jars(folder, POM.replace("VERSION", version), f"Apache Kafka {version}")
    if shutil.which("java") is None:
        raise NoPeer("Apache Kafka cannot be started: java is not on the PATH")
    return f"{folder}/*"


def java(*arguments: str, heap: str = "256m", version: str = VERSION) -> list[str]:
    """The command line of a Java program with Apache Kafka's jars."""
    return ["java", f"-Xmx{heap}", "-Dorg.apache.logging.log4j.level=warn", "-cp", jars(version), *arguments]


class Secured(NamedTuple):
    """Listeners beside the plain one, and who may use them."""

    listeners: Mapping[str, str]
    """Name of a listener -> its security protocol."""
    settings: Mapping[str, str]
    passwords: Mapping[str, str]
    """User -> password, for SCRAM."""


@contextmanager
def apache_kafka(
    settings: Mapping[str, str] | None = None, features: Mapping[str, int] | None = None
) -> Iterator[tuple[str, int]]:
    """One KRaft node on free ports: (bootstrap address, process id).  Its data goes when the block ends."""
    with restartable_apache_kafka(settings, features) as node:
        yield node.bootstrap, node.process_id


@contextmanager
def restartable_apache_kafka(
    settings: Mapping[str, str] | None = None,
    features: Mapping[str, int] | None = None,
    secured: Secured | None = None,
    version: str = VERSION,
) -> Iterator[ApacheKafka]:
    """One KRaft node on free ports, running, that may be killed and started again.  Its data goes with the block."""
    with tempfile.TemporaryDirectory(prefix="apache-kafka-") as folder:
        given = dict(settings or {}), dict(features or {}), secured or Secured({}, {}, {})
        node = ApacheKafka(Path(folder), *given, version)
        try:
            node.start()
            yield node
        finally:
            node.end(signal.SIGTERM)


class ApacheKafka:
    """A node with a folder and ports of its own, from one start to the next."""

    def __init__(
        self, folder: Path, settings: dict[str, str], features: dict[str, int], secured: Secured, version: str
    ) -> None:
        clients, controller = _free_port(), _free_port()
        self.bootstrap = f"127.0.0.1:{clients}"
        self.addresses = {name: f"127.0.0.1:{_free_port()}" for name in secured.listeners}
        """Of the secured listeners."""
        more = "".join(f",{name}://{address}" for name, address in self.addresses.items())
        protocols = "".join(f",{name}:{protocol}" for name, protocol in secured.listeners.items())
        self._folder, self._port, self._version = folder, clients, version
        self.data = folder / "data"
        """Its directory of partitions."""
        self._process: subprocess.Popen[bytes] | None = None
        self._has_listened = False
        base = {
            "process.roles": "broker,controller",
            "node.id": "0",
            "controller.quorum.voters": f"0@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controller}{more}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        settings = base | dict(secured.settings) | settings
        self._properties = folder / "server.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        cluster_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        words = [word for name, level in features.items() for word in ("--feature", f"{name}={level}")]
        for hash_name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            for user, password in secured.passwords.items():
                words += ["--add-scram", f"{hash_name}=[name={user},password={password}]"]
        storage = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties)]
        subprocess.run(java(*storage, *words, version=version), check=True, capture_output=True)

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the node runs"
        return self._process.pid

    def start(self) -> None:
        """Run it; it listens when this returns.

        Raises NoPeer if it ends and has never listened, RuntimeError if it has, TimeoutError if it is too slow.
        """
        log = self._folder / "log.txt"
        with open(log, "ab") as out:
            command = java("kafka.Kafka", str(self._properties), heap="1g", version=self._version)
            self._process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + _LISTENS_AFTER
        while True:
            if self._process.poll() is not None:
                why = f"Apache Kafka did not start: {log.read_text()[-500:]}"
                raise RuntimeError(why) if self._has_listened else NoPeer(why)
            if time.monotonic() > deadline:
                raise TimeoutError(f"Apache Kafka does not listen after {_LISTENS_AFTER:g} s: {log.read_text()[-500:]}")
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                self._has_listened = True
                return
            except OSError:
                time.sleep(0.05)

    def end(self, how: signal.Signals) -> None:
        """SIGTERM stops it in order, SIGKILL does not."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
