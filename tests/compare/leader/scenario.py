"""What a written scenario for the leader of a partition is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.compare.leader.steps import Register, Step

ID = "t"
"""The transactional id of producer 0; producer 1 is idempotent only."""


@dataclass(frozen=True)
class Scenario:
    """Steps on a fresh topic with these settings."""

    name: str
    steps: Sequence[Step]
    configs: tuple[tuple[str, str], ...] = ()


def before_writing(level: int, version: int) -> list[Step]:
    """What an earlier client sends before it writes; newer ones rely on the leader."""
    return [] if level == 2 and version >= 12 else [Register(3, ID, 0, 0)]
