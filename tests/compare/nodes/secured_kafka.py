"""An Apache Kafka that wants TLS, client certificates or SASL, by a listener of each kind."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.apache_kafka import ApacheKafka, Secured, restartable_apache_kafka
from tests.client.sasl.servers import PASSWORD, USERNAME
from tests.client.secured import CERTIFICATES
from tests.compare.nodes.two_nodes import skipped_without_kafka

from fencepost.client import SecurityOptions

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SESSION_MS = 60_000
#: TLS with client certificates; SASL without and with TLS; SASL with one mechanism only.
LISTENERS = {
    "SSL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "ONLYPLAIN": "SASL_PLAINTEXT",
}
_MODULES = "org.apache.kafka.common.security"
_JAAS = {
    "plain": f'{_MODULES}.plain.PlainLoginModule required user_{USERNAME}="{PASSWORD}";',
    "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
    "oauthbearer": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=x;",
}


def _settings() -> dict[str, str]:
    found = {
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(CERTIFICATES / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(CERTIFICATES / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.onlyplain.sasl.enabled.mechanisms": "PLAIN",
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    for listener in ("sasl_ssl", "sasl_plaintext"):
        for mechanism, module in _JAAS.items():
            found[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = module
    found["listener.name.onlyplain.plain.sasl.jaas.config"] = _JAAS["plain"]
    return found


@contextmanager
def secured_kafka() -> Iterator[ApacheKafka]:
    """Running, with `alice`; skips the test if Apache Kafka cannot be had here."""
    secured = Secured(LISTENERS, _settings(), {USERNAME: PASSWORD})
    with skipped_without_kafka(), restartable_apache_kafka(secured=secured) as kafka:
        yield kafka


def token(lifetime_s: float = 3600) -> str:
    """One that is signed by nobody, which a listener without keys takes."""
    now = time.time()
    claims = {"sub": USERNAME, "iat": int(now) - 3600, "exp": now + lifetime_s}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(claims: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


def settings(protocol: str, mechanism: str = "PLAIN") -> SecurityOptions:
    """With which a client is let in."""
    found: SecurityOptions = {"security_protocol": protocol}
    if protocol in ("SSL", "SASL_SSL"):
        found["ssl_cafile"] = CERTIFICATES / "ca.pem"
    if protocol == "SSL":
        found["ssl_certfile"] = CERTIFICATES / "client.pem"
    else:
        found["sasl_mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            found["sasl_oauth_token_provider"] = token
        else:
            found["sasl_plain_username"], found["sasl_plain_password"] = USERNAME, PASSWORD
    return found
