"""The events of a history that a broken promise is about: those with the names in its sentence.  Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from fencepost.simulation.history.events import (
    Append,
    Event,
    Failure,
    Note,
    Request,
    Run,
    Transition,
)

_NAMES: Final = re.compile(r"[\w.]+(?:-[\w.]+)*-\d+(?:-\d+)*")
"""As left-0, producer-1, producer-1-17 and producer-1-17-3."""
MOST: Final = 200
"""Events that are marked, of one failure: the last ones."""


def places(failure: Failure, events: Sequence[Event]) -> list[int]:
    """The indexes of the events that a failure is about, in order; the last ones where there are many.

    Those that name what its sentence names, the longest name that any of them has: a record rather than its
    transaction.  Where none does, the last event before it was seen.
    """
    before = [
        (n, event)
        for n, event in enumerate(events)
        if not isinstance(event, Run | Failure) and event.time <= failure.time
    ]
    names = sorted(dict.fromkeys(_NAMES.findall(failure.what)), key=len, reverse=True)
    for name in names:
        found = [n for n, event in before if name in _names(event)]
        if found:
            return found[-MOST:]
    return [n for n, _ in before[-1:]]


def _names(event: Event) -> Iterable[str]:
    match event:
        case Request():
            return (event.transactional_id, *(value for batch in event.batches for value in batch.values))
        case Append():
            return event.batch.values
        case Transition():
            return (event.transactional_id,)
        case Note():
            return event.text.split()
    return ()
