"""The process that a client was made in: a forked child has its memory, and neither its threads nor connections."""

from __future__ import annotations

import os

from fencepost.client.errors import MisuseError

_forks = 0
"""How often this process was forked off from one that had this module."""


def _count() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # where processes are forked
    os.register_at_fork(after_in_child=_count)


class HomeProcess:
    """This process."""

    def __init__(self) -> None:
        self._forks = _forks

    @property
    def is_here(self) -> bool:
        """Whether nobody was forked off since."""
        return self._forks == _forks

    def check(self) -> None:
        """Raises MisuseError in a forked child: what it sent would be mixed up with what its parent sends."""
        if not self.is_here:
            raise MisuseError(
                "this client was made before the process was forked, and its threads and connections are its parent's: "
                "make a new one in the child"
            )
