"""What each error of a login means: somebody who may pass is tried again, everybody else is told at once."""

from __future__ import annotations

import random
import ssl
from typing import Any, Final, cast

import pytest
from tests.client.secured import CERTIFICATES

from fencepost.client.authentication import Login
from fencepost.client.errors import AuthenticationError, ConnectionLostError
from fencepost.client.security import Security
from fencepost.client.tls import Certificates, tls_context
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from fencepost.runtime import Runtime
from fencepost.simulation.loop import VirtualClock, VirtualLoop, run

#: A few errors of each kind.
ERRORS: Final = [ErrorCode(number) for number in range(1, 90)]


def logged_in(handshake: ErrorCode, authenticate: ErrorCode) -> type[Exception] | None:
    """What is raised where the server answers so; None: it is a login."""

    async def ask(message: Any) -> Any:
        if isinstance(message, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=handshake, mechanisms=["PLAIN"])
        assert isinstance(message, SaslAuthenticateRequest)
        assert handshake is ErrorCode.NONE, "nothing is said to who has refused the handshake"
        return SaslAuthenticateResponse(error_code=authenticate, error_message=None, auth_bytes=b"")

    async def main(loop: VirtualLoop) -> type[Exception] | None:
        security = Security(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="alice",
            sasl_plain_password="secret",
        )
        login = Login(security, Runtime(VirtualClock(loop), cast(Any, None), random.Random(1)))
        try:
            await login.carry_out(await login.exchange(), "127.0.0.1:9", ask)
        except (AuthenticationError, ConnectionLostError) as error:
            return type(error)
        return None

    return run(main)


def test_a_login_without_an_error_is_one() -> None:
    assert logged_in(ErrorCode.NONE, ErrorCode.NONE) is None


@pytest.mark.parametrize("error", ERRORS)
def test_any_error_of_the_handshake_ends_the_login(error: ErrorCode) -> None:
    assert logged_in(error, ErrorCode.NONE) is AuthenticationError


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_that_may_pass_is_no_refusal(error: ErrorCode) -> None:
    assert logged_in(ErrorCode.NONE, error) is (ConnectionLostError if error.retriable else AuthenticationError)


def test_who_names_an_authority_trusts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: asked.append("the usual ones"))
    named = tls_context(Certificates(cafile=CERTIFICATES / "ca.pem"), check_hostname=True)
    assert (asked, len(named.get_ca_certs())) == ([], 1)
    assert named.minimum_version == ssl.TLSVersion.TLSv1_2
    tls_context(Certificates(), check_hostname=True)
    assert asked == ["the usual ones"]
