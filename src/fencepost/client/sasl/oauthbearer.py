"""OAUTHBEARER (RFC 7628): a bearer token, in one message.

client                      server
n,,^Aauth=Bearer <token>^A^A
                            (nothing)           it is accepted
                            {"status": ...}     it is not
^A
                            an error of the protocol around it
"""

from __future__ import annotations

import re
from typing import Final

from fencepost.client.sasl.exchange import SaslError

#: RFC 6750 §2.1; anything else could end the message and begin another field.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_LARGEST_STATUS: Final = 200


def is_token(text: object) -> bool:
    """Whether this may be sent as a bearer token."""
    return isinstance(text, str) and _TOKEN.fullmatch(text) is not None


class OAuthBearer:
    """One authentication by OAUTHBEARER with a token for which `is_token` holds."""

    def __init__(self, token: str) -> None:
        assert is_token(token), "it is checked where it comes from"
        self.token = token
        self._message = b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
        self.is_complete = False
        self.refusal = ""
        """The status by which the server refused the token, as invalid_token; empty: it did not."""

    def begin(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        if self.is_complete or self.refusal:
            raise SaslError("it said more than the token's end")
        if not challenge:
            self.is_complete = True
            return None
        self.refusal = _status(challenge)
        return b"\x01"


def _status(challenge: bytes) -> str:
    import json  # few need it

    try:
        told = json.loads(challenge)
        status = told["status"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise SaslError("it answered the token with neither nothing nor a status (RFC 7628)") from None
    return str(status)[:_LARGEST_STATUS] or "no status"
