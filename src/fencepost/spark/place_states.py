"""The states of a topic-partition while tasks write to it by turns, and what may be done in each: pure functions.

A place is settled, with so many records; unsettled, from before somebody sends until all of that is acknowledged; or
closed.  One at a time has a turn at it, and only who has may change it.  Who stops in the middle of a turn leaves it
unsettled for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from fencepost.protocol.types import TopicPartition
from fencepost.spark.attempt import SECOND_ATTEMPT
from fencepost.spark.claims import Written


class Kind(Enum):
    """The states of a place."""

    SETTLED = auto()
    """All records that were sent are acknowledged."""
    UNSETTLED = auto()
    """A task sends, or stopped before all its records were acknowledged."""
    CLOSED = auto()
    """The driver has counted the records that it commits; nobody may write any more."""


class Move(Enum):
    """The moves of whoever has a turn."""

    BEGIN = auto()
    """Note that records are about to be sent."""
    SETTLE = auto()
    """Note that all of these are acknowledged."""
    CLOSE = auto()
    """Let nobody write any more; a move of the driver's."""


class PlaceState(NamedTuple):
    """The state of a place.  `records`: its number of acknowledged records when it was settled last."""

    kind: Kind
    records: int = 0


NOTHING_THERE: Final = PlaceState(Kind.SETTLED)

#: what a place is -> what who has the turn may do, and what it is then
MOVES: Final[Mapping[Kind, Mapping[Move, Kind]]] = {
    Kind.SETTLED: {Move.BEGIN: Kind.UNSETTLED, Move.CLOSE: Kind.CLOSED},
    Kind.UNSETTLED: {Move.SETTLE: Kind.SETTLED},
    Kind.CLOSED: {},
}

#: what a place is -> why nobody may take a turn there, None: one may
REFUSED: Final[Mapping[Kind, str | None]] = {
    Kind.SETTLED: None,
    Kind.UNSETTLED: f"somebody stopped in the middle of his turn: {SECOND_ATTEMPT}",
    Kind.CLOSED: "the driver has all that it commits: this attempt at the batch is late",
}


def moved(state: PlaceState, move: Move, records: int = 0) -> PlaceState:
    """The state of a place after a move, which must be allowed in `state`.  `records`: how many more it has."""
    assert move in MOVES[state.kind], f"{move.name} is not for a place that is {state.kind.name}"
    return PlaceState(MOVES[state.kind][move], state.records + records)


def reported(written: Sequence[Written]) -> Mapping[TopicPartition, int]:
    """The number of records that each topic-partition has, by the reports of attempts."""
    found = Counter[TopicPartition]()
    for each in written:
        if each.topic is not None and each.partition is not None:
            found[TopicPartition(each.topic, each.partition)] += each.records
    return found


def refused_closing(at: TopicPartition, state: PlaceState | None, records: int) -> str | None:
    """Why the driver must not commit what is in a place, None if it may, and closes it.

    `state`: None while another process has its turn there.  `records`: how many are reported.
    """
    if state is None:
        return f"{at.topic}-{at.partition} is still written by another attempt at the batch"
    if REFUSED[state.kind] is not None:
        return REFUSED[state.kind]
    if state.records != records:
        return (
            f"{state.records} records of this batch are in {at.topic}-{at.partition}, and tasks report {records}: "
            "another attempt wrote there too"
        )
    return None
