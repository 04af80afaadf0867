"""SaslHandshake (17): choose a SASL mechanism."""

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
