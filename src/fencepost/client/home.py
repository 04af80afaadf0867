"""Checks where a client is used: only in the process that it was made in, and in one event loop."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from fencepost.client.errors import MisuseError

_forks = 0
"""The number of forks between the process that imported this module and this one."""


def _count() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # where processes are forked
    os.register_at_fork(after_in_child=_count)


class HomeProcess:
    """This process: a forked child has its memory, and neither its threads nor connections."""

    def __init__(self) -> None:
        self.forks: Final = _forks

    @property
    def is_here(self) -> bool:
        """Whether this is the process that it was made in, and no forked child."""
        return self.forks == _forks

    def check(self) -> None:
        """Raises MisuseError in a forked child, whose requests would be mixed up with those of its parent."""
        if self.forks != _forks:
            raise MisuseError(
                "this client was made before the process was forked, and its threads and connections are its parent's: "
                "make a new one in the child"
            )


class Home:
    """This process, and the event loop that the client is first used in: that of its connections and tasks."""

    def __init__(self) -> None:
        self._process = HomeProcess()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_here(self) -> bool:
        """Whether this is the process that it was made in, and no forked child."""
        return self._process.is_here

    def check(self) -> None:
        """Raises MisuseError in a forked child, and in another event loop than at the first time, as threads have.

        Outside of all loops, where nothing can be awaited, only the process counts.
        """
        if self._process.forks != _forks:
            self._process.check()
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._loop is None:
            self._loop = running
        elif self._loop is not running:
            raise MisuseError(
                "this client belongs to the event loop that it was first used in: make one for each event loop, or use "
                "those of fencepost.client.blocking, which have a loop of their own"
            )
