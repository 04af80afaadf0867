"""Transactional producers that are interrupted and closed anywhere, and whose transactions a database decides about."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from fencepost.client.transactions import Transactions
from fencepost.simulation.cast import Window
from fencepost.simulation.drawn_runs import Report, carry_out
from fencepost.simulation.plans import Circumstances, Plan, plan_of
from fencepost.simulation.script import RequestFault
from fencepost.simulation.troubles import Trouble
from fencepost.simulation.workload import Load

CLIENTS = {"impatient-0": Window(), "impatient-1": Window(), "reader-0": Window()}


def run(seed: int, level: int = 2, *, prepares: bool = False, two_phase: bool = False) -> Report:
    given = Circumstances(
        settings={
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
            "transaction.two.phase.commit.enable": str(two_phase).lower(),
        },
        level=level,
        load=Load(
            positions=0.3,
            prepares=prepares,
            two_phase=two_phase,
            transaction_timeout_ms=1500,
            delivery_timeout_ms=1500,
        ),
        troubles=(Trouble.KILLED, Trouble.POWER_LOST, Trouble.CONNECTIONS_CUT),
        between=0.3,
        request_faults=dict.fromkeys(RequestFault, 0.01),
    )
    return carry_out(Plan(seed, 2, given, CLIENTS))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_whoever_is_interrupted_is_told_the_truth_and_goes_on(level: int) -> None:
    reports = [run(seed, level) for seed in (1, 2, 3)]
    assert [report.faults for report in reports] == [[], [], []]
    told = "\n".join(line for report in reports for line in report.history)
    assert [what for what in ("has failed", "waits for its position no longer", "is closed") if what not in told] == []
    assert min(len(report.outcomes.committed) for report in reports) > 20
    assert min(len(report.outcomes.aborted) for report in reports) > 3


@pytest.mark.parametrize("two_phase", [True, False])
def test_what_the_database_has_decided_for_is_what_is_read(two_phase: bool) -> None:
    reports = [run(seed, prepares=True, two_phase=two_phase) for seed in (1, 2, 3)]
    assert [report.faults for report in reports] == [[], [], []]
    assert min(sum("is decided for" in line for line in report.history) for report in reports) > 10
    for report in reports if two_phase else ():
        decided = {line.split()[1] for line in report.history if "is decided for" in line}
        assert not decided.intersection(report.outcomes.unknown), "without a time-out nothing of it is in doubt"


def test_positions_that_stay_in_doubt_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for them no longer may not commit, as they may be in the transaction or not."""
    fail = Transactions.fail

    def forgets(self: Transactions, error: Exception, *, fatal: bool) -> None:
        if "was interrupted" not in str(error):
            fail(self, error, fatal=fatal)  # type: ignore[arg-type]

    monkeypatch.setattr(Transactions, "fail", forgets)
    assert any(run(seed, 1).faults for seed in range(3, 11))


def test_a_commit_that_is_taken_for_done_when_it_is_interrupted_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Transactions.commit

    async def in_a_hurry(self: Transactions) -> None:
        with suppress(asyncio.CancelledError):
            await commit(self)

    monkeypatch.setattr(Transactions, "commit", in_a_hurry)
    assert any(run(seed).faults for seed in range(3))


def test_some_seeds_have_such_producers_and_some_of_those_a_database() -> None:
    drawn = [plan_of(seed, 1).circumstances for seed in range(60)]
    with_them = [each for each in drawn if each.impatient]
    assert 10 < len(with_them) < 50
    assert {(each.load.prepares, each.load.two_phase) for each in with_them} == {
        (False, False),
        (True, False),
        (True, True),
    }
    assert all(each.level == 2 and Trouble.LEVEL_CHANGES not in each.troubles for each in drawn if each.load.prepares)
