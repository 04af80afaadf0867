"""A look at all logs goes a step at a time, and what is gone or done meanwhile is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest
from tests.log.cleaner_doubles import SETTINGS, SlowTimers, until_idle
from tests.log.log_doubles import START, Node, append, delete_topic, run

from fencepost.log.cleaner import surveying
from fencepost.log.cleaner.first_dirty_offsets import FirstDirtyOffsets
from fencepost.log.cleaner.log_cleaner import LogCleaner
from fencepost.log.cleaner.settings import CleanerSettings
from fencepost.log.cleaner.surveying import Surveyor
from fencepost.log.cleaner.work import Chosen, CleanerMetrics
from fencepost.log.partition import Partition
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Milliseconds

JOURNALS = [(f"journal-{number}", 0) for number in range(20)]


def journals_that_should_roll(**settings: Any) -> Node:
    """A node with some journals, each of one segment that is worth a pass once it is closed."""
    node = Node(None, JOURNALS, **SETTINGS)
    for name, _ in JOURNALS:
        partition = node.of(name)
        partition.settings = partition.settings.with_(journal_roll_bytes=1_000, segment_bytes=1_000_000, **settings)
        for _ in range(4):
            append(partition, encode_batch([(START, b"k", bytes(700), ())]))
    return node


def surveyor_of(node: Node) -> Surveyor:
    first_dirty = FirstDirtyOffsets(node.storage.disk, node.storage.path)
    return Surveyor(
        node.storage, CleanerSettings(unsettled_bytes=1), first_dirty, CleanerMetrics(), lambda: Milliseconds(0)
    )


def chosen_of(survey: Generator[None, None, list[Chosen]]) -> list[Chosen]:
    while True:
        try:
            next(survey)
        except StopIteration as done:
            chosen: list[Chosen] = done.value
            return chosen


def rolled(node: Node) -> int:
    return sum(len(each.segments) > 1 for each in node.storage.partitions())


def test_very_many_journals_begin_new_segments_in_turns_between_which_others_work() -> None:
    async def main() -> None:
        node = journals_that_should_roll()
        await node.settled()
        timers = SlowTimers()
        cleaner = LogCleaner(node.storage, CleanerSettings(), node.clock, timers)
        cleaner.start()
        counts = [0]
        while counts[-1] < len(JOURNALS):
            timers.ring(0)
            counts.append(rolled(node))
            assert counts[-1] - counts[-2] <= 10, "a millisecond each"
            assert len(timers.rung) == 1, "one thing at a time"
        assert len(counts) > 2
        assert cleaner.metrics.max_dirty_percent == 0, "not told until all were looked at"
        while not cleaner.metrics.max_dirty_percent:
            timers.ring(0)
        cleaner.close()

    run(main())


def test_logs_without_anything_to_clean_are_passed_over_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at one is short, and of such logs there may be ten thousand."""

    async def main() -> None:
        node = Node(None, [(f"t{number}", 0) for number in range(20)], **SETTINGS)
        monkeypatch.setattr(surveying, "_PASSED_OVER", 5)
        assert len(list(surveyor_of(node).survey(START, set()))) == 4
        node.storage.abandon()

    run(main())


async def journals_that_are_worth_a_pass() -> Node:
    node = journals_that_should_roll()
    await node.settled()
    chosen_of(surveyor_of(node).survey(node.clock.now(), set()))  # it has new segments made
    await node.settled()
    node.restart()
    for name, _ in JOURNALS:
        node.of(name).settings = node.of(name).settings.with_(journal_roll_bytes=1_000)
    return node


def test_passes_go_on_while_logs_are_looked_at() -> None:
    """Of very many logs, beside much other work, that may take longer than it is until the next look."""
    looked = 0

    def endless(*_: object) -> Generator[None, None, list[Chosen]]:
        nonlocal looked
        while True:
            looked += 1
            yield

    async def main() -> None:
        node, timers = await journals_that_are_worth_a_pass(), SlowTimers()
        cleaner = LogCleaner(node.storage, CleanerSettings(), node.clock, timers)
        cleaner.start()
        while not cleaner._chosen:
            timers.ring(0)
        cleaner._surveyor.survey = endless  # type: ignore[assignment, method-assign]
        for turn in range(400):
            timers.ring(2)
            assert looked >= turn, "nor does a survey wait for them"
            await asyncio.sleep(0.1)
        assert cleaner.metrics.passes == len(JOURNALS)
        cleaner.close()

    run(main())


def test_what_waits_for_its_pass_is_not_chosen_again() -> None:
    async def main() -> None:
        node, timers = await journals_that_are_worth_a_pass(), SlowTimers()
        cleaner = LogCleaner(node.storage, CleanerSettings(), node.clock, timers)
        survey, surveys = cleaner._surveyor.survey, 0

        def counted(*given: Any) -> Generator[None, None, list[Chosen]]:
            nonlocal surveys
            surveys += 1
            return survey(*given)

        cleaner._surveyor.survey = counted  # type: ignore[assignment, method-assign]
        cleaner.start()
        for _ in range(400):
            timers.ring(2)  # by then it is looked again
            await asyncio.sleep(0.1)
        assert surveys > len(JOURNALS)
        assert cleaner.metrics.passes == len(JOURNALS)
        cleaner.close()

    run(main())


def test_a_log_that_goes_while_others_are_looked_at_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = journals_that_should_roll()
        await node.settled()
        survey = surveyor_of(node).survey(node.clock.now(), set())
        next(survey)
        going = [node.of(name) for name, _ in JOURNALS if len(node.of(name).segments) == 1][:3]
        for each in going:
            delete_topic(node.storage, each.topic)
        chosen_of(survey)
        assert rolled(node) == len(JOURNALS) - len(going)
        assert all(len(each.segments) < 2 for each in going)
        assert not caplog.records, "nothing is tried in a directory that is not there"

    run(main())


@pytest.mark.parametrize("taken", [0, 3])
def test_what_has_a_pass_is_not_chosen_again(taken: int) -> None:
    async def main() -> None:
        node = journals_that_should_roll()
        await node.settled()
        busy: set[Partition] = {node.of(name) for name, _ in JOURNALS[:taken]}
        chosen_of(surveyor_of(node).survey(node.clock.now(), busy))  # it has new segments made
        await node.settled()
        node.restart()
        found = chosen_of(surveyor_of(node).survey(node.clock.now(), {node.of(each.topic) for each in busy}))
        assert {each.partition.topic for each in found} == {name for name, _ in JOURNALS[taken:]}

    run(main())


def test_a_look_that_fails_is_not_the_last_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    choose, failures = Surveyor._choose, [RuntimeError("a defect"), RuntimeError("a defect")]

    def failing(surveyor: Surveyor, *given: Any) -> Any:
        yield
        if failures:
            raise failures.pop()
        return (yield from choose(surveyor, *given))

    async def main() -> None:
        node = journals_that_should_roll()
        await node.settled()
        monkeypatch.setattr(Surveyor, "_choose", failing)
        cleaner = await until_idle(node)
        assert not failures
        assert cleaner.metrics.passes == len(JOURNALS)
        assert sum("tried again" in each.getMessage() for each in caplog.records) == 2

    run(main())
