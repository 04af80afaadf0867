"""Write docs/reference/settings.md from the tables of settings.

python scripts/settings_page.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.page import Cell, Pages, table, write

from fencepost.broker.metadata.setting_docs import MEANING, OTHER_DEFAULTS
from fencepost.broker.metadata.settings import BROKER, IN_OTHER_UNITS, INERT_TOPIC, Setting

_INT, _LONG, _LARGEST = 2**31 - 1, 2**63 - 1, sys.float_info.max
_UNLIMITED = {_INT: "2^31 - 1", _LONG: "2^63 - 1", -_LONG: "-2^63 + 1", _LARGEST: "the largest double"}
_GROUPED = 10_000


def number(value: float) -> str:
    """A number as a person reads it."""
    if value in _UNLIMITED:
        return _UNLIMITED[value]
    return f"{value:,}" if isinstance(value, int) and abs(value) >= _GROUPED else f"{value:g}"


def default(setting: Setting) -> str:
    value = setting.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value or "(empty)"
    return number(value)


def values(setting: Setting) -> str:
    """What it may be."""
    if setting.choices:
        return ("any of " if setting.kind is list else "") + ", ".join(setting.choices)
    if setting.kind is bool:
        return "true, false"
    if setting.kind is list:
        return f"list of `{setting.pattern}`"
    return f"{number(setting.low)} to {number(setting.high)}" if setting.kind in (int, float) else "text"


def kafka(name: str) -> str:
    """What a reader who comes from Apache Kafka should know."""
    if name not in OTHER_DEFAULTS:
        return ""
    other = OTHER_DEFAULTS[name]
    return " Apache Kafka shows no such setting." if other is None else f" Apache Kafka's default: {other}."


def meaning(name: str) -> str:
    assert name in MEANING, f"say what {name} does in broker/metadata/setting_docs.py"
    return MEANING[name] + kafka(name)


def page() -> str:
    rows: list[list[Cell]] = [
        [f"`{name}`", default(setting), values(setting), meaning(name)] for name, setting in BROKER.items()
    ]
    topics: list[list[Cell]] = sorted(
        [f"`{setting.topic}`", f"`{name}`"] for name, setting in BROKER.items() if setting.topic
    )
    inert: list[list[Cell]] = [[f"`{name}`", default(setting)] for name, (setting, _) in INERT_TOPIC.items()]
    units: list[list[Cell]] = [[f"`{name}`", f"`{finest}`"] for name, finest, _ in IN_OTHER_UNITS]
    lines = [
        "# Settings",
        "",
        "Given as `fencepost serve --set NAME=VALUE`, line by line in the file of `--settings`, or as",
        "`Broker(settings={NAME: VALUE})`. Names are Apache Kafka's, and so are the defaults unless the last column",
        "says otherwise. A name that is not here, or a value out of its range, is refused at the start.",
        "",
        *table(["setting", "default", "values", "what it does"], rows),
        "",
        "## Of a topic",
        "",
        "A topic may have its own value: by CreateTopics, AlterConfigs or IncrementalAlterConfigs. Its default is the",
        "node's setting, with the same range and meaning.",
        "",
        *table(["topic setting", "its default"], topics),
        "",
        "These are taken, checked and shown, because clients send them, and change nothing on one node with one copy:",
        "",
        *table(["topic setting", "default"], inert),
        "",
        "## Other units",
        "",
        "Of several that are given the finest counts.",
        "",
        *table(["setting", "the same in milliseconds"], units),
    ]
    return "\n".join(lines) + "\n"


PAGES: Pages = {"reference/settings.md": page}

if __name__ == "__main__":
    write(PAGES)
