"""What is told of a micro-batch that was written."""

from __future__ import annotations

import asyncio

import pytest
from tests.spark.test_driver import Bench, Tasks, batch, in_world

from fencepost.protocol.types import Epoch, Milliseconds, ProducerId
from fencepost.spark.attempt import Plan
from fencepost.spark.claims import Written
from fencepost.spark.report import Course, Report


class Hand:
    """A clock that somebody sets."""

    def __init__(self) -> None:
        self.shows = 1000

    def now(self) -> Milliseconds:
        return Milliseconds(self.shows)


def test_times_are_those_of_all_attempts_and_rows_those_of_the_last() -> None:
    clock = Hand()
    course = Course(clock)
    for number, parts in enumerate([("begin", "what failed", "abort"), ("begin", "tasks", "commit")]):
        clock.shows += 100000
        course.attempt()
        for place, part in enumerate(parts):
            clock.shows += 10**place * (number + 1)
            if part == "tasks":
                reports = [
                    Written(0, ProducerId(1), Epoch(0), 5, "t", 0, 3, 0, 2, 70),
                    Written(0, ProducerId(1), Epoch(0), 5, "t", 1, 2, 0, 1, 30),
                ]
                course.wrote(reports)
            else:
                course.done(part)
    found = course.report(7)
    assert found == Report(7, 5, 100, 2, 1 + 2, 20, 200, 100)
    assert str(found) == (
        "batch 7: 5 rows, 100 bytes, 2 attempts; begun in 3 ms, tasks 20 ms, committed in 200 ms, aborts 100 ms"
    )


def test_rows_of_an_attempt_that_could_not_be_committed_count_nowhere() -> None:
    course = Course(Hand())
    for records in (3, 2):
        course.attempt()
        course.wrote([Written(0, ProducerId(1), Epoch(0), 5, "t", 0, records, 0, records - 1, 10 * records)])
    assert course.report(7)[1:4] == (2, 20, 2)


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    clock = Hand()
    course = Course(clock)
    course.attempt()
    clock.shows -= 500
    course.done("begin")
    assert course.report(0).begin_ms == 0


def test_the_age_is_that_of_the_attempt_and_before_the_first_one_of_the_write() -> None:
    clock = Hand()
    course = Course(clock)
    clock.shows += 30
    assert course.age_ms() == 30
    course.attempt()
    clock.shows += 7
    course.done("begin")
    clock.shows += 5
    assert course.age_ms() == 12


@pytest.mark.parametrize("failing", [0, 2])
def test_a_driver_tells_what_a_batch_took(failing: int) -> None:
    async def test(bench: Bench) -> None:
        tasks, driver = Tasks(bench, b"v" * 50), bench.driver()

        async def fail(_: Plan) -> None:
            await asyncio.sleep(3)
            if len(tasks.plans) <= failing:
                raise ValueError("a task failed")

        tasks.between = fail
        assert driver.report is None
        assert await driver.write(batch(0, 1), 2, False, tasks)
        report = driver.report
        assert report is not None
        assert (report.batch_id, report.rows, report.attempts) == (0, 2, failing + 1)
        assert 2 * 50 < report.bytes < 2 * 200
        assert 3000 <= report.tasks_ms < 4000
        assert (report.abort_ms > 0) is (failing > 0)
        assert 0 < report.commit_ms < 3000
        assert not await driver.write(batch(0, 1), 2, False, tasks)
        assert driver.report is report

    in_world(test)
