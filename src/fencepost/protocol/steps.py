"""Work on bytes of others that may be long: done in steps, between which somebody else may be served.

A function that works in steps is a generator that returns its result.  Whoever has nobody to keep waiting runs it with
`finish`; a server awaits between its steps (`fencepost.broker.network.pacing`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

S = TypeVar("S")
T = TypeVar("T")

Steps: TypeAlias = Generator[Callable[[], Any] | None, Any, T]
"""Yields None where it may be interrupted, or a function of a library that releases the interpreter's lock: its result
is to be sent in, or its exception thrown in."""

STEP: Final = 4_000
"""Units of work between two interruptions: a record is one, or a header.  Some milliseconds: 1 to 5 where tried."""
FIRST_STEP: Final = 1_000
"""Units of the first step of what may have a large answer: of all who ask at once it is done before any second one."""
UNFOLDED_IN_A_UNIT: Final = 1024
"""Bytes unfolded that cost one unit."""
SUMMED_IN_A_UNIT: Final = 4096
"""Bytes of which a checksum is made that cost one unit."""
ITEM: Final = 10
"""Units that it costs to look up and answer one of the things that a request names: a partition, a topic, a group."""
LETTERS: Final = 8
"""Letters of an id that cost one unit: the partition that it lives in depends on each of them."""
OPERATIONS: Final = 40
"""Units that it costs to tell which operations a caller may do."""


class Room(Protocol):
    """Bytes of memory for unfolded batches, shared by all who take turns."""

    def claim(self, size: int) -> bool:
        """Take so many bytes; False if somebody else needs them."""
        ...

    def wait_for(self, size: int) -> Generator[Any, Any, None]:
        """Take so many bytes, after all who came before have taken theirs."""
        ...

    def give(self, size: int) -> None:
        """Give back so many bytes."""
        ...


class Pace:
    """The work left in the present step, in units, shared by all that is done in order for one request."""

    __slots__ = ("held", "left", "pauses", "room")

    def __init__(self, left: int = STEP, room: Room | None = None) -> None:
        self.left = left
        self.pauses = 0
        """The number of pauses so far, in which others may have been served."""
        self.room = room
        """The memory for what is unfolded; None: there is enough."""
        self.held = 0
        """Bytes of the room that are held."""

    def hold(self, size: int) -> None:
        """Give back what is held of the room beyond `size` bytes."""
        if self.room is not None and size < self.held:
            spare, self.held = self.held - size, size
            self.room.give(spare)

    def is_used_up(self, units: int) -> bool:
        """Count `units` of work; True if a `rest` is due now.  Cheaper than `spend`, where it nearly never is."""
        self.left -= units
        return self.left <= 0

    def rest(self) -> Steps[None]:
        """Begin a new step, after a pause in which others may be served."""
        self.pauses += 1
        yield None
        self.left = STEP

    def spend(self, units: int) -> Steps[None]:
        """Count `units` of work that was done; a new step begins where this one is used up."""
        if self.is_used_up(units):
            yield from self.rest()


def cost_of_id(name: str) -> int:
    """Units that it costs to look up a group or a transactional id: a name may have 32,767 letters."""
    return ITEM + len(name) // LETTERS


def each(items: Iterable[S], answer: Callable[[S], T], pace: Pace) -> Steps[list[T]]:
    """The results of `answer` for all items, in steps."""
    answers = []
    for item in items:
        if pace.is_used_up(ITEM):
            yield from pace.rest()
        answers.append(answer(item))
    return answers


def in_order(items: Iterable[Any], pace: Pace) -> Steps[list[Any]]:
    """The items in ascending order, in steps."""
    unsorted = list(items)
    if len(unsorted) <= STEP:
        return sorted(unsorted)
    runs = []
    for first in range(0, len(unsorted), STEP):
        runs.append(sorted(unsorted[first : first + STEP]))
        yield from pace.spend(STEP)
    merged = []
    for item in heapq.merge(*runs):
        merged.append(item)
        yield from pace.spend(1)
    return merged


def elsewhere(work: Callable[[], T]) -> Steps[T]:
    """Have `work` done in another thread, where that is possible."""
    return cast(T, (yield work))


def finish(steps: Steps[T]) -> T:
    """Do all steps of some work at once; what it returns."""
    try:
        pause = next(steps)
        while True:
            try:
                result = None if pause is None else pause()
            except Exception as error:
                pause = steps.throw(error)
            else:
                pause = steps.send(result)
    except StopIteration as done:
        return cast(T, done.value)
