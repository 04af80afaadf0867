"""The settings of security: what makes no sense is refused in a sentence that names it, and no secret is shown."""

from __future__ import annotations

import inspect
import itertools
import pickle
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.client.secured import CERTIFICATES

from fencepost import client
from fencepost.client import Admin, Consumer, Producer, blocking
from fencepost.client.security import MECHANISMS, PROTOCOLS, Security, SecurityOptions
from fencepost.client.tls import Certificates, tls_context
from fencepost.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse

SECRET = "t0p-secret"
CA, OWN = str(CERTIFICATES / "ca.pem"), str(CERTIFICATES / "client.pem")
CERTIFICATE, KEY = str(CERTIFICATES / "client-certificate.pem"), str(CERTIFICATES / "client-key.pem")
USER: dict[str, Any] = {"sasl_plain_username": "alice", "sasl_plain_password": SECRET}
PLAIN: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
TLS: dict[str, Any] = {"security_protocol": "SSL"}


def token() -> str:
    return SECRET


#: settings that make no sense -> the sentence about them
REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"security_protocol": "TLS"},
        "security_protocol='TLS': it must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
    ),
    ({"security_protocol": "ssl"}, "security_protocol='ssl'"),
    ({"security_protocol": SECRET}, "security_protocol must be one of PLAINTEXT, .*; what was given is not repeated"),
    (
        PLAIN | USER | {"sasl_mechanism": SECRET},
        "sasl_mechanism must be one of PLAIN, .*; what was given is not repeated",
    ),
    (PLAIN | USER | {"sasl_mechanism": "plain"}, "sasl_mechanism='plain': it must be one of PLAIN"),
    ({"ssl_cafile": CA}, "ssl_cafile is given, but security_protocol is PLAINTEXT"),
    (
        PLAIN | USER | {"ssl_check_hostname": False},
        "ssl_check_hostname is given, but security_protocol is SASL_PLAINTEXT",
    ),
    ({"sasl_plain_password": SECRET}, "sasl_plain_password is given, but security_protocol is PLAINTEXT"),
    (TLS | {"sasl_mechanism": "PLAIN"}, "sasl_mechanism is given, but security_protocol is SSL"),
    ({"security_protocol": "SASL_SSL"} | USER, "sasl_mechanism=None: it must be one of PLAIN, SCRAM-SHA-256"),
    (PLAIN | USER | {"sasl_mechanism": "GSSAPI"}, "sasl_mechanism='GSSAPI': Kerberos is not there"),
    (PLAIN, "sasl_plain_username is missing: sasl_mechanism PLAIN needs it"),
    (PLAIN | {"sasl_plain_username": "alice"}, "sasl_plain_password is missing: sasl_mechanism PLAIN needs it"),
    (PLAIN | USER | {"sasl_plain_password": ""}, "sasl_plain_password is missing"),
    (PLAIN | USER | {"sasl_plain_password": f"{SECRET}\0"}, "sasl_plain_password must be a str without a NUL"),
    (PLAIN | USER | {"sasl_plain_password": f"{SECRET}\ud800"}, "sasl_plain_password must be a str"),
    (PLAIN | USER | {"sasl_plain_password": SECRET.encode()}, "sasl_plain_password must be a str"),
    (
        PLAIN | USER | {"sasl_oauth_token_provider": token},
        "sasl_oauth_token_provider is given, but sasl_mechanism PLAIN",
    ),
    (PLAIN | {"sasl_mechanism": "OAUTHBEARER"}, "sasl_oauth_token_provider is missing"),
    (PLAIN | {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": SECRET}, "must be a function"),
    (
        PLAIN | USER | {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": token},
        "sasl_plain_username is given, but sasl_mechanism OAUTHBEARER has no use for it",
    ),
    *((TLS | {"ssl_check_hostname": no}, "ssl_check_hostname must be True or False") for no in (None, "", 0, "false")),
    (TLS | {"ssl_context": CA}, "ssl_context must be an ssl.SSLContext"),
    (TLS | {"ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, "ssl_context is one for servers"),
    (TLS | {"ssl_context": ssl.create_default_context(), "ssl_cafile": CA}, "ssl_context and ssl_cafile are given"),
    (TLS | {"ssl_cafile": CA, "ssl_cadata": SECRET}, "ssl_cafile and ssl_cadata are given"),
    (TLS | {"ssl_certfile": OWN, "ssl_certdata": SECRET}, "ssl_certfile and ssl_certdata are given"),
    (TLS | {"ssl_keyfile": KEY}, "ssl_keyfile is given without ssl_certfile"),
    (TLS | {"ssl_password": SECRET}, "ssl_password is given without ssl_certfile"),
    (TLS | {"ssl_cafile": "not/there.pem"}, "ssl_cafile='not/there.pem': it cannot be read: No such file"),
    (TLS | {"ssl_cafile": __file__}, "ssl_cafile=.*: there is no certificate in PEM format"),
    (TLS | {"ssl_cadata": SECRET}, "ssl_cadata: there is no certificate in PEM format"),
    (TLS | {"ssl_cadata": ""}, "ssl_cadata: there is no certificate in PEM format"),
    (TLS | {"ssl_certfile": "not/there.pem"}, "ssl_certfile='not/there.pem': it cannot be read"),
    (TLS | {"ssl_certfile": OWN, "ssl_keyfile": "not/there.pem"}, "ssl_keyfile='not/there.pem': it cannot be read"),
    (TLS | {"ssl_certfile": CERTIFICATE}, "there must be a certificate in ssl_certfile and its key in ssl_certfile"),
    (TLS | {"ssl_certfile": CERTIFICATE, "ssl_keyfile": KEY}, "the key in ssl_keyfile is encrypted: set ssl_password"),
    (
        TLS | {"ssl_certfile": CERTIFICATE, "ssl_keyfile": KEY, "ssl_password": SECRET},
        "the key in ssl_keyfile is encrypted: ssl_password does not open it",
    ),
    (
        TLS | {"ssl_certfile": CERTIFICATE, "ssl_keyfile": str(CERTIFICATES / "stranger.pem")},
        "the key in ssl_keyfile does not belong to the certificate in ssl_certfile",
    ),
    (TLS | {"ssl_certdata": SECRET}, "there must be a certificate in ssl_certdata and its key in ssl_certdata"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED, ids=[sentence[:60] for _, sentence in REFUSED])
def test_what_makes_no_sense_is_refused_by_name(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as refused:
        Producer("127.0.0.1:9", **options)
    shown = str(refused.value)
    assert SECRET not in shown and "\n" not in shown
    assert refused.value.__cause__ is None


def taken_or_refused(options: dict[str, Any]) -> Security | str:
    try:
        return Security(**options)
    except ValueError as refused:
        return str(refused)


def test_every_combination_is_taken_or_refused_in_a_sentence() -> None:
    """Of protocols, mechanisms and one setting of each kind: nothing else is raised."""
    kinds: dict[str, list[Any]] = {
        "security_protocol": [None, *PROTOCOLS],
        "sasl_mechanism": [None, *MECHANISMS],
        "ssl_cafile": [None, CA],
        "ssl_certfile": [None, OWN],
        "sasl_plain_username": [None, "alice"],
        "sasl_plain_password": [None, SECRET],
        "sasl_oauth_token_provider": [None, token],
    }
    taken = 0
    for values in itertools.product(*kinds.values()):
        options = {name: value for name, value in zip(kinds, values, strict=True) if value is not None}
        found = taken_or_refused(options)
        if isinstance(found, str):
            assert any(name in found for name in kinds) and SECRET not in found
        else:
            taken += 1
            assert (found.tls() is not None) == found.uses_tls
            assert SECRET not in repr(found)
    # Plain: said or not.  SSL: 4.  Each mechanism: 1 without TLS, 4 with it.
    assert taken == 2 + 4 + len(MECHANISMS) * (1 + 4)


@pytest.mark.parametrize("name", ["ssl_cafile", "ssl_certfile", "ssl_keyfile"])
def test_a_key_in_the_place_of_its_file_is_not_shown(name: str) -> None:
    """As of a variable of the environment that has the text of a key, and was taken for the name of its file."""
    key = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"
    for given in (key, key.strip().replace("\n", " "), Path(key), key.encode()):
        with pytest.raises((ValueError, TypeError), match=f"^{name} must be the path of a file, and no") as refused:
            Security(**TLS | {"ssl_certfile": OWN, name: given})
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", ["ssl_cafile", "ssl_certfile", "ssl_keyfile"])
@pytest.mark.parametrize("path", ["ca\0.pem", "ca\ud800.pem"], ids=ascii)
def test_what_can_be_no_path_is_refused_by_its_name(name: str, path: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be the path of a file, without a NUL"):
        Security(**TLS | {"ssl_certfile": OWN, name: path})


def test_certificates_may_have_text_between_them_that_is_not_ascii() -> None:
    """As bundles have the names of authorities."""
    context = Security(security_protocol="SSL", ssl_cadata=f"# Autorit\u00e9\n{Path(CA).read_text()}").tls()
    assert context is not None and len(context.get_ca_certs()) == 1
    with pytest.raises(ValueError, match=r"^ssl_cadata: there is no certificate in PEM format"):
        Security(security_protocol="SSL", ssl_cadata="\u00e9\ud800")


def test_certificates_are_verified_unless_said_otherwise() -> None:
    context = Security(security_protocol="SSL").tls()
    assert context is not None
    assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    unchecked = Security(security_protocol="SSL", ssl_check_hostname=False).tls()
    assert unchecked is not None and not unchecked.check_hostname and unchecked.verify_mode is ssl.CERT_REQUIRED


CLIENTS = [
    lambda **options: Producer("127.0.0.1:9", **options),
    lambda **options: Consumer("t", bootstrap_servers="127.0.0.1:9", **options),
    lambda **options: Admin("127.0.0.1:9", **options),
    lambda **options: blocking.Producer("127.0.0.1:9", **options),
    lambda **options: blocking.Consumer("t", bootstrap_servers="127.0.0.1:9", **options),
    lambda **options: blocking.Admin("127.0.0.1:9", **options),
]


@pytest.mark.parametrize("make", CLIENTS)
def test_a_setting_that_there_is_not_is_a_type_error(make: Any) -> None:
    with pytest.raises(TypeError, match=r"there is no setting 'sasl_username'; did you mean sasl_") as refused:
        make(sasl_username=SECRET)
    assert SECRET not in str(refused.value)
    with pytest.raises(TypeError, match=r"no setting 'request_timout_ms'; did you mean request_timeout_ms"):
        make(request_timout_ms=1)
    with pytest.raises(TypeError, match=r"no setting 'é'; there are .*bootstrap_servers, .*client_id, .*ssl_cafile"):
        make(é=1)
    with pytest.raises(ValueError, match="sasl_plain_username is missing"):
        make(**PLAIN)


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_the_blocking_client_has_the_same_parameters(name: str) -> None:
    assert inspect.signature(getattr(blocking, name)) == inspect.signature(getattr(client, name))


def test_nothing_shows_a_secret() -> None:
    security = Security(**PLAIN, **USER)
    shown = [
        repr(security),
        repr(Certificates(cadata=SECRET, certdata=SECRET, password=SECRET)),
        repr(SaslAuthenticateRequest(auth_bytes=SECRET.encode())),
        repr(SaslAuthenticateResponse(error_code=0, auth_bytes=SECRET.encode())),
    ]
    assert not any(SECRET in text for text in shown)
    assert "alice" in shown[0]


def test_what_somebody_else_says_is_told_on_one_line_without_our_secrets() -> None:
    security = Security(**PLAIN, **USER)
    assert security.quoted(f"alice may not\n come in with {SECRET}\tand\nmy-token", "my-token") == (
        "alice may not come in with *** and ***"
    )
    assert len(security.quoted("x" * 10_000)) == 300


def test_every_setting_says_what_it_is() -> None:
    lines = inspect.getsource(SecurityOptions).splitlines()
    for name in SecurityOptions.__annotations__:
        at = next(n for n, line in enumerate(lines) if line.startswith(f"    {name}:"))
        assert lines[at + 1].startswith('    """'), name


def test_what_is_older_than_tls_1_2_is_not_spoken() -> None:
    assert tls_context(Certificates(), check_hostname=True).minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_file_of_certificates_that_sign_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no certificate of an authority"):
        Security(security_protocol="SSL", ssl_cafile=CERTIFICATE)


def test_what_was_used_already_can_be_pickled() -> None:
    security = Security(security_protocol="SSL", ssl_cafile=CA)
    assert security.tls() is not None
    again = pickle.loads(pickle.dumps(security))
    assert again.tls() is not None
