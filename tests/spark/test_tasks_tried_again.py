"""Where Spark tries a task again that failed, the driver is told what its first attempt failed of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.places import Place

from fencepost.spark import Sink, Step, WriteFailed, local_session, tasks
from fencepost.spark.tasks import Task


@dataclass(frozen=True)
class UnluckyTask(Task):
    """Fails at the first attempt of all, and says so."""

    done: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not Path(self.done).exists():
            Path(self.done).touch()
            raise OSError("the disk of this machine is full")
        yield from super().__call__(batches)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Four attempts at each task."""
    session = local_session("tests", 2, {"spark.master": "local[2, 4]", "spark.ui.showConsoleProgress": "false"})
    yield session
    session.stop()


def test_a_row_that_is_too_large_ends_the_batch_at_the_first_try(spark: Any, place: Place) -> None:
    steps: list[Step] = []
    sink = Sink(place.application, place.servers, [place.target], watch=lambda step, _: steps.append(step))
    large = spark.range(1).selectExpr("repeat('x', 2000000) as value")
    with pytest.raises(WriteFailed, match=r"tried 1 times .* RowError: a row is larger .* Make the row smaller"):
        sink.write(large, 0, "query", topic=place.target)
    sink.close()
    assert (steps, place.shown()) == ([], [])


def test_a_failure_is_told_and_not_that_later_attempts_were_refused(
    spark: Any, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "Task", partial(UnluckyTask, done=str(tmp_path / "done")))
    steps: list[Step] = []
    sink = Sink(place.application, place.servers, [place.target], watch=lambda step, _: steps.append(step), tasks=1)
    assert sink.write(spark.range(9).selectExpr("cast(id as string) as value"), 0, "query", topic=place.target)
    sink.close()
    assert steps == [Step.REPEATED, Step.WRITTEN, Step.COMMITTED]
    assert place.shown() == list(range(9))
    (failed,) = [record.getMessage() for record in caplog.records if "batch 0 failed" in record.getMessage()]
    assert failed.endswith("TaskFailed: OSError: the disk of this machine is full")
