"""A record is shown as it was sent, and to every reader alike: key, headers and timestamp too."""

from __future__ import annotations

from fencepost.simulation.sights import Sights


def changed(sights: Sights) -> list[str]:
    """Records that are not shown as they were sent, or not to every reader alike, in sentences."""
    return list(dict.fromkeys(sights.changed))
