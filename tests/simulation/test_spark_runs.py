"""The Spark write protocol with everything going wrong around it: no promise is broken, every bug put in is found."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import pytest
from tests.simulation.narrow_worlds import applications
from tests.simulation.spark_bugs import BUGS

from fencepost.simulation.drawn_runs import Report, carry_out
from fencepost.simulation.plans import plan_of
from fencepost.simulation.troubles import Trouble

SEEDS: Final = 13
#: Level of transaction.version at the start, and how often it is changed.
LEVELS: Final = {"TV2": (2, 0.0), "TV1": (1, 0.0), "changing": (2, 0.3)}


RUNS: Final = [(seed, levels) for seed in range(SEEDS) for levels in LEVELS]
#: In which something happens that is rare.
RARE: Final = ((17, "TV2"), (20, "TV1"))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A driver logs each failure, and there are many."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def report(seed: int, levels: str) -> Report:
    return carry_out(applications(seed, *LEVELS[levels]))


kept = lru_cache(report)


@pytest.mark.parametrize(("seed", "levels"), [*RUNS, *RARE])
def test_no_promise_is_broken(seed: int, levels: str) -> None:
    assert kept(seed, levels).faults == []


def test_an_intruder_who_looks_while_the_last_marker_is_on_its_way_takes_over() -> None:
    """Who was there before is fenced, and that is no surprise."""
    plan = plan_of(3381, 2)
    troubles = [Trouble.HANGING_LOOKED_FOR, *plan.circumstances.troubles, *[Trouble.HANGING_LOOKED_FOR] * 3]
    found = carry_out(plan._replace(circumstances=plan.circumstances._replace(troubles=troubles)))
    assert found.faults == []
    assert any("driver b0 is fenced" in line for line in found.history)


#: What befalls drivers and attempts, as the histories say it.
HAPPENS: Final = (
    *("kill ", "interrupt ", "stall ", "replace ", "restore ", "intrude ", "which commits", "is fenced"),
    *("PoisonedError", "TimedOutError", "TransactionTimedOutError", "claimed by more than one attempt", "older copy"),
    *("belongs to another query", "SKIPPED", "REPEATED", "broker killed", "power lost", "transaction.version 1"),
    *("EndTxnRequest lost", "EndTxnRequest carried out", "EndTxnRequest its connection", "everybody is killed"),
    *("has its turn", "UNSETTLED", "SETTLED", "CLOSED", "stopped in the middle of his turn", "and tasks report"),
    *("is still written by another attempt", "this attempt at the batch is late", "FileNotFoundError: the run is over"),
)


def test_everything_happens_in_these_runs() -> None:
    lines = [line for run in (*RUNS, *RARE) for line in kept(*run).history]
    counts = {what: sum(what in line for line in lines) for what in HAPPENS}
    print(counts)
    assert [what for what, count in counts.items() if not count] == []


def test_the_same_seed_is_the_same_history() -> None:
    assert report(1, "TV1").history == kept(1, "TV1").history


#: bug -> a run that finds it, or did once; whatever changes the order of events in the node may make it another one
FOUND_BY: Final = {
    "one_epoch_for_several_batches": (0, "TV1"),
    "claims_are_checked_by_nobody": (1, "TV2"),
    "any_later_claim_follows": (0, "TV1"),
    "slots_are_looked_at_once": (0, "TV2"),
    "a_number_says_that_a_batch_was_committed": (3, "TV2"),
    "the_last_batch_is_written_again": (1, "TV1"),
    "an_interrupted_driver_goes_on": (3, "TV2"),
    "a_failed_batch_is_not_aborted": (0, "TV2"),
    "a_failed_batch_was_not_committed": (7, "TV2"),
    "progress_is_read_after_the_take_over_only": (4, "TV2"),
    "progress_is_read_up_to_the_last_stable_offset": (4, "TV2"),
    "progress_of_aborted_transactions_counts": (0, "TV2"),
    "progress_is_written_in_a_transaction_of_its_own": (0, "TV2"),
    "a_failed_batch_of_an_attempt_is_forgotten": (7, "changing"),
    "an_attempt_is_done_when_all_is_sent": (0, "TV2"),
    "partitions_are_not_registered": (0, "TV1"),
    "progress_is_not_waited_for": (25, "TV1"),
    "progress_is_read_before_the_take_over_only": (6, "TV1"),
    "a_fenced_driver_takes_over_again": (3, "TV2"),
    "poison_is_no_failure": (5, "changing"),
    "an_attempt_loses_its_last_batch": (0, "TV2"),
    "positions_are_committed_outside_of_the_transaction": (2, "TV2"),
    "a_lost_commit_is_taken_for_made": (2, "changing"),
}


#: One in four by default; all of them take minutes.
SOME: Final = [pytest.param(bug, marks=() if n % 4 == 0 else pytest.mark.soak) for n, bug in enumerate(BUGS)]


@pytest.mark.parametrize("bug", SOME)
def test_a_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a run that is clean without it."""
    runs = dict.fromkeys((FOUND_BY[bug], *((seed, levels) for seed in range(3 * SEEDS) for levels in LEVELS)))
    with monkeypatch.context() as patch:
        BUGS[bug](patch)
        finder = next((run for run in runs if report(*run).faults), None)
    print(finder)
    assert finder is not None
    assert kept(*finder).faults == []


def test_every_bug_has_its_run() -> None:
    assert set(FOUND_BY) == set(BUGS)
