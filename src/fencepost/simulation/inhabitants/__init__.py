"""Who works in a simulated world: producers and readers, groups of consumers, applications that write micro-batches."""

from __future__ import annotations

from typing import Protocol


class Inhabitants(Protocol):
    """The clients of one kind in a world: started, brought to rest and judged together."""

    async def prepare(self) -> None:
        """Make the topics that these clients use, before the first fault."""
        ...

    def begin(self) -> None:
        """Start these clients; faults happen while they work."""
        ...

    async def rest(self) -> list[str]:
        """Get on without faults, then end; in sentences who does not in bounded time."""
        ...

    def calm_down(self) -> None:
        """Let nothing befall these clients any more, for one has not got on for long; those that have do no more.

        So waiting takes little memory and time.
        """
        ...

    async def judge(self) -> list[str]:
        """The promises that were broken to these clients, in sentences; asked after `rest`."""
        ...
