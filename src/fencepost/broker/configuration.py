"""Settings as clients see and change them: where a value comes from, and what it would be without that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from fencepost.broker.settings import BROKER, IGNORED_TOPIC_SETTINGS, TOPIC, TOPIC_DEFAULTS, Setting, Settings, Value

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4

TOPIC_SOURCE: Final = 1
STATIC_BROKER_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5

_KINDS: Final = {bool: 1, str: 2, int: 3, float: 6}


class Entry(NamedTuple):
    """One setting of a topic or broker."""

    name: str
    value: str
    source: int
    read_only: bool
    kind: int


def described_topic(given: Mapping[str, str], settings: Settings) -> list[Entry]:
    """All settings of a topic."""
    entries = []
    for name, setting in sorted(TOPIC.items()):
        broker_name = TOPIC_DEFAULTS[name]
        if name in given:
            entries.append(Entry(name, given[name], TOPIC_SOURCE, False, _kind(setting)))
        else:
            source = STATIC_BROKER_SOURCE if broker_name in settings.given else DEFAULT_SOURCE
            entries.append(Entry(name, _text(settings[broker_name]), source, False, _kind(setting)))
    ignored = [Entry(name, given[name], TOPIC_SOURCE, False, 2) for name in IGNORED_TOPIC_SETTINGS if name in given]
    return entries + ignored


def described_broker(settings: Settings) -> list[Entry]:
    """All settings of the broker; they are given at its start."""
    return [
        Entry(
            name,
            _text(settings[name]),
            STATIC_BROKER_SOURCE if name in settings.given else DEFAULT_SOURCE,
            True,
            _kind(setting),
        )
        for name, setting in BROKER.items()
    ]


def _kind(setting: Setting) -> int:
    if setting.kind is str and setting.choices == ("delete", "compact"):
        return 7
    if setting.kind is int and setting.high > 2**31:
        return 5
    return _KINDS[setting.kind]


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
