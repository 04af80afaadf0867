"""Errors that the code under test caught although nobody expected them: it logs them with where they came from.

A handler that fails answers that the server failed, a callback that fails is told to nobody: most clients go on, and a
run would have no fault.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fencepost.simulation.disk import PowerCut

#: Whose logs are looked at: asyncio tells of callbacks, and of tasks that nobody waited for.
_LOGGERS: Final = ("fencepost", "asyncio")
#: What the simulated disk raises, wherever it is met.
_OF_THE_DISK: Final = (PowerCut, OSError)


class _Listener(logging.Handler):
    """Notes each record that has an error with it."""

    def __init__(self, findings: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._findings = findings

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, _OF_THE_DISK):
            what = record.getMessage().partition("\n")[0]
            self._findings.append(f"nobody expected {type(error).__name__}: {error}: {what}")


@contextmanager
def caught() -> Iterator[list[str]]:
    """The errors logged while this lasts, in sentences; the list grows as they come."""
    told: list[str] = []
    listener = _Listener(told)
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(listener)
    try:
        yield told
    finally:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(listener)
