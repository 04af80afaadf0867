"""SaslAuthenticate (36): one message of a SASL exchange, and the server's answer to it.

v1    how long the session lasts, after which the connection has to authenticate again (KIP-368)
v2    flexible
"""

from fencepost.protocol.message import request, response, secret, since
from fencepost.protocol.types import binary, error_text, int16, int64


@request(api=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """Kafka's SaslAuthenticateRequest."""

    auth_bytes: binary = secret()


@response(api=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """Kafka's SaslAuthenticateResponse."""

    error_code: int16
    error_message: error_text | None = None
    auth_bytes: binary = secret()
    session_lifetime_ms: int64 = since(1, default=0)
