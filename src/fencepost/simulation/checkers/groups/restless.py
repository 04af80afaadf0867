"""Nobody is given other partitions when nothing has gone wrong for a while: everybody says that it lives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fencepost.simulation.group_notes import Owned

_SECONDS: Final = 2
"""Within which a group has shared out its partitions again, two times over: one left, and one came."""


def restless(
    all_owned: Iterable[Owned], calm_since: float, fenced: Mapping[tuple[str, int], float] | None = None
) -> list[str]:
    """Members that were given other partitions after `calm_since` (seconds) and a while, in sentences.

    `fenced`: when somebody at a place of a group heard late that its predecessor had taken its id back, and ended.
    """
    ends = [(group, time) for (group, _), time in (fenced or {}).items()]
    return [
        f"{owned.member.who} is given {len(owned.partitions)} partitions of {owned.member.group} at {owned.time:.1f} s"
        for owned in all_owned
        if owned.time > calm_since
        and not any(owned.member.group == group and 0 <= owned.time - time < _SECONDS for group, time in ends)
    ]
