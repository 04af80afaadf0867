"""SCRAM (RFC 5802, RFC 7677): both sides prove that they know the password, and neither says it.

    client                                  server
    n,,n=<user>,r=<nonce>
                                            r=<nonce><more>,s=<salt>,i=<iterations>
    c=biws,r=<nonce><more>,p=<proof>
                                            v=<signature>           or e=<error>

The client refuses an answer to another nonce, fewer iterations than RFC 7677 wants (they keep the password from being
guessed from what was read along), more than it has time for, and a last message without the signature: only who knows
the password, or its hash, can make that.

Channel binding (SCRAM-...-PLUS) is not offered: Apache Kafka has none.  Names and passwords are taken as they are, not
prepared by SASLprep, since Apache Kafka stores what it was given: prepared here, a password that SASLprep changes would
never fit.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from fencepost.client.sasl.exchange import SaslError

#: mechanism -> its hash
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS: Final = 4096
"""RFC 7677 §4; Apache Kafka's least, too."""
MOST_ITERATIONS: Final = 100_000
"""About 0.1 s of hashing, in which the event loop does nothing else.  Apache Kafka's most is 16384."""
#: No channel binding, and no user to act for.
_GS2_HEADER: Final = "n,,"


class State(Enum):
    """How far an exchange has come."""

    NOTHING = auto()
    CLIENT_FIRST = auto()
    CLIENT_FINAL = auto()
    VERIFIED = auto()
    """The server has proved that it knows the password."""
    REFUSED = auto()


class Event(Enum):
    """The events of an exchange."""

    BEGIN = auto()
    SERVER_FIRST = auto()
    """A first message of the server that holds."""
    SERVER_FINAL = auto()
    """The signature that was expected."""


#: (state, event) -> the next state; whatever is not here is a refusal for good.
TRANSITIONS: Final = {
    (State.NOTHING, Event.BEGIN): State.CLIENT_FIRST,
    (State.CLIENT_FIRST, Event.SERVER_FIRST): State.CLIENT_FINAL,
    (State.CLIENT_FINAL, Event.SERVER_FINAL): State.VERIFIED,
}


def after(state: State, event: Event) -> State:
    """The state of an exchange after an event; REFUSED after one that may not follow."""
    return TRANSITIONS.get((state, event), State.REFUSED)


class ServerFirst(NamedTuple):
    """The server's first message: what the password is to be hashed with."""

    nonce: str
    salt: bytes
    iterations: int


def client_first_bare(username: str, nonce: str) -> str:
    """The client's first message: the user's name, in which commas and equals signs are escaped, and a nonce."""
    return f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"


def read_server_first(text: str, nonce: str) -> ServerFirst:
    """The server's first message, read.  Raises SaslError if it is damaged, or does not answer ours with this nonce."""
    fields = text.split(",")
    if [field[:2] for field in fields[:3]] != ["r=", "s=", "i="]:
        raise SaslError("its first message is none of SCRAM's")
    theirs, salt, iterations = (field[2:] for field in fields[:3])
    if not theirs.startswith(nonce) or len(theirs) == len(nonce):
        raise SaslError("it answered another nonce than ours: somebody may be repeating an old exchange")
    if not iterations.isascii() or not iterations.isdigit() or len(iterations) > 9:
        raise SaslError("its number of iterations is no number")
    count = int(iterations)
    if count < LEAST_ITERATIONS:
        raise SaslError(f"it wants {count} iterations: fewer than {LEAST_ITERATIONS} do not protect the password")
    if count > MOST_ITERATIONS:
        raise SaslError(f"it wants {count} iterations: more than {MOST_ITERATIONS} would stop this process")
    return ServerFirst(theirs, _bytes_of(salt), count)


def _bytes_of(text: str) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not found:
        raise SaslError("its salt cannot be read")
    return found


class Keys(NamedTuple):
    """The keys that both sides derive from the password (RFC 5802 §3)."""

    client_key: bytes
    stored_key: bytes
    server_key: bytes


def keys(hash_name: str, password: str, salt: bytes, iterations: int) -> Keys:
    """The keys of a password with this salt; the time that it takes grows with `iterations`."""
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    return Keys(client_key, hashlib.new(hash_name, client_key).digest(), hmac.digest(salted, b"Server Key", hash_name))


def proof(of: Keys, said: str, hash_name: str) -> str:
    """The client's proof, in base64: the client key XOR a signature that takes the stored key to make."""
    signature = hmac.digest(of.stored_key, said.encode(), hash_name)
    return _text_of(bytes(a ^ b for a, b in zip(of.client_key, signature, strict=True)))


def server_signature(of: Keys, said: str, hash_name: str) -> str:
    """The server's proof, in base64."""
    return _text_of(hmac.digest(of.server_key, said.encode(), hash_name))


def _text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Scram:
    """One authentication by SCRAM.  `nonce`: printable, without a comma, and never used before."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        self._first = client_first_bare(username, nonce)
        self._expected = ""
        """The server's last message, as it must be."""
        self.state = State.NOTHING

    @property
    def is_complete(self) -> bool:
        return self.state is State.VERIFIED

    def begin(self) -> bytes:
        self.state = after(self.state, Event.BEGIN)
        assert self.state is State.CLIENT_FIRST, "an exchange is begun once"
        return f"{_GS2_HEADER}{self._first}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        read: dict[State, Callable[[str], tuple[Event, bytes | None]]] = {
            State.CLIENT_FIRST: self._server_first,
            State.CLIENT_FINAL: self._server_final,
        }
        state, self.state = self.state, State.REFUSED  # also if what comes now cannot be read
        if state not in read:
            raise SaslError("it goes on where SCRAM is at its end")
        try:
            text = challenge.decode()
        except UnicodeDecodeError:
            raise SaslError("it sent what is no text") from None
        event, reply = read[state](text)
        self.state = after(state, event)
        return reply

    def _server_first(self, text: str) -> tuple[Event, bytes | None]:
        told = read_server_first(text, self._nonce)
        derived = keys(self._hash, self._password, told.salt, told.iterations)
        final = f"c={_text_of(_GS2_HEADER.encode())},r={told.nonce}"
        said = f"{self._first},{text},{final}"
        self._expected = f"v={server_signature(derived, said, self._hash)}"
        return Event.SERVER_FIRST, f"{final},p={proof(derived, said, self._hash)}".encode()

    def _server_final(self, text: str) -> tuple[Event, bytes | None]:
        if text.startswith("e="):
            raise SaslError(f"it refused the proof of the password ({text[2:100]})")
        if not hmac.compare_digest(text.encode(), self._expected.encode()):
            raise SaslError("it does not know the password itself: it is not the server that it says it is")
        return Event.SERVER_FINAL, None
