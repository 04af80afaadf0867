"""OAUTHBEARER: a token, which is accepted, or refused in two steps (RFC 7628)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.sasl.servers import Refused, TokenServer

from fencepost.client.sasl.exchange import SaslError
from fencepost.client.sasl.oauthbearer import OAuthBearer, is_token

TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9."


@given(st.from_regex(r"[A-Za-z0-9._~+/-]+=*", fullmatch=True))
def test_a_token_that_is_valid_is_accepted(token: str) -> None:
    exchange, server = OAuthBearer(token), TokenServer(lambda sent: sent == token)
    assert exchange.answer(server.answer(exchange.begin())) is None
    assert exchange.is_complete and server.is_content


def test_one_that_is_not_is_acknowledged_as_refused() -> None:
    exchange, server = OAuthBearer(TOKEN), TokenServer(lambda _: False)
    reply = exchange.answer(server.answer(exchange.begin()))
    assert reply == b"\x01" and exchange.refusal == "invalid_token"
    with pytest.raises(Refused):
        server.answer(reply)
    with pytest.raises(SaslError):
        exchange.answer(b"")
    assert not exchange.is_complete


@pytest.mark.parametrize("challenge", [b"no JSON", b"[]", b"{}", b"\xff", b'"status"', b"1" * 5000, b"[" * 100_000])
def test_an_answer_that_is_neither_yes_nor_no_is_refused(challenge: bytes) -> None:
    exchange = OAuthBearer(TOKEN)
    exchange.begin()
    with pytest.raises(SaslError):
        exchange.answer(challenge)
    assert not exchange.is_complete


def test_a_status_is_cut_where_it_is_long() -> None:
    exchange = OAuthBearer(TOKEN)
    exchange.begin()
    exchange.answer(b'{"status": "%s"}' % (b"x" * 5000))
    assert len(exchange.refusal) == 200


@pytest.mark.parametrize("text", ["", "a b", "a\x01auth=Bearer b", "a\n", "=", "ü", None, b"a", 7])
def test_what_could_say_more_than_a_token_is_none(text: object) -> None:
    assert not is_token(text)
