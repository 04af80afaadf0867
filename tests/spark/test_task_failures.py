"""What a job fails of where Spark tries its tasks again is what the first attempt failed of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.spark.attempt import SECOND_ATTEMPT
from fencepost.spark.task_failures import first_failure

REFUSED = f"fencepost.spark.attempt.PoisonedError: {SECOND_ATTEMPT}"


class Option:
    """Scala's."""

    def __init__(self, value: str | None) -> None:
        self.get = lambda: value
        self.isDefined = lambda: value is not None


def spark(stages: dict[int, list[tuple[int, str | None]]], late: Any = lambda _: None) -> Any:
    """A session in which one job has these stages; task number and what it failed of."""

    def sequence(tasks: list[tuple[int, str | None]]) -> Any:
        made = [
            SimpleNamespace(taskId=lambda number=number: number, errorMessage=lambda error=error: Option(error))
            for number, error in tasks
        ]
        return SimpleNamespace(size=lambda: len(made), apply=made.__getitem__)

    info = SimpleNamespace(get=lambda: SimpleNamespace(stageIds=lambda: list(stages)))
    scala = SimpleNamespace(
        listenerBus=lambda: SimpleNamespace(waitUntilEmpty=late),
        statusTracker=lambda: SimpleNamespace(
            getJobIdsForTag=lambda tag: [7] if tag == "tag" else [], getJobInfo=lambda _: info
        ),
        statusStore=lambda: SimpleNamespace(
            lastStageAttempt=lambda _: SimpleNamespace(attemptId=lambda: 0),
            taskList=lambda stage, *_: sequence(stages[stage]),
        ),
    )
    return cast(Any, SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala))))


@pytest.mark.parametrize(
    ("stages", "found"),
    [
        ({1: [(3, REFUSED), (2, "too large")]}, "too large"),
        ({1: [(0, None), (1, None)], 2: [(5, REFUSED), (4, "second"), (3, "first"), (6, REFUSED)]}, "first"),
        ({1: [(0, None), (1, REFUSED)]}, None),
        ({}, None),
    ],
)
def test_the_first_attempt_that_failed_tells(
    stages: dict[int, list[tuple[int, str | None]]], found: str | None
) -> None:
    assert first_failure(spark(stages), "tag") == found
    assert first_failure(spark(stages), "another") is None


def test_where_spark_does_not_tell_nothing_is_known() -> None:
    def late(_: int) -> None:
        raise TimeoutError

    assert first_failure(spark({1: [(0, "lost")]}, late), "tag") is None
