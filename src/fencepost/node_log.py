"""What a node writes to its log: no line repeats without a limit.

Every logger of a node is made here.  Lines are counted by where they are written and by their kind, which the writer
may name (`extra={"kind": ...}`); after `MOST_PER_MINUTE` of them the rest of the minute is left out, and how many
those were is written once, by `Limit.report`.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Final

MOST_PER_MINUTE: Final = 10
MOST_KINDS: Final = 1000
"""Kinds that are told apart in one minute; whatever comes after these shares one count."""
MOST_REPORTED: Final = 20
_LAST: Final = "; the next ones of this minute are left out"
_LONGEST: Final = 200
_LONGEST_NAME: Final = 100

_reporter = logging.getLogger(__name__)


class Limit(logging.Filter):
    """Lets the first lines of each kind pass in every minute.  The time is that of the lines themselves."""

    def __init__(self) -> None:
        super().__init__()
        self._minute = 0
        self._counts: dict[Hashable, int] = {}
        self._left_out: dict[Hashable, tuple[int, str]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        minute = int(record.created // 60)
        if minute != self._minute:  # also where the clock was set back
            self._minute, self._counts = minute, {}
        key = self._bounded(_key(record))
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count > MOST_PER_MINUTE:
            self._left_out[key] = self._left_out.get(key, (0, ""))[0] + 1, str(record.msg)[:_LONGEST]
            return False
        if count == MOST_PER_MINUTE:
            record.msg = f"{record.msg}{_LAST}"
        return True

    def _bounded(self, key: Hashable) -> Hashable:
        return key if key in self._counts or len(self._counts) < MOST_KINDS else None

    def report(self) -> None:
        """Write how many lines were left out since the last report; call it every minute."""
        left_out, self._left_out = self._left_out, {}
        for number, (count, template) in enumerate(left_out.values()):
            if number == MOST_REPORTED:
                rest = list(left_out.values())[number:]
                _reporter.warning("%d lines of %d more kinds were left out", sum(n for n, _ in rest), len(rest))
                break
            _reporter.warning("%d lines were left out that were like: %s", count, template.splitlines()[0])

    def forget(self) -> None:
        """Begin anew, as in a new process."""
        self._minute, self._counts, self._left_out = 0, {}, {}


def _key(record: logging.LogRecord) -> Hashable:
    kind = getattr(record, "kind", None)
    if record.name == "asyncio":
        # All that goes wrong under the event loop comes from one place; the first line says what, then who.
        kind = str(record.msg).partition("\n")[0].partition("<")[0][:_LONGEST]
    return record.pathname, record.lineno, kind


def shown(name: str | None) -> str:
    """What somebody else has chosen for a name, for a line of the log: short, and without a second line in it."""
    if name is None:
        return "-"
    short = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "..."
    return short if short.isprintable() and " " not in short and short else repr(short)


LIMIT: Final = Limit()


def get_logger(name: str) -> logging.Logger:
    """The logger of a module of the node, under the limit."""
    logger = logging.getLogger(name)
    logger.addFilter(LIMIT)
    return logger
