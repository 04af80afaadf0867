"""How a client shows who it is, and whom it talks to: the settings of TLS and SASL, with Apache Kafka's names for them.

Producer("broker:9093", security_protocol="SASL_SSL", ssl_cafile="ca.pem",
         sasl_mechanism="SCRAM-SHA-512", sasl_plain_username="alice", sasl_plain_password="...")
"""

from __future__ import annotations

import copy
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Final, TypedDict, Unpack

from fencepost.client.sasl.scram import HASHES
from fencepost.client.settings import check_known
from fencepost.client.tls import Certificates, tls_context

TokenProvider = Callable[[], str | Awaitable[str]]
"""Gives a bearer token whenever one is needed.  One that is not a coroutine function is called in a thread."""


class SecurityOptions(TypedDict, total=False):
    """What every client takes, beside its own settings."""

    security_protocol: str
    """PLAINTEXT (default), SSL, SASL_PLAINTEXT or SASL_SSL; SSL stands for TLS 1.2 or newer."""
    ssl_context: ssl.SSLContext
    """What connections are made with, instead of everything else that begins with ssl."""
    ssl_cafile: str | PathLike[str]
    """A PEM file with the certificates of who may sign the broker's; by default whom the operating system trusts."""
    ssl_cadata: str
    """What would be in ssl_cafile, as text."""
    ssl_certfile: str | PathLike[str]
    """A PEM file with this client's own certificate and those up to its authority; the key may be in it."""
    ssl_keyfile: str | PathLike[str]
    """A PEM file with the key of that certificate, if it is not in ssl_certfile."""
    ssl_certdata: str
    """Certificate, chain and key as PEM text, instead of the two files."""
    ssl_password: str
    """The password of this client's key, if that is encrypted."""
    ssl_check_hostname: bool
    """Whether the broker's certificate must be for the name that it is reached by (default)."""
    sasl_mechanism: str
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; must be given with SASL_PLAINTEXT and SASL_SSL."""
    sasl_plain_username: str
    """The user's name, for PLAIN and SCRAM."""
    sasl_plain_password: str
    """The user's password, for PLAIN and SCRAM."""
    sasl_oauth_token_provider: TokenProvider
    """Gives the tokens for OAUTHBEARER."""


PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER)
_PASSWORDS: Final = ("sasl_plain_username", "sasl_plain_password")
_TOKENS: Final = ("sasl_oauth_token_provider",)
#: mechanism -> what it needs
_NEEDS: Final = {PLAIN: _PASSWORDS, **dict.fromkeys(HASHES, _PASSWORDS), OAUTHBEARER: _TOKENS}
_SHOWN: Final = ("security_protocol", "sasl_mechanism", "sasl_plain_username", "ssl_cafile", "ssl_certfile")


class Security:
    """The settings, checked.  Neither its representation nor its errors show a password, a token or a key.

    It can be pickled unless it has an ssl_context or a token provider that cannot.
    """

    def __init__(self, **options: Unpack[SecurityOptions]) -> None:
        """Raises TypeError for a setting that there is not, ValueError for one that makes no sense."""
        self._options: SecurityOptions = options
        check_known(options, _ALL)
        self.protocol = options.get("security_protocol", "PLAINTEXT")
        self.mechanism = options.get("sasl_mechanism") if self.uses_sasl else None
        self._check_protocol()
        if self.uses_sasl:
            self._check_sasl()
        self._names: Mapping[str, str] = {}
        self._context: ssl.SSLContext | None = None
        self._check_files()
        if self.uses_tls:
            self._check_tls()
            self.tls()  # what cannot be read is said now

    @classmethod
    def of_client(cls, client: type, given: SecurityOptions) -> Security:
        """The settings in what a client was given beside its own.  Raises as the constructor does."""
        code = client.__init__.__code__  # type: ignore[misc]
        check_known(given, (*code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount], *_ALL))
        return cls(**given)

    def __repr__(self) -> str:
        given: Mapping[str, Any] = self._options
        return f"Security({', '.join(f'{name}={given[name]!r}' for name in _SHOWN if name in given)})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_context": None}

    def called(self, names: Mapping[str, str]) -> Security:
        """These settings where they have other names: `named` gives those in what is said."""
        other = copy.copy(self)
        other._names = names
        return other

    def named(self, text: str) -> str:
        """A message about settings, by the names that they have where they were given."""
        return renamed(text, self._names)

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def username(self) -> str:
        return self._options["sasl_plain_username"]

    @property
    def password(self) -> str:
        return self._options["sasl_plain_password"]

    @property
    def token_provider(self) -> TokenProvider:
        return self._options["sasl_oauth_token_provider"]

    def tls(self) -> ssl.SSLContext | None:
        """What connections are made with; None: no TLS.  Raises ValueError for certificates that cannot be used."""
        if self.uses_tls and self._context is None:
            self._context = self._options.get("ssl_context") or tls_context(
                Certificates(
                    cafile=self._options.get("ssl_cafile"),
                    cadata=self._options.get("ssl_cadata"),
                    certfile=self._options.get("ssl_certfile"),
                    keyfile=self._options.get("ssl_keyfile"),
                    certdata=self._options.get("ssl_certdata"),
                    password=self._options.get("ssl_password"),
                ),
                self._options.get("ssl_check_hostname", True),
            )
        return self._context

    def quoted(self, text: str, token: str = "") -> str:
        """What somebody else said, on one line, without our password and our token."""
        for secret in (self._options.get("sasl_plain_password"), token):
            text = text.replace(secret, "***") if secret else text
        return " ".join(text.split())[:_LONGEST_QUOTE]

    # What makes no sense

    def _check_protocol(self) -> None:
        if self.protocol not in PROTOCOLS:
            one = f"one of {', '.join(PROTOCOLS)}"
            raise ValueError(wrong_value("security_protocol", self.protocol, PROTOCOLS, one))
        for kind, used, protocols in (
            ("ssl_", self.uses_tls, "SSL or SASL_SSL"),
            ("sasl_", self.uses_sasl, "SASL_PLAINTEXT or SASL_SSL"),
        ):
            idle = [name for name in self._options if name.startswith(kind)]
            if idle and not used:
                raise ValueError(
                    f"{idle[0]} is given, but security_protocol is {self.protocol}: set it to {protocols}, "
                    f"or leave {idle[0]} out"
                )

    def _check_sasl(self) -> None:
        if self.mechanism == "GSSAPI":
            raise ValueError(
                "sasl_mechanism='GSSAPI': Kerberos is not there, for its libraries need the system's own to be built; "
                f"it must be one of {', '.join(MECHANISMS)}"
            )
        if self.mechanism not in MECHANISMS:
            one = f"one of {', '.join(MECHANISMS)}"
            raise ValueError(wrong_value("sasl_mechanism", self.mechanism, MECHANISMS, one))
        given: Mapping[str, Any] = self._options
        needed = _NEEDS[self.mechanism]
        for name in needed:
            if not given.get(name):
                raise ValueError(f"{name} is missing: sasl_mechanism {self.mechanism} needs it")
        for name in (*_PASSWORDS, *_TOKENS):
            if name in given and name not in needed:
                raise ValueError(f"{name} is given, but sasl_mechanism {self.mechanism} has no use for it")
        for name in needed if needed is _PASSWORDS else ():
            if not _is_sendable(given[name]):
                raise ValueError(f"{name} must be a str without a NUL and without halves of characters")
        if needed is _TOKENS and not callable(given[_TOKENS[0]]):
            raise ValueError("sasl_oauth_token_provider must be a function that returns a token")

    def _check_files(self) -> None:
        given: Mapping[str, Any] = self._options
        for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            if name in given and not isinstance(given[name], str | PathLike):
                raise TypeError(f"{name} must be the path of a file, and no {type(given[name]).__name__}")
            if name in given and _BEGINS_PEM in str(given[name]):
                instead = "ssl_cadata" if name == "ssl_cafile" else "ssl_certdata"
                raise ValueError(
                    f"{name} must be the path of a file, and no text in PEM format: that goes into {instead}"
                )
            if name in given and not _may_be_a_path(given[name]):
                raise ValueError(f"{name} must be the path of a file, without a NUL and without halves of characters")
        for name in ("ssl_cadata", "ssl_certdata", "ssl_password"):
            if name in given and not isinstance(given[name], str):
                raise TypeError(f"{name} must be a str")  # it may be secret

    def _check_tls(self) -> None:
        others = [name for name in self._options if name.startswith("ssl_") and name != "ssl_context"]
        if "ssl_context" in self._options:
            if not isinstance(self._options["ssl_context"], ssl.SSLContext):
                raise ValueError("ssl_context must be an ssl.SSLContext, as ssl.create_default_context() makes one")
            if self._options["ssl_context"].protocol is ssl.PROTOCOL_TLS_SERVER:
                raise ValueError("ssl_context is one for servers: ssl.create_default_context() makes one for clients")
            if others:
                raise ValueError(f"ssl_context and {others[0]} are given: put what {others[0]} says into the context")
        if not isinstance(self._options.get("ssl_check_hostname", True), bool):
            raise ValueError("ssl_check_hostname must be True or False: what else is false would let any name pass")
        for one, other in _NOT_BOTH:
            if one in self._options and other in self._options:
                raise ValueError(f"{one} and {other} are given: give one of them")
        for name, needed in (("ssl_keyfile", ("ssl_certfile",)), ("ssl_password", ("ssl_certfile", "ssl_certdata"))):
            if name in self._options and not any(each in self._options for each in needed):
                raise ValueError(f"{name} is given without {needed[0]}: there is no certificate that it could be for")


_KNOWN_ELSEWHERE: Final = (
    *("TLS", "GSSAPI", "KERBEROS", "NTLM", "AWS_MSK_IAM", "SCRAM-SHA-1", "SCRAM", "OAUTH"),
    *("JKS", "PKCS12", "P12", "JCEKS", "BKS", "BCFKS", "LDAPS"),
)
"""Values that clients of Kafka have or are told of where ours has others."""


def may_be_repeated(given: object, allowed: Sequence[str]) -> bool:
    """Whether an error may repeat the value of a setting of few values: a name that somebody could have meant.

    Any other text may be a password in the wrong place.
    """
    known = {each.upper() for each in (*allowed, *_KNOWN_ELSEWHERE)}
    return given is None or (isinstance(given, str) and given.strip().upper() in known)


def wrong_value(name: str, given: object, allowed: Sequence[str], what: str) -> str:
    """The sentence about a setting that is none of the `allowed`; `what`: what it must be."""
    if may_be_repeated(given, allowed):
        return f"{name}={given!r}: it must be {what}"
    return f"{name} must be {what}; what was given is not repeated, as it may be a secret"


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A message with other names of settings in it; the first that fits at a place is taken."""
    if not names:
        return text
    pattern = "|".join(re.escape(name) for name in names)
    return re.sub(rf"(?<![\w.])(?:{pattern})(?!\w)", lambda found: names[found[0]], text)


_LONGEST_QUOTE: Final = 300
_BEGINS_PEM: Final = "-----BEGIN"
_ALL: Final = tuple(SecurityOptions.__annotations__)
_NOT_BOTH: Final = (("ssl_cafile", "ssl_cadata"), ("ssl_certfile", "ssl_certdata"), ("ssl_keyfile", "ssl_certdata"))


def _may_be_a_path(path: str | PathLike[str]) -> bool:
    try:
        return b"\0" not in str(path).encode(errors="surrogateescape")  # as Python has what is no text in a path
    except UnicodeEncodeError:
        return False


def _is_sendable(text: object) -> bool:
    try:
        return isinstance(text, str) and b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
