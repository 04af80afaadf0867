"""SaslAuthenticate (36): one step of a SASL exchange.

v1    session lifetime
v2    flexible
"""

from fencepost.protocol.message import request, response, since
from fencepost.protocol.types import binary, int16, int64, string


@request(api=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """Kafka's SaslAuthenticateRequest."""

    auth_bytes: binary


@response(api=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """Kafka's SaslAuthenticateResponse."""

    error_code: int16
    error_message: string | None = None
    auth_bytes: binary
    session_lifetime_ms: int64 = since(1, default=0)
