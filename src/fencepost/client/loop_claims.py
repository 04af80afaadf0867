"""Sees to it that one loop at a time uses a consumer or a producer."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Final, Protocol

from fencepost.client.errors import MisuseError


class Loop(Protocol):
    """A loop that reads, transforms and writes with a consumer and a producer."""

    @property
    def is_in_use(self) -> bool:
        """Whether a transaction that it handed out has not ended, or it is about to hand one out."""
        ...


#: consumer or producer -> the loop that used it last
_users: Final[weakref.WeakKeyDictionary[object, weakref.ref[Loop]]] = weakref.WeakKeyDictionary()


def claim(loop: Loop, clients: Mapping[str, object]) -> None:
    """Have this loop use these clients, by their kinds.  Raises MisuseError while another one does.

    Two at once would each put back, and commit, what the other one was handed.
    """
    for kind, client in clients.items():
        user = _users[client]() if client in _users else None
        if user is not None and user is not loop and user.is_in_use:
            raise MisuseError(
                f"another ExactlyOnce loop uses this {kind}, and its last transaction has not ended: leave its "
                f"block first, or give each loop a {kind} of its own"
            )
    for client in clients.values():
        _users[client] = weakref.ref(loop)
