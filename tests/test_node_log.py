"""No line of the node's log repeats without a limit, and what was left out is counted."""

from __future__ import annotations

import logging

import pytest

from fencepost.node_log import MOST_KINDS, MOST_PER_MINUTE, MOST_REPORTED, Limit, shown

START = 1_700_000_040.0  # a minute begins


class Log:
    """A logger under a limit of its own, whose lines say what time it is."""

    def __init__(self) -> None:
        self.limit = Limit()
        self.lines: list[str] = []
        self.now = START

    def say(self, template: str, *values: object, line: int = 1, kind: object = None, name: str = "node") -> None:
        record = logging.LogRecord(name, logging.WARNING, "/module.py", line, template, values, None)
        record.created = self.now
        if kind is not None:
            record.kind = kind
        if self.limit.filter(record):
            self.lines.append(record.getMessage())


@pytest.fixture
def reported(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "fencepost.node_log")
    return caplog


def test_the_first_lines_of_a_minute_are_written(reported: pytest.LogCaptureFixture) -> None:
    log = Log()
    for number in range(1000):
        log.say("closing %s", number)
    assert len(log.lines) == MOST_PER_MINUTE
    assert log.lines[0] == "closing 0"
    assert log.lines[-1] == f"closing {MOST_PER_MINUTE - 1}; the next ones of this minute are left out"
    log.limit.report()
    log.limit.report()
    (said,) = [record.getMessage() for record in reported.records]
    assert said == f"{1000 - MOST_PER_MINUTE} lines were left out that were like: closing %s"


@pytest.mark.parametrize("later", [60, 3600, -30 * 86_400])
def test_every_minute_begins_anew_also_where_the_clock_jumps(later: float) -> None:
    log = Log()
    for _ in range(3):
        for number in range(50):
            log.now += 59 / 50
            log.say("closing %s", number)
        log.now += later - 59
    assert len(log.lines) == 3 * MOST_PER_MINUTE


def test_lines_of_other_places_and_kinds_are_not_held_back() -> None:
    log = Log()
    for _ in range(100):
        log.say("one")
        log.say("two", line=2)
        log.say("one", kind="other")
        for what in ("socket.accept() out of system resource\nsocket: 1", "Task exception was never retrieved\n<2>"):
            log.say(what, name="asyncio")
    assert len(log.lines) == 5 * MOST_PER_MINUTE


def test_kinds_without_end_take_neither_memory_nor_disk(reported: pytest.LogCaptureFixture) -> None:
    log = Log()
    for number in range(5 * MOST_KINDS):
        for _ in range(MOST_PER_MINUTE + 1):
            log.say("x", kind=number)
    assert len(log.lines) == (MOST_KINDS + 1) * MOST_PER_MINUTE
    assert len(log.limit._counts) == MOST_KINDS + 1
    log.limit.report()
    assert len(reported.records) == MOST_REPORTED + 1
    counts = [record.args[0] for record in reported.records if isinstance(record.args, tuple)]
    assert sum(counts) == 5 * MOST_KINDS * (MOST_PER_MINUTE + 1) - len(log.lines)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, "-"),
        ("", "''"),
        ("orders", "orders"),
        ("a b", "'a b'"),
        ("a\nb", "'a\\nb'"),
        ("\x1b[31m", "'\\x1b[31m'"),
        ("\u2028", "'\\u2028'"),
        ("x" * 101, "x" * 100 + "..."),
    ],
)
def test_a_name_that_somebody_else_has_chosen_is_short_and_makes_no_second_line(
    name: str | None, expected: str
) -> None:
    assert shown(name) == expected
