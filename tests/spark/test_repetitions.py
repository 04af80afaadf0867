"""A repetition is skipped, rows of another write never: every way two writes of one micro-batch can go."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from fencepost.spark.repetitions import Repetitions, Write

WHERE = ("application", "cluster")
BATCH = ("run", "query", 7)


class Rows:
    """Stands in for a DataFrame."""


class Failed(Exception):
    """The write ended without an answer, or with one that says that nothing is committed."""


class Cluster:
    """Has the rows of one write of the batch at most, as the driver sees to it."""

    def __init__(self) -> None:
        self.has: object = None
        self.asked = 0

    def write(self, rows: object, fate: str) -> bool:
        self.asked += 1
        if self.has is None and fate != "nothing is written":
            self.has = rows
        elif fate == "done":
            return False
        if fate != "done":
            raise Failed
        return True


@pytest.mark.parametrize("fates", list(product(("done", "its answer is lost", "nothing is written"), repeat=2)))
@pytest.mark.parametrize("order", list(product("ab", repeat=3)))
def test_a_write_that_is_answered_has_its_rows_in_the_cluster(order: tuple[str, ...], fates: tuple[str, str]) -> None:
    """Whatever befell those before it; a or b, in any order."""
    cluster, repetitions, rows = Cluster(), Repetitions(), {"a": Rows(), "b": Rows()}
    for name, fate in zip(order, [*fates, "done"], strict=True):
        mine, is_free = rows[name], cluster.has is None

        def work(mine: object = mine, fate: str = fate) -> bool:
            return cluster.write(mine, fate)

        try:
            wrote = repetitions.carry_out(WHERE, Write(BATCH, mine, "t"), work)
        except Failed:
            continue
        assert wrote is None or cluster.has is mine
        assert wrote or not is_free, "what failed before keeps no others from being written"
    if len(set(order)) == 1:
        assert wrote is not None, "nothing but repetitions"


def test_of_two_at_once_with_other_rows_one_is_refused() -> None:
    """As of two sinks of one application, in two threads: each is to find what the other is about to write."""
    both = Barrier(2)

    class Slow(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            with suppress(BrokenBarrierError):
                both.wait(0.3)
            return found

    cluster, repetitions, halves = Cluster(), Repetitions(), [Rows(), Rows()]
    repetitions._last = Slow()  # type: ignore[misc]

    def write(rows: Rows) -> bool | None:
        return repetitions.carry_out(WHERE, Write(BATCH, rows, "t"), lambda: cluster.write(rows, "done"))

    with ThreadPoolExecutor(2) as threads:
        assert sorted(map(str, threads.map(write, halves))) == ["None", "True"]


def test_a_write_of_the_same_rows_is_a_repetition() -> None:
    cluster, repetitions, rows = Cluster(), Repetitions(), Rows()
    for wrote in (True, False, False):
        assert repetitions.carry_out(WHERE, Write(BATCH, rows, "t"), lambda: cluster.write(rows, "done")) is wrote
    assert cluster.asked == 3


@pytest.mark.parametrize(
    ("write", "answer"),
    [
        (lambda _: Write(BATCH, Rows(), "t"), None),
        (lambda rows: Write(BATCH, rows, "another"), None),
        (lambda rows: Write(BATCH, rows, None), None),
        (lambda _: Write(("another", "query", 7), Rows(), "t"), False),
        (lambda _: Write(("run", "another", 7), Rows(), "t"), False),
        (lambda _: Write(("run", "query", 8), Rows(), "t"), False),
    ],
)
def test_other_rows_or_another_topic_are_no_repetition(write: Callable[[Rows], Write], answer: bool | None) -> None:
    """They are not even asked for.  Of another batch, or in another run, the driver says what they are."""
    cluster, repetitions, rows = Cluster(), Repetitions(), Rows()
    repetitions.carry_out(WHERE, Write(BATCH, rows, "t"), lambda: cluster.write(rows, "done"))
    other = write(rows)
    assert repetitions.carry_out(WHERE, other, lambda: cluster.write(other.rows, "done")) is answer
    assert cluster.asked == (1 if answer is None else 2)
    assert repetitions.carry_out(("another", "cluster"), Write(BATCH, Rows(), "t"), lambda: True)


def test_rows_are_not_held_and_those_that_are_gone_are_no_others() -> None:
    """What has their place in memory next would be taken for them."""
    repetitions, rows = Repetitions(), [Rows()]
    repetitions.carry_out(WHERE, Write(BATCH, rows[0], "t"), lambda: True)
    held = [each for each in gc.get_referrers(rows[0]) if each is not rows]
    assert held == []
    rows.clear()
    assert repetitions.carry_out(WHERE, Write(BATCH, Rows(), "t"), lambda: False) is None
