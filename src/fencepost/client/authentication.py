"""Logs connections in by SASL: SaslHandshake, then SaslAuthenticate until both sides are content (KIP-43, KIP-152)."""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from fencepost.client.errors import AuthenticationError, ConnectionLostError, UnsupportedByBrokerError
from fencepost.client.sasl.exchange import Exchange, SaslError
from fencepost.client.sasl.oauthbearer import OAuthBearer, is_token
from fencepost.client.sasl.plain import Plain
from fencepost.client.sasl.scram import Scram
from fencepost.client.security import OAUTHBEARER, PLAIN, Security
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from fencepost.runtime import Runtime

Ask = Callable[[Any], Awaitable[Any]]
"""A function that sends a request in the newest version that both sides speak, and returns the answer."""

_NONCE_BYTES: Final = 24
#: Part of a session after which the connection logs in again, and so much more by chance: not all of them at once.
_AGAIN_AFTER: Final = 0.85
_AGAIN_WITHIN: Final = 0.1
#: Part of a session after which a request may come too late: the server's session began before ours.
_SAFE_UNTIL: Final = 0.97


class Session(NamedTuple):
    """Until when a connection that has logged in may be used, in seconds of the event loop's clock."""

    again_at: float
    """The time at which it logs in again."""
    safe_until: float
    """The time from which nothing may be sent before it has logged in again."""

    @classmethod
    def of(cls, lifetime_ms: int, now: float, chance: float) -> Session:
        """A session that begins `now`, in seconds, and ends after `lifetime_ms` (0: never).

        `chance`, from 0 to 1, spreads the times at which connections log in again.
        """
        if lifetime_ms <= 0:
            return ENDLESS
        seconds = lifetime_ms / 1000
        return cls(now + seconds * (_AGAIN_AFTER + _AGAIN_WITHIN * chance), now + seconds * _SAFE_UNTIL)


ENDLESS: Final = Session(float("inf"), float("inf"))


class Login:
    """Logs the connections of one client in, with the mechanism and credentials of its settings."""

    def __init__(self, security: Security, runtime: Runtime) -> None:
        self._security = security
        self._runtime = runtime
        self._tokens_awaited = 0

    def held_up(self) -> str:
        """What in this process holds a login up, for the message of a time-out; empty: nothing does."""
        return "sasl_oauth_token_provider has not returned a token yet" if self._tokens_awaited else ""

    async def exchange(self) -> Exchange:
        """A new SASL exchange of the client's mechanism; for OAUTHBEARER the token is fetched.

        Raises AuthenticationError if there is no token, ConnectionLostError if there may be one later.
        """
        security = self._security
        if security.mechanism == PLAIN:
            return Plain(security.username, security.password)
        if security.mechanism == OAUTHBEARER:
            return OAuthBearer(await self._token())
        assert security.mechanism is not None, "only who uses SASL logs in"
        nonce = base64.b64encode(self._runtime.nonces.randbytes(_NONCE_BYTES)).decode()
        return Scram(security.mechanism, security.username, security.password, nonce)

    async def _token(self) -> str:
        provider = self._security.token_provider
        self._tokens_awaited += 1
        try:
            given = provider() if inspect.iscoroutinefunction(provider) else await asyncio.to_thread(provider)
            token = await given if inspect.isawaitable(given) else given
        except asyncio.CancelledError as error:
            asked = asyncio.current_task()
            if asked is None or asked.cancelling():
                raise
            # Something of its own was, as a fetch that several share.
            raise ConnectionLostError("sasl_oauth_token_provider was cancelled") from error
        except OSError as error:  # time-outs, too
            raise ConnectionLostError(f"sasl_oauth_token_provider raised {type(error).__name__}") from error
        except Exception as error:
            raise AuthenticationError(f"sasl_oauth_token_provider raised {type(error).__name__}: mend that") from error
        finally:
            self._tokens_awaited -= 1
        if inspect.iscoroutine(token):
            token.close()
            raise AuthenticationError(
                "sasl_oauth_token_provider gives a coroutine in place of a token: it has to await that itself"
            )
        if not is_token(token):
            raise AuthenticationError(
                f"sasl_oauth_token_provider returned a {type(token).__name__} that is no bearer token: it must be a "
                "str of letters, digits and . _ ~ + / - with = at the end only (RFC 6750)"
            )
        return token

    async def carry_out(self, exchange: Exchange, address: str, ask: Ask) -> Session:
        """Log a connection in; the session says for how long.

        Raises AuthenticationError if one side does not accept the other, ConnectionLostError.
        """
        await self._shake_hands(address, ask)
        message: bytes | None = exchange.begin()
        lifetime_ms = 0
        while message is not None:
            answer: SaslAuthenticateResponse = await ask(SaslAuthenticateRequest(auth_bytes=message))
            if answer.error_code:
                raise self._refused(address, exchange, answer)
            lifetime_ms = answer.session_lifetime_ms
            try:
                message = exchange.answer(answer.auth_bytes)
            except SaslError as error:
                said = self._security.quoted(str(error))
                raise AuthenticationError(
                    f"{address} is not trusted after {self._security.mechanism}: {said}"
                ) from None
        assert exchange.is_complete, "an exchange has nothing more to say only when it is complete"
        return Session.of(lifetime_ms, asyncio.get_running_loop().time(), self._runtime.random.random())

    async def _shake_hands(self, address: str, ask: Ask) -> None:
        mechanism = self._security.mechanism or ""
        try:
            answer: SaslHandshakeResponse = await ask(SaslHandshakeRequest(mechanism=mechanism))
        except UnsupportedByBrokerError:
            raise self._without_sasl(address) from None
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.ILLEGAL_SASL_STATE:
            raise self._without_sasl(address)
        if error is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms) or "none"
            raise AuthenticationError(f"{address} has not enabled sasl_mechanism {mechanism}: it offers {offered}")
        if error:
            raise AuthenticationError(f"{address} answered the SASL handshake with {error.name}: check sasl_mechanism")

    def _without_sasl(self, address: str) -> AuthenticationError:
        without = "SSL" if self._security.uses_tls else "PLAINTEXT"
        return AuthenticationError(
            f"{address} has no SASL at this port: set security_protocol to {without}, or use its port with SASL"
        )

    def _refused(
        self, address: str, exchange: Exchange, answer: SaslAuthenticateResponse
    ) -> AuthenticationError | ConnectionLostError:
        error = ErrorCode(answer.error_code)
        if error.retriable:
            return ConnectionLostError(f"{address} answered the SASL exchange with {error.name}")
        said = answer.error_message or error.name
        if isinstance(exchange, OAuthBearer):
            said = f"{exchange.refusal}: {said}" if exchange.refusal else said
            said = self._security.quoted(said, exchange.token)
            return AuthenticationError(
                f"{address} refused the token of sasl_oauth_token_provider ({said}): it may have expired, or "
                "be meant for another service"
            )
        said = self._security.quoted(said)
        return AuthenticationError(
            f"{address} refused user {self._security.username!r} by {self._security.mechanism} ({said}): check "
            "sasl_plain_username and sasl_plain_password"
        )
