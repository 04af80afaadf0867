"""Options of TLS and SASL as Spark's own `kafka` format spells them, read into the client's settings.

    .option("kafka.security.protocol", "SASL_SSL")
    .option("kafka.ssl.truststore.type", "PEM").option("kafka.ssl.truststore.location", "/etc/kafka/ca.pem")
    .option("kafka.sasl.mechanism", "SCRAM-SHA-512")
    .option("kafka.sasl.jaas.config", 'org.apache.kafka.common.security.scram.ScramLoginModule required '
                                      'username="alice" password="...";')

Files are looked for where the work is done: on the driver and on every executor.  No message repeats a value that may
be secret.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fencepost.client.security import (
    MECHANISMS,
    OAUTHBEARER,
    Security,
    SecurityOptions,
    may_be_repeated,
    renamed,
    wrong_value,
)
from fencepost.spark.bad_option import BadOption
from fencepost.spark.option_table import SINK, unknown

PROTOCOL: Final = "kafka.security.protocol"
MECHANISM: Final = "kafka.sasl.mechanism"
JAAS: Final = "kafka.sasl.jaas.config"
_TRUSTED_TYPE: Final = "kafka.ssl.truststore.type"
_TRUSTED_FILE: Final = "kafka.ssl.truststore.location"
_TRUSTED_TEXT: Final = "kafka.ssl.truststore.certificates"
_OWN_TYPE: Final = "kafka.ssl.keystore.type"
_OWN_FILE: Final = "kafka.ssl.keystore.location"
_OWN_KEY: Final = "kafka.ssl.keystore.key"
_OWN_CHAIN: Final = "kafka.ssl.keystore.certificate.chain"
_KEY_PASSWORD: Final = "kafka.ssl.key.password"
_NAMES_CHECKED: Final = "kafka.ssl.endpoint.identification.algorithm"
TOKEN_PROVIDER: Final = "tokenProvider"

#: option -> what it does, for the page docs/reference/spark_options.md
KNOWN: Final = {
    PROTOCOL: "`PLAINTEXT` (default), `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.",
    MECHANISM: "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`. Must be given with SASL.",
    JAAS: (
        "User and password for PLAIN and SCRAM: "
        '`org.apache.kafka.common.security.scram.ScramLoginModule required username="..." password="...";`, for PLAIN '
        "`org.apache.kafka.common.security.plain.PlainLoginModule`."
    ),
    TOKEN_PROVIDER: (
        "For OAUTHBEARER: `package.module:function`, which returns a token whenever it is called; it must be there on "
        "the driver and on every executor."
    ),
    _TRUSTED_TYPE: "`PEM`, and must be given with a trust store: Kafka's default, JKS, cannot be read.",
    _TRUSTED_FILE: "A PEM file with the certificates of who may sign the broker's. Default: whom the system trusts.",
    _TRUSTED_TEXT: "The same as text.",
    _OWN_TYPE: "`PEM`, and must be given with a key store.",
    _OWN_FILE: "A PEM file with the key and the certificates of this client.",
    _OWN_KEY: "The key as PEM text, instead of the file.",
    _OWN_CHAIN: "The certificates as PEM text, beside the key.",
    _KEY_PASSWORD: "Of the key, if it is encrypted.",
    _NAMES_CHECKED: (
        "`https` (default): the broker's certificate must be for the name it is reached by. Empty: any name is "
        "accepted."
    ),
}
#: option that Kafka has -> why it cannot be had
REFUSED: Final = {
    "kafka.ssl.truststore.password": "a trust store in PEM format has no password",
    "kafka.ssl.keystore.password": "a key store in PEM format has none; that of its key is kafka.ssl.key.password",
    "kafka.sasl.kerberos.service.name": "Kerberos (GSSAPI) is not there",
    "kafka.sasl.login.callback.handler.class": "classes of Java cannot be used; for tokens there is tokenProvider",
    "kafka.sasl.client.callback.handler.class": "classes of Java cannot be used; for tokens there is tokenProvider",
    "kafka.sasl.login.class": "classes of Java cannot be used",
    "kafka.ssl.engine.factory.class": "classes of Java cannot be used",
    "kafka.sasl.oauthbearer.token.endpoint.url": "give a function that gets the token, by tokenProvider",
}
#: the client's name of a setting, as it stands in its messages -> the option's
_IN_SPARK: Final = {
    "security_protocol": PROTOCOL,
    "sasl_mechanism": MECHANISM,
    "sasl_plain_username and sasl_plain_password": JAAS,
    "sasl_plain_username": JAAS,
    "sasl_plain_password": JAAS,
    "sasl_oauth_token_provider": TOKEN_PROVIDER,
    "ssl_check_hostname=False": f'{_NAMES_CHECKED} to ""',
    "ssl_check_hostname": _NAMES_CHECKED,
    "ssl_cafile": _TRUSTED_FILE,
    "ssl_cadata": _TRUSTED_TEXT,
    "ssl_certfile and ssl_keyfile": _OWN_FILE,
    "ssl_certfile": _OWN_FILE,
    "ssl_certdata": f"{_OWN_KEY} and {_OWN_CHAIN}",
    "ssl_password": _KEY_PASSWORD,
    "bootstrap_servers": "kafka.bootstrap.servers",
}
_FUNCTION: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
_LOGIN_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
}


@dataclass(frozen=True)
class TokenFunction:
    """A token provider by its name, `module:function`, so that it can go to executors."""

    name: str

    def __call__(self) -> Any:
        module, _, function = self.name.partition(":")
        return getattr(importlib.import_module(module), function)()


def parse_security(options: Mapping[str, str] | None) -> Security:
    """The settings of TLS and SASL among these options, whose names may be in any case.  Raises BadOption."""
    given = {name.lower(): value for name, value in (options or {}).items()}

    def get(name: str) -> str | None:
        return given.get(name.lower())

    for name in given:
        if name in REFUSED:
            raise BadOption(f"option {name} cannot be used: {REFUSED[name]}")
    settings: dict[str, Any] = {}
    settings["security_protocol"] = get(PROTOCOL)
    settings["sasl_mechanism"] = get(MECHANISM)
    if get(JAAS) is not None:
        settings |= _user(get(JAAS) or "", get(MECHANISM))
    if get(TOKEN_PROVIDER) is not None:
        settings["sasl_oauth_token_provider"] = _token_function(get(TOKEN_PROVIDER) or "")
    settings |= _trusted(get)
    settings |= _own(get)
    algorithm = get(_NAMES_CHECKED)
    if algorithm is not None:
        if algorithm.lower() not in ("", "https"):
            raise BadOption(wrong_value(_NAMES_CHECKED, algorithm, ("https",), "https, or empty"))
        settings["ssl_check_hostname"] = bool(algorithm)
    chosen: SecurityOptions = {name: value for name, value in settings.items() if value is not None}  # type: ignore[assignment]
    try:
        return Security(**chosen).called(_IN_SPARK)
    except ValueError as error:
        raise BadOption(renamed(str(error), _IN_SPARK)) from None


def check_names(options: Mapping[str, str] | None) -> None:
    """Raises BadOption if `options` is no dict of strings, or has one that is no option of security."""
    if options is not None and not isinstance(options, Mapping):
        raise BadOption("kafka_options must be a dict of names and texts, as in {'kafka.security.protocol': 'SSL'}")
    for name, value in (options or {}).items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise BadOption(f"kafka_options has {name!r}: names and values must be str")
    known = {name.lower() for name in (*KNOWN, *REFUSED)}
    of_sink = {name.lower(): why for name, why in SINK.items()}
    for name in options or {}:
        if name.lower() in of_sink:
            raise BadOption(f"option {name} of Spark's own sink cannot be used here: {of_sink[name.lower()]}")
        if name.lower() not in known:
            raise unknown(name, KNOWN)


def _trusted(get: Any) -> dict[str, str | None]:
    _check_type(get, _TRUSTED_TYPE, (_TRUSTED_FILE, _TRUSTED_TEXT))
    return {"ssl_cafile": get(_TRUSTED_FILE), "ssl_cadata": get(_TRUSTED_TEXT)}


def _own(get: Any) -> dict[str, str | None]:
    _check_type(get, _OWN_TYPE, (_OWN_FILE, _OWN_KEY, _OWN_CHAIN))
    key, chain = get(_OWN_KEY), get(_OWN_CHAIN)
    if (key is None) != (chain is None):
        raise BadOption(f"{_OWN_KEY} and {_OWN_CHAIN} must be given together")
    text = None if key is None else f"{key}\n{chain}\n"
    return {"ssl_certfile": get(_OWN_FILE), "ssl_certdata": text, "ssl_password": get(_KEY_PASSWORD)}


def _check_type(get: Any, name: str, stores: tuple[str, ...]) -> None:
    used = [store for store in stores if get(store) is not None]
    kind = get(name) or ("JKS" if used else "PEM")
    if kind.upper() != "PEM":
        told = (
            f"is {kind.strip()}"
            if may_be_repeated(kind, ("PEM",))
            else "is another type, not repeated as it may be a secret"
        )
        raise BadOption(
            f"{name} {told}{'' if get(name) else ', which is the default'}: only PEM can be read. Have the "
            f"store written as PEM (keytool -importkeystore to PKCS12, then openssl pkcs12), and set {name} to PEM"
        )


def _token_function(text: str) -> TokenFunction:
    if _FUNCTION.fullmatch(text) is None:
        # It may be a token.
        raise BadOption(
            f"{TOKEN_PROVIDER} must be package.module:function, the name of a function that returns a token"
        )
    module, _, name = text.partition(":")
    try:
        found = callable(getattr(importlib.import_module(module), name, None))
    except ImportError:
        found = False
    if not found:
        raise BadOption(
            f"{TOKEN_PROVIDER}={text}: it must be package.module:function, of a module that can be imported"
        )
    return TokenFunction(text)


# JAAS

_TOKEN: Final = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([\w.$-]+)|([=;]))""", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_MEANT: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class _Token(NamedTuple):
    text: str
    is_sign: bool = False


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError
        double, single, word, sign = found.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            yield _Token(_ESCAPED.sub(lambda escape: _MEANT.get(escape[1], escape[1]), quoted))
        else:
            yield _Token(word) if word is not None else _Token(sign, is_sign=True)
        at = found.end()


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """The login module and options of one JAAS entry, `<module> <flag> <name>=<value> ... ;`.  Raises ValueError."""
    tokens = list(_tokens(text))
    pairs = tokens[2:-1]
    signs = [False, False, *[False, True, False] * (len(pairs) // 3), True]
    if [token.is_sign for token in tokens] != signs or tokens[-1].text != ";":
        raise ValueError
    if any(sign.text != "=" for sign in pairs[1::3]):
        raise ValueError
    return tokens[0].text, {name.text: value.text for name, value in zip(pairs[::3], pairs[2::3], strict=True)}


def _user(text: str, mechanism: str | None) -> dict[str, str]:
    like = 'like ...LoginModule required username="..." password="...";'
    try:
        module, options = parse_jaas(text)
    except ValueError:
        raise BadOption(f"{JAAS} cannot be read: it must be {like}") from None
    # Some vendors put a name of theirs before the package.
    known = next((name for name in _LOGIN_MODULES if module == name or module.endswith(f".{name}")), None)
    if known is None:
        raise BadOption(
            f"{JAAS} names a login module that is not there: there are {' and '.join(_LOGIN_MODULES)}; for tokens "
            f"there is {TOKEN_PROVIDER}"
        )
    if mechanism in MECHANISMS and mechanism not in (*_LOGIN_MODULES[known], OAUTHBEARER):
        raise BadOption(f"{JAAS} names {known.rpartition('.')[2]}, which is not for {MECHANISM} {mechanism}")
    others = sorted(set(options) - {"username", "password"})
    if others or len(options) < 2:
        raise BadOption(f"{JAAS} must give username and password, and nothing else: {like}")
    return {"sasl_plain_username": options["username"], "sasl_plain_password": options["password"]}
