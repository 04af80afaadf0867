"""The errors of all failed tasks of a job: the error that Spark raises has the last attempt at one task only."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from fencepost.spark.attempt import SECOND_ATTEMPT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST: Final = 1000
"""The most tasks of a stage that are looked at."""
_WITHIN_MS: Final = 5_000
"""Milliseconds to wait for Spark to record the ends of tasks, which it does a little after that of the job."""


class TaskFailed(Exception):
    """A task that writes failed; the message is Spark's, on its first attempt."""


def first_failure(spark: SparkSession, tag: str) -> str | None:
    """Spark's text on the first failed task of the jobs with this tag, second attempts left out; None: not known.

    With `spark.task.maxFailures` above 1, as on a cluster, a task that fails is tried again, and what the job fails of
    is that its later attempts are refused.
    """
    said = [text for _, text in sorted(_failed(spark.sparkContext._jsc, tag)) if SECOND_ATTEMPT not in text]
    return said[0] if said else None


def _failed(context: Any, tag: str) -> list[tuple[int, str]]:
    """The attempts that failed: the number of each, which only counts up, and Spark's text on it."""
    found: list[tuple[int, str]] = []
    with suppress(Exception):  # this is Spark's own affair: another version may have it elsewhere
        scala = context.sc()
        scala.listenerBus().waitUntilEmpty(_WITHIN_MS)
        tracker, store = scala.statusTracker(), scala.statusStore()
        stages = {stage for job in tracker.getJobIdsForTag(tag) for stage in tracker.getJobInfo(job).get().stageIds()}
        for stage in sorted(stages):
            tasks = store.taskList(stage, store.lastStageAttempt(stage).attemptId(), _MOST)
            for number in range(tasks.size()):
                error = tasks.apply(number).errorMessage()
                if error.isDefined():
                    found.append((tasks.apply(number).taskId(), error.get()))
    return found
