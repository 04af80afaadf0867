"""Producers with transactions who commit nothing any more, though nothing goes wrong, are found."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client import Producer, TimedOutError
from fencepost.simulation import workload
from fencepost.simulation.cast import Window
from fencepost.simulation.drawn_runs import carry_out
from fencepost.simulation.plans import Circumstances, Plan
from fencepost.simulation.workload import Outcomes

PLAN = Plan(1, 0.3, Circumstances(), {"producer-0": Window()})


def with_failed_tries(monkeypatch: pytest.MonkeyPatch, failures: int) -> tuple[list[str], Outcomes]:
    """So many times the end of the last transaction is not answered in time, once nothing goes wrong any more."""
    commit_at_last, commit = workload.commit_at_last, Producer.commit_transaction
    left = failures

    async def in_vain(producer: Producer) -> None:
        nonlocal left
        if left:
            left -= 1
            raise TimedOutError("EndTxn was not answered in time")
        await commit(producer)

    async def at_last(*args: Any) -> None:
        monkeypatch.setattr(Producer, "commit_transaction", in_vain)
        await commit_at_last(*args)

    monkeypatch.setattr(workload, "commit_at_last", at_last)
    report = carry_out(PLAN)
    return report.faults, report.outcomes


def test_who_never_commits_again_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    faults, _ = with_failed_tries(monkeypatch, 1000)
    assert faults == ["producer-0 does not come to commit anything though nothing goes wrong any more"]


def test_who_commits_at_another_try_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    faults, outcomes = with_failed_tries(monkeypatch, 3)
    assert faults == []
    assert len(outcomes.unknown) == 3
    assert len(next(reversed(outcomes.committed.values()))) == 5
