"""Settings as clients see and change them: where a value comes from, and what it would be without that."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Final, NamedTuple

from fencepost.broker.metadata.settings import (
    BROKER,
    INERT_TOPIC,
    TOPIC,
    TOPIC_DEFAULTS,
    Setting,
    Settings,
    Value,
    topic_setting,
)

TOPIC_SOURCE: Final = 1
STATIC_BROKER_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5

_INT_TYPE, _LONG_TYPE = 3, 5
_TYPES: Final = {bool: 1, str: 2, float: 6, list: 7}
#: Topic settings whose default Apache Kafka derives from a broker setting of another unit: no synonym is their default.
_DERIVED: Final = ("retention.ms", "segment.ms")


class Synonym(NamedTuple):
    """A source of a setting's value; of several the first counts."""

    name: str
    value: str
    source: int


class Entry(NamedTuple):
    """One setting of a topic or broker."""

    name: str
    value: str
    source: int
    read_only: bool
    kind: int
    synonyms: tuple[Synonym, ...] = ()


def described_topic(given: Mapping[str, str], settings: Settings) -> list[Entry]:
    """All settings of a topic, as they are understood: "5" for "+5"."""
    entries = []
    for name in sorted({*TOPIC, *INERT_TOPIC}):
        setting = topic_setting(name)
        assert setting is not None
        synonyms = [Synonym(name, given[name], TOPIC_SOURCE)] if name in given else []
        synonyms += _of_broker(name, setting, settings)
        first = synonyms[0] if synonyms else Synonym(name, _text(setting.default), DEFAULT_SOURCE)
        value = _text(setting.parse(name, first.value))
        entries.append(Entry(name, value, first.source, False, _type(setting), tuple(synonyms)))
    return entries


def _of_broker(name: str, setting: Setting, settings: Settings) -> list[Synonym]:
    """The sources of a setting's value that a topic does not give: the broker's settings, then the default."""
    broker_name = INERT_TOPIC[name][1] if name in INERT_TOPIC else TOPIC_DEFAULTS[name]
    if broker_name is None:
        return []
    given = settings.given.get(broker_name)
    found = [] if given is None else [Synonym(broker_name, _text(given), STATIC_BROKER_SOURCE)]
    return found if name in _DERIVED else [*found, Synonym(broker_name, _text(setting.default), DEFAULT_SOURCE)]


def described_broker(settings: Settings) -> list[Entry]:
    """All settings of the broker; they are given at its start."""
    entries = []
    for name, setting in BROKER.items():
        given = settings.given.get(name)
        synonyms = [Synonym(name, _text(setting.default), DEFAULT_SOURCE)]
        if given is not None:
            synonyms.insert(0, Synonym(name, _text(given), STATIC_BROKER_SOURCE))
        entries.append(Entry(name, synonyms[0].value, synonyms[0].source, True, _type(setting), tuple(synonyms)))
    return entries


def _type(setting: Setting) -> int:
    if setting.kind is int:
        return _LONG_TYPE if setting.high > 2**31 else _INT_TYPE
    return _TYPES[setting.kind]


def _text(value: Value) -> str:
    if isinstance(value, float) and isnan(value):
        return "NaN"
    return str(value).lower() if isinstance(value, bool) else str(value)
