"""Who works in a simulated world: producers and readers, groups of consumers, applications that write micro-batches."""

from __future__ import annotations

from typing import Protocol


class Inhabitants(Protocol):
    """Some who work in one world, and what is found out of them."""

    async def prepare(self) -> None:
        """Make the topics that these clients use, before the first fault."""
        ...

    def begin(self) -> None:
        """Start these clients; faults happen while they work."""
        ...

    async def rest(self) -> list[str]:
        """Get on, now that nothing goes wrong any more, then come to an end.  Who does not, in bounded time."""
        ...

    def calm_down(self) -> None:
        """Somebody has not got on for long: let nothing befall anybody, and whoever has got on do no more.

        So waiting takes little memory and time.
        """
        ...

    async def judge(self) -> list[str]:
        """The promises that were broken to them; when everybody has come to rest."""
        ...
