"""Nobody is given other partitions when nothing has gone wrong for a while: everybody says that it lives."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.simulation.group_notes import Owned


def restless(all_owned: Iterable[Owned], calm_since: float) -> list[str]:
    """Nobody is given other partitions when nothing has gone wrong for a while: everybody says that it lives."""
    return [
        f"{owned.member.who} is given {len(owned.partitions)} partitions of {owned.member.group} at {owned.time:.1f} s"
        for owned in all_owned
        if owned.time > calm_since
    ]
