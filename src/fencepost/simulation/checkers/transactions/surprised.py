"""No producer is fenced or ended for nothing, no zombie commits."""

from __future__ import annotations

from fencepost.simulation.workload import Outcomes


def surprised(outcomes: Outcomes) -> list[str]:
    """No producer is fenced or ended for nothing, no zombie commits."""
    return list(outcomes.surprises)
