"""PLAIN: one message, and yes or no."""

from __future__ import annotations

import pytest
from tests.client.sasl.servers import PASSWORD, USERNAME, PlainServer, Refused

from fencepost.client.sasl.exchange import SaslError
from fencepost.client.sasl.plain import Plain


def test_who_knows_the_password_is_let_in() -> None:
    exchange, server = Plain(USERNAME, PASSWORD), PlainServer({USERNAME: PASSWORD})
    assert exchange.answer(server.answer(exchange.begin())) is None
    assert exchange.is_complete and server.is_content


@pytest.mark.parametrize(("username", "password"), [(USERNAME, "wrong"), ("bob", PASSWORD)])
def test_who_does_not_know_it_is_not(username: str, password: str) -> None:
    with pytest.raises(Refused):
        PlainServer({USERNAME: PASSWORD}).answer(Plain(username, password).begin())


def test_more_than_yes_is_refused() -> None:
    exchange = Plain(USERNAME, PASSWORD)
    exchange.begin()
    with pytest.raises(SaslError):
        exchange.answer(b"more")
    assert not exchange.is_complete
    assert exchange.answer(b"") is None
    with pytest.raises(SaslError):
        exchange.answer(b"")
