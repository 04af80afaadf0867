"""TLS: a context from certificates in PEM format, and what a failed handshake means, as a person should read it."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from tempfile import NamedTemporaryFile
from typing import Final

from fencepost.client.errors import AuthenticationError, ConnectionLostError

_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_HOSTNAME_MISMATCH: Final = 62
_IP_ADDRESS_MISMATCH: Final = 64
#: part of OpenSSL's name of an alert -> what the other side minds
_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": "it wants a certificate of this client: set ssl_certfile and ssl_keyfile",
    "UNKNOWN_CA": "it does not know who signed the certificate in ssl_certfile",
    "BAD_CERTIFICATE": "it does not take the certificate in ssl_certfile, or wants one and got none",
    "CERTIFICATE_UNKNOWN": "it does not take the certificate in ssl_certfile, or wants one and got none",
    "CERTIFICATE_EXPIRED": "the certificate in ssl_certfile is no longer valid: have a new one made",
    "PROTOCOL_VERSION": "it has no version of TLS in common with this client",
    "HANDSHAKE_FAILURE": "it has no cipher in common with this client, or wants a certificate (ssl_certfile)",
}
#: What OpenSSL says of bytes that are no TLS.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "BAD_RECORD_TYPE")

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificates to trust, and the client's own with its key: files, or PEM text."""

    cafile: Path | None = None
    cadata: str | None = field(default=None, repr=False)
    certfile: Path | None = None
    keyfile: Path | None = None
    certdata: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


def tls_context(certificates: Certificates, check_hostname: bool) -> ssl.SSLContext:
    """A context that verifies the broker's certificate.  Raises ValueError for files that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = check_hostname
    _trust(context, certificates)
    if certificates.certdata is not None:
        # Python's ssl reads keys from files only; this one is for its owner alone, and gone at once.
        with NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(certificates.certdata)
            file.flush()
            _load_key(context, file.name, None, certificates.password, "ssl_certdata")
    elif certificates.certfile is not None:
        _load_key(context, certificates.certfile, certificates.keyfile, certificates.password, "ssl_certfile")
    return context


def _trust(context: ssl.SSLContext, certificates: Certificates) -> None:
    if certificates.cafile is None and certificates.cadata is None:
        context.load_default_certs()
        return
    named = "ssl_cadata" if certificates.cafile is None else f"ssl_cafile={os.fspath(certificates.cafile)!r}"
    # Between certificates there may be text, as names of authorities: Python takes ASCII only.
    data = None if certificates.cadata is None else "".join(filter(str.isascii, certificates.cadata))
    try:
        context.load_verify_locations(cafile=certificates.cafile, cadata=data)
    except (ssl.SSLError, ValueError):
        raise ValueError(f"{named}: there is no certificate in PEM format") from None
    except OSError as error:
        raise ValueError(f"{named}: it cannot be read: {error.strerror}") from None
    if not context.get_ca_certs():
        raise ValueError(f"{named}: there is no certificate of an authority")


def _load_key(
    context: ssl.SSLContext, certfile: Path, keyfile: Path | None, password: str | None, setting: str
) -> None:
    asked = False

    def answer() -> str:
        # Without this OpenSSL would ask at the terminal.
        nonlocal asked
        asked = True
        return password or ""

    files = [] if setting == "ssl_certdata" else [file for file in (certfile, keyfile) if file is not None]
    for name, file in zip(("ssl_certfile", "ssl_keyfile"), files, strict=False):
        if not os.access(file, os.R_OK):
            raise ValueError(f"{name}={os.fspath(file)!r}: it cannot be read")
    try:
        context.load_cert_chain(certfile, keyfile, answer)
    except (ssl.SSLError, OSError, ValueError) as error:
        key = setting if keyfile is None else "ssl_keyfile"
        if asked:
            way_on = "ssl_password does not open it" if password else "set ssl_password"
            what = f"the key in {key} is encrypted: {way_on}"
        elif "KEY_VALUES_MISMATCH" in str(error):
            what = f"the key in {key} does not belong to the certificate in {setting}"
        else:
            what = f"there must be a certificate in {setting} and its key in {key}, both in PEM format"
        raise ValueError(what) from None


def refusal(where: str, error: ssl.SSLError) -> AuthenticationError | ConnectionLostError:
    """The error of a TLS handshake that failed, or of a connection that was ended right after it.

    `where`: the broker's address.  What may succeed later is a ConnectionLostError.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationError(_distrust(where, error))
    reason = f"{error.reason or ''} {error}".upper()
    alert = next((meant for name, meant in _ALERTS.items() if name in reason and "ALERT" in reason), None)
    if alert is not None:
        return AuthenticationError(f"{where} ended the TLS handshake: {alert}")
    if any(name in reason for name in _NO_TLS):
        return AuthenticationError(
            f"{where} does not speak TLS: set security_protocol to PLAINTEXT or SASL_PLAINTEXT, or use its TLS port"
        )
    return cut_off(where)


def cut_off(where: str) -> ConnectionLostError:
    """The error where the other side ended the connection in the TLS handshake, or right after it."""
    return ConnectionLostError(
        f"{where} closed the connection in the TLS handshake: if it does so always, it is a port without TLS "
        "(set security_protocol), or takes no certificate of ours (ssl_certfile)"
    )


def _distrust(where: str, error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in (_HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH):
        return (
            f"the certificate of {where} is for another name: use one in bootstrap_servers and advertised.listeners "
            "that it has, or set ssl_check_hostname=False if you accept any"
        )
    if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
        return (
            f"the certificate of {where}, or one that it is signed with, is not valid at this time "
            f"({error.verify_message}): have the broker given a new one, or see to the clock of this machine"
        )
    return (
        f"the certificate of {where} is not trusted ({error.verify_message}): ssl_cafile must have the certificate of "
        "who signed it"
    )
