"""A start that is told to stop: what it is recovering is recovered first, unless that takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

PATIENCE_SECONDS: Final = 5.0
"""Whoever has told a process to stop kills it a little later: Docker after ten seconds."""


class Interruption:
    """Cuts off what a start is at where it would take long: what is done is as a kill leaves it, and nothing is lost.

    `told_to_stop`: whether the node was told to.  It is looked at from within what keeps the event loop busy, so that
    loop cannot tell.
    """

    def __init__(self, told_to_stop: Callable[[], bool]) -> None:
        self._told_to_stop = told_to_stop
        self._until: float | None = None
        self.has_cut_off = False
        """Whether it was needed: the next start begins again with what this one was at."""

    def check(self) -> None:
        """Called again and again.  Raises CancelledError some seconds after the node was told to stop."""
        if not self._told_to_stop():
            return
        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until = now + PATIENCE_SECONDS
        if now >= self._until:
            self.has_cut_off = True
            raise asyncio.CancelledError
