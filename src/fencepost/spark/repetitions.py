"""Tells whether a second write of a micro-batch, in one run of a query, repeats the first or has other rows."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from threading import Lock
from typing import Final, NamedTuple

Place = tuple[str, str]
"""Application and id of the cluster; one that has no id is known by its servers."""


class Write(NamedTuple):
    """A write: the run, the query's id and the batch's number (`batch`), the rows, and the topic if one is named.

    `rows` is the very DataFrame.  Of two that were made in the same way the rows may be others, as of files that came
    since, and Spark takes two plans for the same that differ in the names of columns.
    """

    batch: tuple[str, str, int]
    rows: object
    topic: str | None


class _Last(NamedTuple):
    batch: tuple[str, str, int]
    rows: Callable[[], object]
    """Gives the rows while somebody has them; None if it is not known which of several were written."""
    topic: str | None
    is_done: bool
    """Whether the rows are committed for sure; if not they may be: the write failed, was interrupted, or goes on."""


class Repetitions:
    """The last write in each place by this process.  In any thread."""

    def __init__(self) -> None:
        self._last: Final[dict[Place, _Last]] = {}
        self._marking = Lock()
        """Held while a write is marked: of two at once one finds the other's mark."""

    def carry_out(self, where: Place, write: Write, work: Callable[[], bool]) -> bool | None:
        """Call `work`: True if it wrote, False if the batch was committed before, None if that was with other rows.

        `work` is not called if that is known before.
        """
        given = _Last(write.batch, weakref.ref(write.rows), write.topic, is_done=False)
        with self._marking:
            last = self._last.get(where)
            again = last is not None and last.batch == write.batch
            is_other = again and last is not None and (last.rows() is not write.rows or last.topic != write.topic)
            if is_other and last is not None and last.is_done:
                return None
            self._last[where] = given._replace(rows=_nothing) if is_other else given
        wrote = work()
        if is_other and not wrote:
            return None
        self._last[where] = given._replace(is_done=True)
        return wrote


def _nothing() -> None:
    return None
