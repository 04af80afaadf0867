"""PLAIN (RFC 4616): the user's name and password, in one message.

The server does not prove anything, and whoever reads along has the password: it is for connections with TLS.
"""

from __future__ import annotations

from fencepost.client.sasl.exchange import SaslError


class Plain:
    """One authentication by PLAIN.  Neither name nor password may be empty or have a NUL in it."""

    def __init__(self, username: str, password: str) -> None:
        self._message = b"\0" + username.encode() + b"\0" + password.encode()
        self.is_complete = False

    def begin(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge or self.is_complete:
            raise SaslError("it answered PLAIN with more than yes or no")
        self.is_complete = True
        return None
