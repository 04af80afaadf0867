"""Random walks in the middle of which transaction.version goes up and down on both nodes."""

from __future__ import annotations

import random

from tests.compare.coordinator.walks import USUAL, Walk
from tests.compare.nodes.twins import Twins


class Levels(Walk):
    """One walk; it begins at a level of its own."""

    def __init__(self, twins: Twins, chance: random.Random, prefix: str) -> None:
        super().__init__(twins, chance, prefix, {**USUAL, "level": 4})
        self._moves["level"] = self._change
        twins.set_level(chance.choice([0, 1, 2, 2]))

    def version(self, move: str) -> int:
        if move == "level":
            return 0
        # Clients learn of a level after a while: some still speak the protocol of another one.
        was = self.twins.level
        if self.chance.random() < 0.15:
            self.twins.level = self.chance.choice([1, 2])
        try:
            return super().version(move)
        finally:
            self.twins.level = was

    def _change(self, name: str, version: int) -> None:  # noqa: ARG002
        self.twins.set_level(self.chance.choice([0, 1, 2]))
