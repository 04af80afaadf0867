"""Partitions that cannot be read for a while, and the log line that says so.

`poll` raises nothing for them: the other partitions are read, and these are tried again.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from fencepost.protocol.types import TopicPartition

#: Seconds without an answer before it is said.
SAID_AFTER: Final = 2.0
#: Seconds between two sentences.
SAID_AGAIN_AFTER: Final = 60.0
_NAMED: Final = 3


class Unread:
    """Since when partitions cannot be read, and why; times are seconds of one clock."""

    def __init__(self) -> None:
        self._failing: dict[TopicPartition, tuple[float, str]] = {}
        self._quiet_until = float("-inf")

    def failed(self, at: TopicPartition, why: str, now: float) -> None:
        """Note that a partition could not be read, and why."""
        since, _ = self._failing.get(at, (now, ""))
        self._failing[at] = since, why

    def answered(self, at: TopicPartition) -> None:
        """Note that a partition was read."""
        self._failing.pop(at, None)

    def nobody_answers(self) -> None:
        """Forget all failures: no broker is reached at all, which is said elsewhere (`outage`)."""
        self._failing.clear()

    def warning(self, now: float, followed: Container[TopicPartition]) -> str | None:
        """The log line that is due now, on failing partitions that are still followed; None: none is."""
        self._failing = {at: what for at, what in self._failing.items() if at in followed}
        late = {at: what for at, what in self._failing.items() if now - what[0] >= SAID_AFTER}
        if not late or now < self._quiet_until:
            return None
        self._quiet_until = now + SAID_AGAIN_AFTER
        named = ", ".join(
            f"{at.topic}-{at.partition} for {now - since:.0f} s ({why})"
            for at, (since, why) in list(late.items())[:_NAMED]
        )
        more = f" and {len(late) - _NAMED} other partitions" if len(late) > _NAMED else ""
        return f"nothing could be read of {named}{more}. It is tried again; if it lasts, look into the broker's log"
