"""Lost, late and repeated calls, among nodes and from clients, with many seeds at every level of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.seeds import seeds

from fencepost.simulation.call_faults import CallFault
from fencepost.simulation.faulty_runs import EVERY_REQUEST_FAULT, EVERYTHING, Plan, disturb

INCIDENTS: Mapping[str, dict[str, Any]] = {"steady": {}, "crashes": {"crashes": 0.3}, "moves": {"moves": 0.3}}
UNREPEATED: Mapping[CallFault, float] = {fault: n for fault, n in EVERYTHING.items() if fault is not CallFault.REPEATED}


@pytest.mark.soak
@pytest.mark.parametrize("incidents", INCIDENTS)
@pytest.mark.parametrize("level", [2, 1, 0])
def test_no_seed_breaks_a_promise(level: int, incidents: str) -> None:
    # Below level 2 a marker that is repeated late may end the next transaction: only bumped epochs prevent that.
    calls = EVERYTHING if level == 2 else UNREPEATED
    for seed in seeds(40):
        for faults in (
            {"call_faults": calls},
            {"request_faults": EVERY_REQUEST_FAULT},
            {"call_faults": calls, "request_faults": EVERY_REQUEST_FAULT},
        ):
            how: dict[str, Any] = {**faults, **INCIDENTS[incidents]}
            plan = Plan(level=level, incidents=60, producers=1 + seed % 5, **how)
            assert disturb(seed, plan).faults == [], f"seed {seed}, {', '.join(faults)}"


@pytest.mark.soak
@pytest.mark.parametrize("incidents", INCIDENTS)
def test_no_change_of_level_does(incidents: str) -> None:
    for seed in seeds(40):
        plan = Plan(UNREPEATED, request_faults=EVERY_REQUEST_FAULT, changes=0.3, incidents=60, **INCIDENTS[incidents])
        assert disturb(seed, plan).faults == [], f"seed {seed}"
