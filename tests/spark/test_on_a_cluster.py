"""Spark on a cluster of its own: executors that are killed, paused or slow while they write."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hatchling.builders.wheel import WheelBuilder
from tests.spark.places import ROWS as SOURCE_ROWS
from tests.spark.places import Place
from tests.spark.standalone import ROOT, Gate, GatedTask, Standalone, descendants, standalone, wait_until

from fencepost.client.blocking import Consumer
from fencepost.protocol.types import TopicPartition
from fencepost.spark import Sink, Step, tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 4000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate(tmp_path / "gate")
    monkeypatch.setattr(tasks, "Task", partial(GatedTask, folder=str(gate.folder)))
    return gate


class Write:
    """One micro-batch on its way, in a thread."""

    def __init__(self, spark: SparkSession, place: Place, slots: int = 2) -> None:
        self.steps: list[Step] = []
        self._place = place
        self._sink = Sink(
            place.application, place.servers, [place.target], tasks=slots, watch=lambda step, _: self.steps.append(step)
        )
        self._pool = ThreadPoolExecutor(1)
        # Wide ones, so that some of them are sent at once.
        rows = spark.range(0, ROWS, 1, 2).selectExpr("lpad(cast(id as string), 300, '0') as value")
        self._done: Future[bool] = self._pool.submit(self._sink.write, rows, 0, "query", topic=place.target)

    def audit(self) -> None:
        """It is committed, and its rows are there, once."""
        assert self._done.result(timeout=120)
        self._sink.close()
        self._pool.shutdown()
        assert self._place.shown() == list(range(ROWS))


def in_the_log(place: Place) -> int:
    """Records, committed or not."""
    at = [TopicPartition(place.target, number) for number in range(3)]
    with Consumer(bootstrap_servers=place.servers, isolation_level="read_uncommitted") as consumer:
        return sum(consumer.end_offsets(at).values())


def test_an_executor_that_is_killed_in_mid_batch(cluster: Standalone, place: Place, gate: Gate) -> None:
    with cluster.session() as spark:
        gate.hold(0, 1)
        write = Write(spark, place)
        wait_until(lambda: gate.arrived(0) and gate.arrived(1) and in_the_log(place))
        os.kill(next(iter(cluster.executors().values())), signal.SIGKILL)
        gate.open(0, 1)
        write.audit()
        assert Step.REPEATED in write.steps


@pytest.mark.soak
def test_an_executor_that_is_paused_until_it_is_lost_and_then_wakes(
    cluster: Standalone, place: Place, gate: Gate
) -> None:
    """Its whole machine is, so that nobody can end it there."""
    lost = {"spark.network.timeout": "6s", "spark.executor.heartbeatInterval": "1s"}
    with cluster.session(**lost, **{"spark.network.timeoutInterval": "1s"}) as spark:
        gate.hold(0, 1)
        write = Write(spark, place)
        wait_until(lambda: gate.arrived(0) and gate.arrived(1) and in_the_log(place))
        (first,) = gate.arrived(0)
        python = int(first.read_text())
        (worker,) = [pid for pid in cluster.workers.values() if python in descendants(pid)]
        paused = [worker, *descendants(worker)]
        for pid in paused:
            os.kill(pid, signal.SIGSTOP)
        try:
            gate.open(0, 1)
            write.audit()
            before = in_the_log(place)
            os.kill(python, signal.SIGCONT)
            wait_until(lambda: gate.failed(first.name))
            assert in_the_log(place) == before
        finally:
            for pid in paused:
                os.kill(pid, signal.SIGCONT)
        (said,) = gate.failed(first.name)
        assert "INVALID_PRODUCER_EPOCH" in said
        assert place.shown() == list(range(ROWS))


@pytest.mark.soak
def test_spark_starts_no_second_attempt_beside_one_that_is_slow(cluster: Standalone, place: Place, gate: Gate) -> None:
    """It would be refused, and so many that fail are the end of a job: here one, as four where there are more hosts."""
    soon = {"spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.5", "spark.task.maxFailures": "1"}
    with cluster.session(**soon, **{"spark.speculation": "true", "spark.speculation.multiplier": "1"}) as spark:
        gate.hold(0)
        write = Write(spark, place)
        wait_until(lambda: gate.arrived(0) and gate.arrived(1))
        until = time.monotonic() + 8
        wait_until(lambda: write.steps or time.monotonic() > until)
        gate.open(0)
        write.audit()
        assert (write.steps, gate.failed()) == ([Step.WRITTEN, Step.COMMITTED], [])


@pytest.mark.soak
def test_a_stage_that_is_tried_again_because_what_was_shuffled_is_lost(
    cluster: Standalone, place: Place, gate: Gate
) -> None:
    """Its attempts count from 0 again, beside one of the first time that is still writing."""
    with cluster.session() as spark:
        gate.hold(0, 1)
        write = Write(spark, place, slots=3)
        wait_until(lambda: gate.arrived(0) and gate.arrived(1) and in_the_log(place))
        python = int(gate.arrived(1)[0].read_text())
        (killed,) = [pid for pid in cluster.executors().values() if python in descendants(pid)]
        os.kill(killed, signal.SIGKILL)
        first = gate.arrived(0)[0].name.split("-task-")[0].replace("arrived", "failed")
        wait_until(lambda: list(gate.folder.glob(f"{first}-*-attempt-0")))
        gate.open(0, 1)
        write.audit()
        assert Step.REPEATED in write.steps
        assert "was claimed by another attempt" in " ".join(gate.failed())


@pytest.mark.soak
@pytest.mark.parametrize("given", ["py-files", "archives"])
def test_executors_that_are_given_the_package(
    cluster: Standalone, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """Their Python has everything else.  What is compiled works only where it is unpacked."""

    def where_it_is(_: int) -> tuple[str, bool]:
        import fencepost
        from fencepost.compiled.in_use import IN_USE

        return fencepost.__file__, IN_USE.module is not None

    monkeypatch.chdir(ROOT)
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    package = shutil.copy(built, tmp_path / "fencepost.zip")
    monkeypatch.setenv("PYSPARK_PYTHON", str(python_without_fencepost(tmp_path)))
    unpacked = {"spark.archives": f"{package}#unpacked", "spark.executorEnv.PYTHONPATH": "unpacked"}
    with cluster.session(**({"spark.executorEnv.PYTHONPATH": ""} if given == "py-files" else unpacked)) as spark:
        if given == "py-files":
            spark.sparkContext.addPyFile(str(package))
        place.run(spark)
        found = spark.sparkContext.range(2, numSlices=2).map(where_it_is).collect()
    assert place.shown() == list(range(SOURCE_ROWS))
    where = {"py-files": "/fencepost.zip/fencepost/", "archives": "/unpacked/fencepost/"}[given]
    with zipfile.ZipFile(package) as wheel:
        compiled = given == "archives" and any(name.endswith(".so") for name in wheel.namelist())
    assert len(found) == 2 and all((where in path, is_compiled) == (True, compiled) for path, is_compiled in found)


def python_without_fencepost(folder: Path) -> Path:
    """This one without the files that put a checkout on its path."""
    python = folder / "python"
    others = ":".join(path for path in sys.path if path.endswith("-packages"))
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{others}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python
