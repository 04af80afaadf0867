"""The server's side of SASL, as a model to try the client against: written from the RFCs, not from the client."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Protocol

USERNAME, PASSWORD = "alice", "alice's secret"


class Refused(Exception):
    """The server does not accept the client."""


class Server(Protocol):
    """One authentication."""

    is_content: bool
    """The client is who it says."""

    def answer(self, message: bytes) -> bytes:
        """Raises Refused."""
        ...


class PlainServer:
    def __init__(self, passwords: dict[str, str]) -> None:
        self._passwords = passwords
        self.is_content = False

    def answer(self, message: bytes) -> bytes:
        authorization, username, password = message.decode().split("\0")
        if authorization not in ("", username) or self._passwords.get(username) != password:
            raise Refused("Authentication failed: Invalid username or password")
        self.is_content = True
        return b""


class ScramServer:
    """RFC 5802 §3: the password itself is forgotten, what is kept of it is enough."""

    def __init__(
        self,
        hash_name: str,
        passwords: dict[str, str],
        *,
        salt: bytes = b"salt",
        iterations: int = 4096,
        more: str = "9",
    ) -> None:
        self._hash, self._passwords = hash_name, passwords
        self._salt, self._iterations, self._more = salt, iterations, more
        self._bare = self._first = self._nonce = ""
        self.is_content = False

    def answer(self, message: bytes) -> bytes:
        return self._to_first(message.decode()) if not self._first else self._to_final(message.decode())

    def _to_first(self, message: str) -> bytes:
        gs2, authorization, self._bare = message.split(",", 2)
        assert (gs2, authorization) == ("n", ""), "no channel binding, nobody to act for"
        name, nonce = self._bare.split(",")
        assert name.startswith("n=") and nonce.startswith("r=")
        self._username = name[2:].replace("=2C", ",").replace("=3D", "=")
        self._nonce = nonce[2:] + self._more
        salt = base64.b64encode(self._salt).decode()
        self._first = f"r={self._nonce},s={salt},i={self._iterations}"
        return self._first.encode()

    def _to_final(self, message: str) -> bytes:
        without_proof, _, proof = message.rpartition(",p=")
        if without_proof != f"c={base64.b64encode(b'n,,').decode()},r={self._nonce}":
            raise Refused("not the same exchange")
        if self._username not in self._passwords:
            raise Refused("no such user")
        password = self._passwords[self._username].encode()
        salted = hashlib.pbkdf2_hmac(self._hash, password, self._salt, self._iterations)
        stored = hashlib.new(self._hash, hmac.new(salted, b"Client Key", self._hash).digest()).digest()
        said = f"{self._bare},{self._first},{without_proof}".encode()
        signature = hmac.new(stored, said, self._hash).digest()
        shown = base64.b64decode(proof, validate=True)
        if base64.b64encode(shown).decode() != proof:
            raise Refused("no proof")
        client_key = bytes(a ^ b for a, b in zip(shown, signature, strict=True))
        if hashlib.new(self._hash, client_key).digest() != stored:
            raise Refused("Authentication failed during authentication due to invalid credentials")
        self.is_content = True
        server_key = hmac.new(salted, b"Server Key", self._hash).digest()
        return b"v=" + base64.b64encode(hmac.new(server_key, said, self._hash).digest())


class TokenServer:
    """RFC 7628 §3."""

    def __init__(self, is_valid: Callable[[str], bool]) -> None:
        self._is_valid = is_valid
        self._refused = False
        self.is_content = False

    def answer(self, message: bytes) -> bytes:
        if self._refused:
            assert message == b"\x01", "the client acknowledges that it was refused"
            raise Refused("Authentication failed: the token is not valid")
        header, pair, *rest = message.split(b"\x01")
        assert header == b"n,," and pair.startswith(b"auth=Bearer ") and rest == [b"", b""]
        if not self._is_valid(pair.removeprefix(b"auth=Bearer ").decode()):
            self._refused = True
            return json.dumps({"status": "invalid_token"}).encode()
        self.is_content = True
        return b""
