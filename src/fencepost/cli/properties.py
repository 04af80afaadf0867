"""A file with settings of a client, as Apache Kafka's tools take it (--command-config): pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

#: A setting of Apache Kafka -> the one that it is here.
_SAME: Final = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "ssl.truststore.certificates": "ssl_cadata",
    "ssl.key.password": "ssl_password",
    "client.id": "client_id",
}
_TIMES: Final = {"request.timeout.ms": "request_timeout_ms", "default.api.timeout.ms": "max_block_ms"}
#: A store -> its type, and the setting here of the PEM file that it is.
_STORES: Final = {
    "ssl.truststore.location": ("ssl.truststore.type", "ssl_cafile"),
    "ssl.keystore.location": ("ssl.keystore.type", "ssl_certfile"),
}
_KEYS: Final = ("ssl.keystore.certificate.chain", "ssl.keystore.key")
_JAAS: Final = "sasl.jaas.config"
_NAMES: Final = "ssl.endpoint.identification.algorithm"
#: A setting of a client -> the one that it comes from, as a person knows it.
NAMES: Final = {
    "bootstrap_servers": "--bootstrap-server",
    **{ours: theirs for theirs, ours in (*_SAME.items(), *_TIMES.items())},
    **{ours: theirs for theirs, (_, ours) in _STORES.items()},
    "ssl_certdata": _KEYS[0],
    "sasl_plain_username": f"username in {_JAAS}",
    "sasl_plain_password": f"password in {_JAAS}",
    "ssl_check_hostname": _NAMES,
}
_READ: Final = frozenset(
    (*_SAME, *_STORES, *(kind for kind, _ in _STORES.values()), *_KEYS, _JAAS, _NAMES, "ssl.keystore.password")
)
_OPTION: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"'][^\s;"]*))""")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class NotUsable(ValueError):
    """A setting that cannot be used here; the message says which and what to do, and no secret."""


def properties_of(lines: Iterable[str]) -> dict[str, str]:
    """The settings in a properties file of Java; the last of several values of one counts."""
    found: dict[str, str] = {}
    before = ""
    for line in lines:
        line = before + line.lstrip().rstrip("\r\n")
        before = ""
        if line.startswith(("#", "!")):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            before = line[:-1]
        elif line.strip():
            found.update([_pair(line)])
    if before:
        found.update([_pair(before)])
    return found


def _pair(line: str) -> tuple[str, str]:
    split = re.match(r"((?:[^\\=:\s]|\\.)*)\s*[=:]?\s*(.*)", line)
    assert split is not None, "it matches every line"
    return _plain(split[1]), _plain(split[2]).rstrip()  # as Apache Kafka does with every value


def _plain(text: str) -> str:
    def meant(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] else _ESCAPES.get(found[2], found[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", meant, text)


def options_of(settings: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a client for these settings; those that are not about connections are left out.

    Raises NotUsable for a setting that a client does not have, or not with this value.
    """
    for name in settings:
        if name.startswith(("ssl.", "sasl.", "security.")) and name not in _READ:
            raise NotUsable(f"{name} is not known here: there are {', '.join(sorted(_READ))}")
    options: dict[str, Any] = {ours: settings[name] for name, ours in _SAME.items() if name in settings}
    for name, ours in _TIMES.items():
        if name in settings:
            if not (settings[name].isascii() and settings[name].isdigit()):
                raise NotUsable(f"{name}={settings[name]}: it must be a number of milliseconds")
            options[ours] = int(settings[name])
    for name, (kind, ours) in _STORES.items():
        if name in settings:
            if settings.get(kind, "JKS").upper() != "PEM":
                raise NotUsable(f"{name} is of type {settings.get(kind, 'JKS')}: give a PEM file, and {kind}=PEM")
            options[ours] = settings[name]
    if given := [name for name in _KEYS if name in settings]:
        if len(given) < len(_KEYS):
            raise NotUsable(f"{given[0]} is given alone: give {' and '.join(_KEYS)}")
        options["ssl_certdata"] = "\n".join(settings[name] for name in _KEYS)
    if _NAMES in settings:
        options["ssl_check_hostname"] = bool(settings[_NAMES])
    if _JAAS in settings:
        options.update(_login(settings[_JAAS]))
    return options


def _login(config: str) -> dict[str, str]:
    found = {name: _plain(double or single) or bare for name, double, single, bare in _OPTION.findall(config)}
    if not {"username", "password"} <= set(found):
        raise NotUsable(f'{_JAAS} has no username="..." and password="...": only PLAIN and SCRAM can be used here')
    return {"sasl_plain_username": found["username"], "sasl_plain_password": found["password"]}
