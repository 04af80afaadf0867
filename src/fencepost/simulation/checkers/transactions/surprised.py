"""No producer is fenced or ended for nothing, no zombie commits."""

from __future__ import annotations

from fencepost.simulation.workload import Outcomes


def surprised(outcomes: Outcomes) -> list[str]:
    """Producers that were fenced or ended for nothing, and zombies that committed, in sentences."""
    return list(outcomes.surprises)
