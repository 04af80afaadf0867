"""Limits of the code that a run makes small, so that what is rare in use is common in it.

An epoch runs out after 32,766 transactions, a sequence after two thousand million records: nobody waits for that.  Here
each limit stands with every place that has it; `lowered` changes them for a while and puts them back.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple


class Limit(NamedTuple):
    """A number that the code has by name."""

    name: str
    modules: Sequence[str]
    drawn_from: Sequence[int]
    """What a run may have instead; each keeps every rule of the protocol."""


LIMITS: Final[Mapping[str, Limit]] = {
    "largest epoch of a client": Limit(
        "LAST_CLIENT_EPOCH",
        (
            "fencepost.coordinator.transaction.end",
            "fencepost.coordinator.transaction.initialize",
            "fencepost.coordinator.transaction.prepare",
            "fencepost.coordinator.transaction.transaction",
        ),
        (3, 7, 20),
    ),
    "largest sequence": Limit(
        "MAX_INT32", ("fencepost.protocol.batch", "fencepost.log.producer_state"), (2**5 - 1, 2**6 - 1, 2**8 - 1)
    ),
    "bytes from which data stays out of the commit log": Limit(
        "EXTENT_THRESHOLD", ("fencepost.log.commit_log", "fencepost.log.storage"), (150, 400, 1000)
    ),
    "bytes of tombstones in a batch": Limit(
        "LARGEST_TOMBSTONE_BATCH", ("fencepost.coordinator.transaction.journal",), (150,)
    ),
    "batches of a journal read in a step": Limit("LOAD_STEP", ("fencepost.coordinator.loading",), (1, 3)),
}


def draw(generator: Any, share: float = 0.5) -> dict[str, int]:
    """Draw some of the limits, about `share` of them (0 to 1), each with one of its numbers."""
    return {what: generator.choice(limit.drawn_from) for what, limit in LIMITS.items() if generator.random() < share}


@contextmanager
def lowered(numbers: Mapping[str, int]) -> Iterator[None]:
    """While this lasts the limits are these numbers, by name.  Raises KeyError for a limit that does not exist."""
    former: list[tuple[Any, str, Any]] = []
    try:
        for what, number in numbers.items():
            limit = LIMITS[what]
            for path in limit.modules:
                module = importlib.import_module(path)
                former.append((module, limit.name, getattr(module, limit.name)))
                setattr(module, limit.name, number)
        yield
    finally:
        for module, name, value in reversed(former):
            setattr(module, name, value)
