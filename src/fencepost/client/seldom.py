"""Limits a log line that may repeat to one a minute."""

from __future__ import annotations

from typing import Final

#: Seconds between two that are written.
SAID_AGAIN_AFTER: Final = 60.0


class Seldom:
    """Decides whether a log line is written: the first, then at most one a minute, with how many were left out."""

    def __init__(self) -> None:
        self._quiet_until = float("-inf")
        self._left_out = 0

    def due(self, now: float) -> str | None:
        """The text that ends the log line, maybe empty; None: it is left out.  `now` is in seconds, of one clock."""
        if now < self._quiet_until:
            self._left_out += 1
            return None
        left_out, self._left_out = self._left_out, 0
        self._quiet_until = now + SAID_AGAIN_AFTER
        return f" (and {left_out} times since this was last said)" if left_out else ""
