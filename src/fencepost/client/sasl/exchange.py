"""What every mechanism is: the first message, and an answer to each of the server's."""

from __future__ import annotations

from typing import Protocol


class SaslError(Exception):
    """By what it said the server is not to be trusted, or not to be understood.  The sentence has no secrets."""


class Exchange(Protocol):
    """One authentication, from its first message to its last."""

    @property
    def is_complete(self) -> bool:
        """Whether the server has said everything that this mechanism wants from it."""
        ...

    def begin(self) -> bytes:
        """The first message.  Called once."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """What the server's message is answered; None: nothing more is to be said.  Raises SaslError."""
        ...
