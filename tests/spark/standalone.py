"""A cluster of Spark's own on this machine, a master and two workers of one core, and ways to harm it.

Each worker has an address of its own, since Spark starts no second attempt of a slow task where the first one runs.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyspark
from tests.ports import free_port

from fencepost.spark.java import use_java
from fencepost.spark.tasks import Task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parents[2]
HOSTS: Final = ("127.0.0.2", "127.0.0.3")
PATIENCE: Final = 120.0

_DAEMON: Final = "org.apache.spark.deploy"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_SESSION: Final = {
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    # Else one that was killed twice is not started again.
    "spark.deploy.maxExecutorRetries": "-1",
}


class Process(NamedTuple):
    """A process of this machine."""

    pid: int
    parent: int
    command: str


@dataclass(frozen=True)
class Standalone:
    """A running cluster.  `folder`: for what it writes."""

    address: str
    workers: Mapping[str, int]
    """Host -> process id."""
    folder: Path

    @contextmanager
    def session(self, **config: str) -> Iterator[SparkSession]:
        """Spark with two executors of this cluster, whose Python finds these tests."""
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(self.address).appName("tests")
        for name, value in {**_SESSION, "spark.executorEnv.PYTHONPATH": str(ROOT), **config}.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        try:
            known: Any = session.sparkContext._jsc.sc()
            wait_until(lambda: known.getExecutorMemoryStatus().size() == len(self.workers) + 1)  # and the driver
            yield session
        finally:
            session.stop()
            wait_until(lambda: not self.executors())

    def executors(self) -> dict[str, int]:
        """Host -> process id of the executor that runs there."""
        running = processes()
        hosts = {pid: host for host, pid in self.workers.items()}
        return {hosts[each.parent]: each.pid for each in running if each.parent in hosts and _EXECUTOR in each.command}


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """A master and two workers until the end of the block."""
    use_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *options: str) -> int:
        spark = Path(pyspark.__file__).parent
        command = [str(spark / "bin" / "spark-class"), f"{_DAEMON}.{name}", *options, "--webui-port", "0"]
        log = folder / f"{name.split('.')[-1]}-{len(started)}.log"
        environment = {**os.environ, "SPARK_HOME": str(spark), "SPARK_DAEMON_MEMORY": "128m", "SPARK_NO_DAEMONIZE": "1"}
        environment.pop("SPARK_LOCAL_IP", None)
        with log.open("wb") as out:
            started.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True))
        wait_until(lambda: _is_up(started[-1], log))
        return started[-1].pid

    try:
        start("master.Master", "--host", "127.0.0.1", "--port", str(port))
        workers = {}
        for host in HOSTS:
            work = folder / host
            options = ("--host", host, "--cores", "1", "--memory", "700m", "--work-dir", str(work))
            workers[host] = start("worker.Worker", *options, address)
        yield Standalone(address, workers, folder)
    finally:
        for each in started:
            for process in (*descendants(each.pid), each.pid):
                _kill(process)
            each.wait()


def _is_up(process: subprocess.Popen[bytes], log: Path) -> bool:
    text = log.read_text()
    assert process.poll() is None, text[-3000:]
    return re.search("New state: ALIVE|Successfully registered with master", text) is not None


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def processes() -> list[Process]:
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,command="], capture_output=True, text=True, check=True
    )
    lines = (line.split(None, 2) for line in listed.stdout.splitlines())
    return [Process(int(pid), int(parent), "".join(command)) for pid, parent, *command in lines]


def descendants(pid: int) -> list[int]:
    """Of a process, the oldest first."""
    children: dict[int, list[int]] = {}
    for each in processes():
        children.setdefault(each.parent, []).append(each.pid)
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found[1:]


def wait_until(happens: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < until, "this took too long"
        time.sleep(0.05)


# Tasks that wait in the middle


class Gate:
    """Tasks that write come here when they have written something, and wait for as long as they are held.

    They run in other processes: what they tell, and are told, is files in a folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def hold(self, *slots: int) -> None:
        """Attempts at these, as long as nobody opens."""
        for slot in slots:
            (self.folder / f"hold-{slot}").touch()

    def open(self, *slots: int) -> None:
        for slot in slots:
            (self.folder / f"hold-{slot}").unlink()

    def arrived(self, slot: int) -> list[Path]:
        """A file for each attempt that came; in it the process id of its Python."""
        return [path for path in self.folder.glob(f"arrived-{slot}-*") if path.read_text()]

    def failed(self, name: str = "") -> list[str]:
        """What attempts failed of; the attempt that arrived as `name`, or all."""
        files = self.folder.glob(f"failed-{name.removeprefix('arrived-')}*")
        return [text for path in files if (text := path.read_text())]


@dataclass(frozen=True)
class GatedTask(Task):
    """A task that goes through a gate after its first record batch."""

    folder: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "this runs in a Spark task"
        gate, slot = Path(self.folder), context.partitionId()
        name = f"{slot}-stage-{context.stageId()}-task-{context.taskAttemptId()}-attempt-{context.attemptNumber()}"
        try:
            yield from super().__call__(_through(gate, slot, name, batches))
        except Exception as error:
            (gate / f"failed-{name}").write_text(f"{type(error).__name__}: {error}")
            raise


def _through(gate: Path, slot: int, name: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    came = False
    for batch in batches:
        for row in range(batch.num_rows):
            yield batch.slice(row, 1)
            if not came:
                came = True
                (gate / f"arrived-{name}").write_text(str(os.getpid()))
                while (gate / f"hold-{slot}").exists():
                    time.sleep(0.01)
                    yield batch.slice(0, 0)  # whoever takes it sends what there is
