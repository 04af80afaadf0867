"""Tasks that write one topic-partition by turns: whoever writes is counted, and nobody who is late writes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.protocol.types import Epoch, ProducerId, TopicPartition
from fencepost.spark.attempt import SECOND_ATTEMPT, PoisonedError
from fencepost.spark.claims import Written
from fencepost.spark.ledger import Ledger, Turns, close_places, new_ledger, shared_ledger

PLACES = [TopicPartition("out", number) for number in range(3)]


@pytest.fixture
def path() -> Iterator[str]:
    with new_ledger(len(PLACES)) as path:
        yield path


def wrote(path: str, place: int, records: int) -> None:
    with Ledger(path) as ledger, ledger.turn(place) as mine:
        assert mine is not None
        mine.begin()
        mine.settle(records)


def reported(*records: int) -> list[Written]:
    """By one task, so many for each place; none of those with 0."""
    rows = sum(records)
    found = [
        Written(0, ProducerId(1), Epoch(0), rows, *at, count, 0, count - 1)
        for at, count in zip(PLACES, records, strict=True)
        if count
    ]
    return found or [Written(0, ProducerId(1), Epoch(0), 0)]


def test_who_has_a_turn_goes_on_where_others_stopped(path: str) -> None:
    wrote(path, 1, 3)
    wrote(path, 1, 4)
    with Ledger(path) as ledger:
        for place, records in enumerate((0, 7, 0)):
            with ledger.turn(place) as mine:
                assert mine is not None and mine.records == records


def test_a_task_after_the_shuffle_has_one_turn_at_a_place_from_its_first_batch_on(path: str) -> None:
    wrote(path, 1, 3)
    with Turns(path) as turns:
        assert [turns.count(1, 4), turns.count(2, 5), turns.count(1, 6)] == [3, 0, None]
        turns.settle()
    with Ledger(path) as ledger, ledger.turn(1) as one, ledger.turn(2) as other:
        assert one is not None and other is not None
        assert (one.records, other.records) == (13, 5)


@pytest.mark.parametrize("by_turns", [True, False])
def test_nobody_writes_where_one_stopped_in_the_middle(path: str, by_turns: bool) -> None:
    with ExitStack() as its:
        if by_turns:
            its.enter_context(Turns(path)).count(0, 5)
        else:
            mine = its.enter_context(its.enter_context(Ledger(path)).turn(0))
            assert mine is not None
            mine.begin()
    with Ledger(path) as ledger, pytest.raises(PoisonedError, match=SECOND_ATTEMPT), ledger.turn(0):
        pass
    with pytest.raises(PoisonedError, match=SECOND_ATTEMPT):
        close_places(path, PLACES, reported(5, 0, 0))


@pytest.mark.parametrize("amiss", [(0, 0, 0), (0, 2, 0), (0, 4, 0), (3, 0, 0), (0, 3, 1)])
def test_nothing_is_committed_unless_what_is_written_is_what_is_reported(path: str, amiss: tuple[int, ...]) -> None:
    wrote(path, 1, 3)
    with pytest.raises(PoisonedError, match="another attempt wrote there too"):
        close_places(path, PLACES, reported(*amiss))


def test_once_the_driver_has_looked_nobody_writes_anywhere(path: str) -> None:
    wrote(path, 1, 3)
    close_places(path, PLACES, reported(0, 3, 0))
    for place in range(3):
        with pytest.raises(PoisonedError, match="late"):
            wrote(path, place, 1)


def _hold(path: str, has_it: Any, let_go: Any) -> None:
    with Ledger(path) as ledger, ledger.turn(1) as mine:
        assert mine is not None
        has_it.set()
        let_go.wait()


def test_only_one_process_has_a_turn_at_a_place(path: str) -> None:
    processes = multiprocessing.get_context("spawn")
    has_it, let_go = processes.Event(), processes.Event()
    holder = processes.Process(target=_hold, args=(path, has_it, let_go))
    holder.start()
    try:
        assert has_it.wait(60)
        with Ledger(path) as ledger, ledger.turn(1) as held, ledger.turn(0) as free:
            assert held is None and free is not None
        with pytest.raises(PoisonedError, match="still writ"), Turns(path) as turns:
            turns.count(1, 5)
        with pytest.raises(PoisonedError, match="still writ"):
            close_places(path, PLACES, reported(0, 0, 0))
    finally:
        let_go.set()
        holder.join()
    wrote(path, 1, 1)


def test_who_comes_when_the_run_is_over_finds_no_ledger() -> None:
    with new_ledger(1) as path:
        pass
    with pytest.raises(FileNotFoundError):
        Ledger(path)


@pytest.mark.parametrize(
    ("master", "is_shared"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*,4]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://127.0.0.1:7077", False),
        ("yarn", False),
        (None, False),
    ],
)
def test_only_tasks_of_one_machine_share_a_ledger(master: str | None, is_shared: bool) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    with shared_ledger(spark, 1) as path:
        assert (path is not None) is is_shared
