"""SCRAM against the RFCs' examples, against a server made from the RFCs, and against everything that is not one."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.sasl.servers import PASSWORD, USERNAME, Refused, ScramServer

from fencepost.client.sasl import scram
from fencepost.client.sasl.exchange import SaslError
from fencepost.client.sasl.scram import Event, Scram, State, after

NONCE = "rOprNGfwEbeRWgbNEkqO"
HASHES = pytest.mark.parametrize(("mechanism", "hash_name"), scram.HASHES.items())


def test_the_example_of_rfc_7677() -> None:
    exchange = Scram("SCRAM-SHA-256", "user", "pencil", NONCE)
    assert exchange.begin() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = exchange.answer(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert exchange.is_complete


def test_the_example_of_rfc_5802() -> None:
    """By SHA-1, which the client does not offer; the arithmetic is the same."""
    first = "n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    told = "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    final = "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j"
    derived = scram.keys("sha1", "pencil", base64.b64decode("QSXCR+Q6sek8bf92"), 4096)
    assert scram.proof(derived, f"{first},{told},{final}", "sha1") == "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    assert scram.server_signature(derived, f"{first},{told},{final}", "sha1") == "rmF9pqV8S7suAoZWja4dJRkFsKQ="


def carried_out(exchange: Scram, server: ScramServer) -> None:
    message: bytes | None = exchange.begin()
    while message is not None:
        message = exchange.answer(server.answer(message))


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


@HASHES
@given(username=TEXTS, password=TEXTS, salt=st.binary(min_size=1, max_size=40))
def test_who_knows_the_password_is_let_in(
    mechanism: str, hash_name: str, username: str, password: str, salt: bytes
) -> None:
    exchange = Scram(mechanism, username, password, NONCE)
    server = ScramServer(hash_name, {username: password}, salt=salt)
    carried_out(exchange, server)
    assert exchange.is_complete and server.is_content


@HASHES
@pytest.mark.parametrize(("username", "password"), [(USERNAME, "wrong"), ("bob", PASSWORD)])
def test_who_does_not_know_it_is_not(mechanism: str, hash_name: str, username: str, password: str) -> None:
    exchange = Scram(mechanism, username, password, NONCE)
    with pytest.raises(Refused):
        carried_out(exchange, ScramServer(hash_name, {USERNAME: PASSWORD}))
    assert not exchange.is_complete


class Tampering:
    """Changes one message on its way: takes a byte out, puts one in, or puts another in its place."""

    def __init__(self, which: int, place: float, change: str, byte: int) -> None:
        self._which, self._place, self._change, self._byte = which, place, change, bytes([byte])
        self.has_changed = False

    def __call__(self, number: int, message: bytes) -> bytes:
        if number != self._which:
            return message
        at = int(self._place * (len(message) + (self._change == "put in")))
        until = at + (self._change != "put in")
        changed = message[:at] + (b"" if self._change == "take out" else self._byte) + message[until:]
        self.has_changed = changed != message
        return changed


@HASHES
@given(
    tamper=st.builds(
        Tampering,
        st.integers(0, 3),
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(["put in", "take out", "put another"]),
        st.integers(0, 255),
    )
)
def test_both_sides_are_content_only_with_what_the_other_one_said(
    mechanism: str, hash_name: str, tamper: Tampering
) -> None:
    """Whatever is changed on the way: what the client says, or what it is told."""
    exchange, server = Scram(mechanism, USERNAME, PASSWORD, NONCE), ScramServer(hash_name, {USERNAME: PASSWORD})
    number, message = 0, exchange.begin()
    try:
        while True:
            told = server.answer(tamper(number, message))
            reply = exchange.answer(tamper(number + 1, told))
            if reply is None:
                break
            number, message = number + 2, reply
    except (SaslError, Refused, AssertionError, ValueError):
        assert not exchange.is_complete
        assert tamper.has_changed
        return
    assert not tamper.has_changed


@HASHES
def test_a_server_that_does_not_know_the_password_is_refused(mechanism: str, hash_name: str) -> None:
    """It says yes to everybody."""

    class Impostor(ScramServer):
        def _to_final(self, message: str) -> bytes:  # noqa: ARG002
            size = {"sha256": 32, "sha512": 64}[hash_name]
            return b"v=" + base64.b64encode(bytes(size))

    exchange = Scram(mechanism, USERNAME, PASSWORD, NONCE)
    with pytest.raises(SaslError, match="does not know the password itself"):
        carried_out(exchange, Impostor(hash_name, {}))
    assert not exchange.is_complete


SALT = "s=c2FsdA=="
WRONG_FIRSTS = {
    "": "none of SCRAM's",
    "e=other-error": "none of SCRAM's",
    f"m=ext,r={NONCE}9,{SALT},i=4096": "none of SCRAM's",
    f"{SALT},r={NONCE}9,i=4096": "none of SCRAM's",
    f"r={NONCE},{SALT},i=4096": "another nonce",
    f"r=9{NONCE},{SALT},i=4096": "another nonce",
    f"r={NONCE[:-1]}x9,{SALT},i=4096": "another nonce",
    f"r=,{SALT},i=4096": "another nonce",
    f"r={NONCE}9,s=,i=4096": "salt",
    f"r={NONCE}9,s=c2F%dA==,i=4096": "salt",
    f"r={NONCE}9,{SALT},i=4095": "fewer than 4096",
    f"r={NONCE}9,{SALT},i=1": "fewer than 4096",
    f"r={NONCE}9,{SALT},i=100001": "more than 100000",
    f"r={NONCE}9,{SALT},i=999999999": "more than 100000",
    f"r={NONCE}9,{SALT},i={'9' * 400}": "no number",
    f"r={NONCE}9,{SALT},i=-4096": "no number",
    f"r={NONCE}9,{SALT},i=٤٠٩٦": "no number",
    f"r={NONCE}9,{SALT},i=": "no number",
}


@pytest.mark.parametrize(("message", "why"), WRONG_FIRSTS.items())
def test_a_first_message_that_makes_no_sense_is_refused_for_good(message: str, why: str) -> None:
    exchange = Scram("SCRAM-SHA-256", USERNAME, PASSWORD, NONCE)
    exchange.begin()
    with pytest.raises(SaslError, match=why) as refused:
        exchange.answer(message.encode())
    assert PASSWORD not in str(refused.value)
    with pytest.raises(SaslError, match="at its end"):
        exchange.answer(f"r={NONCE}9,{SALT},i=4096".encode())


@pytest.mark.parametrize("final", [b"", b"v=", b"e=invalid-proof", b"\xff", b"v=AAAA,x=y"])
def test_a_last_message_without_the_signature_is_refused_for_good(final: bytes) -> None:
    exchange = Scram("SCRAM-SHA-256", USERNAME, PASSWORD, NONCE)
    exchange.begin()
    exchange.answer(f"r={NONCE}9,{SALT},i=4096".encode())
    for _ in range(2):
        with pytest.raises(SaslError):
            exchange.answer(final)
    assert not exchange.is_complete


def test_only_the_ways_of_the_table_lead_on() -> None:
    ways = {(state, event): after(state, event) for state in State for event in Event}
    assert {way: to for way, to in ways.items() if to is not State.REFUSED} == {
        (State.NOTHING, Event.BEGIN): State.CLIENT_FIRST,
        (State.CLIENT_FIRST, Event.SERVER_FIRST): State.CLIENT_FINAL,
        (State.CLIENT_FINAL, Event.SERVER_FINAL): State.VERIFIED,
    }


def test_an_exchange_is_begun_once() -> None:
    exchange = Scram("SCRAM-SHA-256", USERNAME, PASSWORD, NONCE)
    exchange.begin()
    with pytest.raises(AssertionError):
        exchange.begin()


def test_a_name_cannot_say_more_than_a_name() -> None:
    assert scram.client_first_bare("a,r=mine=", "n") == "n=a=2Cr=3Dmine=3D,r=n"
