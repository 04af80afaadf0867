"""While everybody works no transaction is said to hang, and none that somebody will end is ended."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fencepost.client.admin import hanging
from fencepost.client.admin.hanging import HangingTransaction
from fencepost.simulation.drawn_runs import Report, carry_out
from fencepost.simulation.plans import plan_of
from fencepost.simulation.troubles import Trouble

SEEDS = (394, 7, 11)


def looked_for(seed: int) -> Report:
    """A run in which somebody looks for them all the time."""
    plan = plan_of(seed, 2, [Trouble.HANGING_LOOKED_FOR])
    return carry_out(plan._replace(circumstances=plan.circumstances._replace(between=0.03)))


@pytest.mark.parametrize("seed", SEEDS)
def test_none_is_found_and_none_is_ended(seed: int) -> None:
    report = looked_for(seed)
    assert report.faults == []
    told = "\n".join(report.history)
    assert "an operator found 0 transactions that hang" in told
    assert "an operator was not let end what begins at" in told


def test_an_administrator_who_takes_a_live_one_for_hanging_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_them(found: Iterable[HangingTransaction], *_: object) -> list[HangingTransaction]:
        return list(found)

    monkeypatch.setattr(hanging, "without_coordinator", all_of_them)
    assert any("it is said to hang" in fault for seed in SEEDS for fault in looked_for(seed).faults)
