"""The interface of a SASL mechanism: a first message, and an answer to each of the server's."""

from __future__ import annotations

from typing import Protocol


class SaslError(Exception):
    """The server's message shows that it cannot be trusted, or makes no sense.  The text has no secrets."""


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
        """The answer to a message of the server; None: nothing more is to be sent.  Raises SaslError."""
        ...
