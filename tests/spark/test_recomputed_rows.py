"""Rows that come out differently when Spark computes them again in the middle of a write, since it lost what it had."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.places import Place

from fencepost.spark import Sink, local_session, tasks
from fencepost.spark.tasks import Task

ROWS = 600
SLOTS = 3


@dataclass(frozen=True)
class ForgottenTask(Task):
    """A task that claims its place when it has rows; when the first one is done, what was shuffled is gone."""

    shuffled: str = ""
    """Where Spark keeps what was shuffled."""
    done: str = ""
    """A file that says that it is gone."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches)
        yield from super().__call__(_after(first, batches))
        if not Path(self.done).exists():
            Path(self.done).touch()
            for file in Path(self.shuffled).glob("blockmgr-*/*/shuffle_*"):
                file.unlink()


def _after(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from batches


def by_the_clock(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each row goes to another partition each time, and each partition has rows each time."""
    shift = time.time_ns() % SLOTS
    for batch in batches:
        ids = batch.column("id").to_pylist()
        partitions = pa.array([(number + shift) % SLOTS for number in ids], pa.int32())
        yield pa.RecordBatch.from_arrays([pa.array([str(n) for n in ids]), partitions], ["value", "partition"])


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shuffled")


@pytest.fixture(scope="module")
def spark(shuffled: Path) -> Iterator[Any]:
    session = local_session("tests", 2, {"spark.local.dir": str(shuffled), "spark.ui.showConsoleProgress": "false"})
    yield session
    session.stop()


def test_rows_that_come_out_differently_are_committed_once(
    spark: Any, place: Place, shuffled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.conf.set("spark.sql.shuffle.orderIndependentChecksum.enabled", "false")  # as anybody may
    done = tmp_path / "gone"
    task = partial(ForgottenTask, shuffled=str(shuffled), done=str(done))
    monkeypatch.setattr(tasks, "Task", task)
    sink = Sink(place.application, place.servers, [place.target], tasks=SLOTS)
    rows = spark.range(0, ROWS, 1, 2).mapInArrow(by_the_clock, "value string, partition int")
    assert sink.write(rows, 0, "query", topic=place.target)
    sink.close()
    assert done.exists(), "nothing was lost"
    assert place.shown() == list(range(ROWS))
