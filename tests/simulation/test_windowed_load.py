"""Transactional producers with five batches of a partition on their way at once."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.log.producer_state import ProducerEntry
from fencepost.protocol.batch import BatchHeader
from fencepost.simulation.cast import Window
from fencepost.simulation.drawn_runs import Report, carry_out
from fencepost.simulation.plans import Circumstances, Plan
from fencepost.simulation.script import RequestFault
from fencepost.simulation.troubles import Trouble
from fencepost.simulation.workload import Load

PRODUCE, END_TXN = 0, 26
CLIENTS = {"windowed-0": Window(), "windowed-1": Window(), "reader-0": Window()}


def run(seed: int, level: int, apis: tuple[int, ...] | None = (PRODUCE, END_TXN)) -> Report:
    given = Circumstances(
        settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100},
        level=level,
        load=Load(transaction_timeout_ms=1500, delivery_timeout_ms=1500),
        troubles=(Trouble.KILLED, Trouble.POWER_LOST, Trouble.CONNECTIONS_CUT),
        between=0.3,
        request_faults=dict.fromkeys(RequestFault, 0.01),
        apis=apis,
    )
    return carry_out(Plan(seed, 1, given, CLIENTS))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_no_promise_is_broken(level: int) -> None:
    reports = [run(seed, level) for seed in (1, 2, 3)]
    assert [report.faults for report in reports] == [[], [], []]
    told = "\n".join(line for report in reports for line in report.history)
    fates = ("it commits", "it aborts", "it is taken over", *(["it aborts at once"] if level == 2 else []))
    assert [fate for fate in fates if fate not in told] == []
    assert min(len(report.outcomes.committed) for report in reports) > 5


def test_a_window_that_is_too_short_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that are sent again are no duplicates to a broker that remembers fewer than are on their way."""

    def duplicate_of(entry: ProducerEntry, header: BatchHeader) -> Any:
        batches = list(entry.batches)[-2:]
        return next((batch for batch in batches if batch.first_sequence == header.base_sequence), None)

    monkeypatch.setattr(ProducerEntry, "duplicate_of", duplicate_of)
    assert any(run(seed, 2).faults for seed in range(3))
