"""Each checker says nothing of a history that keeps its promise, and names the one that does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from fencepost.simulation.checkers.micro_batches import CHECKERS, check
from fencepost.simulation.checkers.micro_batches.forgotten import forgotten
from fencepost.simulation.checkers.micro_batches.misplaced import misplaced
from fencepost.simulation.checkers.micro_batches.offsets_apart import offsets_apart
from fencepost.simulation.checkers.micro_batches.reordered import reordered
from fencepost.simulation.checkers.micro_batches.repeated import repeated
from fencepost.simulation.checkers.micro_batches.skipped import skipped
from fencepost.simulation.checkers.micro_batches.surprised import surprised
from fencepost.simulation.checkers.micro_batches.taken_back import taken_back
from fencepost.simulation.checkers.micro_batches.torn import torn
from fencepost.simulation.checkers.micro_batches.zombies import zombies
from fencepost.simulation.micro_batches import (
    BEGINNING,
    PLACES,
    DriverOutcomes,
    Ends,
    Row,
    Seen,
    Shown,
    rows_between,
    source_offsets,
)
from fencepost.spark.progress import Progress

ENDS: list[Ends] = [(4, 3), (4, 3), (9, 8)]
"""Of three batches; the second has no rows."""


def shown(row: Row, batch_id: int, attempt: str = "") -> Shown:
    return Shown(row, batch_id, attempt or f"a0.{batch_id}.0.{row.target % 2}.0")


def good() -> tuple[DriverOutcomes, Seen]:
    """A history in which everything is as it should be."""
    outcomes, rows, start = DriverOutcomes(), {at: list[Shown]() for at in PLACES}, BEGINNING
    for batch_id, end in enumerate(ENDS):
        for row in rows_between("a", start, end):
            one = shown(row, batch_id)
            rows[PLACES[row.target]].append(one)
            outcomes.reported[one.attempt] = batch_id
        outcomes.committed[batch_id] = end
        giver = f"a0.{batch_id}.0.ahead0.0"
        outcomes.orders[giver] = {row: n for n, row in enumerate(rows_between("a", start, end))}
        outcomes.reported[giver] = batch_id
        start = end
    outcomes.skipped.append(ENDS[0])
    outcomes.failed["a9.1.0"] = 1
    records = [("a", Progress.of("query", n, source_offsets(end))) for n, end in enumerate(ENDS)]
    return outcomes, Seen(rows, records, {"a": ENDS[-1]})


def test_nothing_is_said_of_a_good_history() -> None:
    outcomes, seen = good()
    assert check({"a": outcomes}, seen) == []
    assert check({"a": DriverOutcomes()}, Seen({}, [], {"a": None})) == []


def first(seen: Seen, batch_id: int = 0) -> tuple[list[Shown], Shown]:
    """The first row of a batch, and the partition where it is."""
    for rows in seen.rows.values():
        assert isinstance(rows, list)
        for one in rows:
            if one.batch_id == batch_id:
                return rows, one
    raise AssertionError("it has rows")


def double_a_row(outcomes: DriverOutcomes, seen: Seen) -> Seen:  # noqa: ARG001
    rows, one = first(seen)
    rows.insert(0, one)
    return seen


def record_a_batch_twice(outcomes: DriverOutcomes, seen: Seen) -> Seen:  # noqa: ARG001
    return seen._replace(records=[seen.records[0], *seen.records])


def lose_a_row(outcomes: DriverOutcomes, seen: Seen) -> Seen:  # noqa: ARG001
    rows, one = first(seen)
    rows.remove(one)
    return seen


def lose_a_record(outcomes: DriverOutcomes, seen: Seen) -> Seen:  # noqa: ARG001
    return seen._replace(records=[seen.records[0], seen.records[2]])


def lose_the_last_record(outcomes: DriverOutcomes, seen: Seen) -> Seen:  # noqa: ARG001
    return seen._replace(records=seen.records[:-1])


def show_a_row_before_its_batch(outcomes: DriverOutcomes, seen: Seen) -> Seen:  # noqa: ARG001
    rows, one = first(seen, 2)
    rows[rows.index(one)] = shown(one.row, 0, one.attempt)
    return seen


def skip_what_was_never_committed(outcomes: DriverOutcomes, seen: Seen) -> Seen:
    outcomes.skipped.append((9, 9))
    return seen


def commit_another_end(outcomes: DriverOutcomes, seen: Seen) -> Seen:
    outcomes.committed[1] = (5, 3)
    return seen


def report_a_failure(outcomes: DriverOutcomes, seen: Seen) -> Seen:
    outcomes.failed["a0.2.0"] = 2
    return seen


def show_an_attempt_that_never_reported(outcomes: DriverOutcomes, seen: Seen) -> Seen:
    del outcomes.reported[first(seen)[1].attempt]
    return seen


def mix_two_runs(outcomes: DriverOutcomes, seen: Seen) -> Seen:
    rows, one = first(seen)
    outcomes.reported["a0.0.1.0.0"] = 0
    rows[rows.index(one)] = one._replace(attempt="a0.0.1.0.0")
    return seen


def mix_two_attempts(outcomes: DriverOutcomes, seen: Seen) -> Seen:
    rows, one = first(seen, 2)
    slot = one.attempt.rpartition(".")[0]
    outcomes.reported[f"{slot}.1"] = 2
    rows.append(Shown(one.row, 2, f"{slot}.1"))
    return seen


def put_a_row_elsewhere(outcomes: DriverOutcomes, seen: Seen) -> Seen:  # noqa: ARG001
    rows, one = first(seen)
    rows.remove(one)
    other = next(at for at in PLACES if seen.rows[at] is not rows)
    return seen._replace(rows={**seen.rows, other: [one, *seen.rows[other]]})


def show_a_later_batch_first(outcomes: DriverOutcomes, seen: Seen) -> Seen:  # noqa: ARG001
    return seen._replace(rows={at: rows[::-1] for at, rows in seen.rows.items()})


def show_what_a_task_gave_later_first(outcomes: DriverOutcomes, seen: Seen) -> Seen:  # noqa: ARG001
    rows, place = next(
        (rows, n)
        for rows in seen.rows.values()
        for n in range(len(rows) - 1)
        if rows[n].batch_id == rows[n + 1].batch_id
    )
    assert isinstance(rows, list)
    rows[place : place + 2] = rows[place : place + 2][::-1]
    return seen


def leave_the_group_behind(outcomes: DriverOutcomes, seen: Seen) -> Seen:  # noqa: ARG001
    return seen._replace(positions={"a": ENDS[0]})


def leave_the_group_nowhere(outcomes: DriverOutcomes, seen: Seen) -> Seen:  # noqa: ARG001
    return seen._replace(positions={"a": None})


def surprise(outcomes: DriverOutcomes, seen: Seen) -> Seen:
    outcomes.surprises.append("what nobody should be told")
    return seen


WRONG: Mapping[Callable[[DriverOutcomes, Seen], Seen], Callable[[Mapping[str, DriverOutcomes], Seen], list[str]]] = {
    double_a_row: repeated,
    record_a_batch_twice: repeated,
    lose_a_row: skipped,
    lose_a_record: skipped,
    lose_the_last_record: torn,
    show_a_row_before_its_batch: torn,
    skip_what_was_never_committed: forgotten,
    commit_another_end: forgotten,
    report_a_failure: taken_back,
    show_an_attempt_that_never_reported: zombies,
    mix_two_runs: zombies,
    mix_two_attempts: zombies,
    put_a_row_elsewhere: misplaced,
    show_a_later_batch_first: misplaced,
    show_what_a_task_gave_later_first: reordered,
    leave_the_group_behind: offsets_apart,
    leave_the_group_nowhere: offsets_apart,
    surprise: surprised,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_named(wrong: Callable[[DriverOutcomes, Seen], Seen]) -> None:
    outcomes, seen = good()
    seen = wrong(outcomes, seen)
    assert WRONG[wrong]({"a": outcomes}, seen)


def test_the_rest_of_what_a_task_gave_may_be_in_any_order() -> None:
    outcomes, seen = good()
    for order in outcomes.orders.values():
        order.update(dict.fromkeys(order, 1))
    assert check({"a": outcomes}, show_what_a_task_gave_later_first(outcomes, seen)) == []


def test_an_order_is_kept_by_what_was_taken_alone() -> None:
    outcomes, seen = good()
    for attempt in outcomes.orders:
        del outcomes.reported[attempt]
    assert check({"a": outcomes}, show_what_a_task_gave_later_first(outcomes, seen)) == []


def test_every_checker_is_seen_to_fail() -> None:
    assert set(WRONG.values()) == set(CHECKERS)
