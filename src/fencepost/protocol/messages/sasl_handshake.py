"""SaslHandshake (17): the mechanism by which a connection is going to authenticate.

v0    what follows are bare tokens, without a Kafka header
v1    what follows are SaslAuthenticate requests (KIP-152)
"""

from fencepost.protocol.message import request, response
from fencepost.protocol.types import int16, string


@request(api=17, versions="0-1")
class SaslHandshakeRequest:
    """Kafka's SaslHandshakeRequest."""

    mechanism: string


@response(api=17, versions="0-1")
class SaslHandshakeResponse:
    """Kafka's SaslHandshakeResponse."""

    error_code: int16
    mechanisms: list[string]
