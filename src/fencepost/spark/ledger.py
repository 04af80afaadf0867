"""The ledger that all tasks of one machine share: how many records each topic-partition has in one run of a batch.

Several tasks may write one topic-partition in one transaction if they take turns, each going on with the sequence
number at which the one before it stopped.  Who has its turn holds a lock, notes before anything is sent that the place
is not settled, and when all of that is acknowledged how many records are there.  Who stops in between leaves a place
where nobody writes any more (`place_states`).

Whoever wrote, of how many attempts: a batch may be committed only if there are as many records in each place as those
attempts report whose results Spark took, and then every place is closed to who is late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol, Self

from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import TopicPartition
from fencepost.spark.attempt import Attempt, PoisonedError
from fencepost.spark.claims import Written
from fencepost.spark.place_states import REFUSED, Move, PlaceState, moved, refused_closing, reported


class LedgerStore(Protocol):
    """The states of the places, as one process has access to them.  A place is a number from 0 on.

    Its locks are those of the process, and gone with it; the states stay.
    """

    def lock(self, place: int) -> bool:
        """Take the lock of a place, unless another process has it; whether this one has it now."""
        ...

    def unlock(self, place: int) -> None: ...

    def read(self, place: int) -> PlaceState: ...

    def note(self, place: int, state: PlaceState) -> None: ...

    def close(self) -> None:
        """Give up all locks."""
        ...


class Turn:
    """The right to write to one place, until it ends."""

    def __init__(self, store: LedgerStore, place: int, state: PlaceState) -> None:
        self._store = store
        self._place = place
        self.state = state

    @property
    def records(self) -> int:
        """The number of acknowledged records at this place."""
        return self.state.records

    def begin(self) -> None:
        """Note that records are about to be sent: the place is unsettled."""
        self._note(moved(self.state, Move.BEGIN))

    def settle(self, records: int) -> None:
        """Note that the `records` sent in this turn are acknowledged: the place is settled."""
        self._note(moved(self.state, Move.SETTLE, records))

    def close(self) -> None:
        """Keep everybody from writing to the place after this."""
        self._note(moved(self.state, Move.CLOSE))

    def _note(self, state: PlaceState) -> None:
        self._store.note(self._place, state)
        self.state = state


class Ledger:
    """The ledger as one process has it, opened once.  `close` it."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def turn(self, place: int) -> Iterator[Turn | None]:
        """A turn at a place until the end of the block; None while another process has it.

        Raises PoisonedError if a process stopped in the middle of its turn there, or the place is closed.
        """
        if not self._store.lock(place):
            yield None
            return
        try:
            state = self._store.read(place)
            if REFUSED[state.kind] is not None:
                raise PoisonedError(REFUSED[state.kind])
            yield Turn(self._store, place, state)
        finally:
            self._store.unlock(place)

    def close(self) -> None:
        """Give up the turns of this process, and close the store."""
        self._store.close()


class Turns:
    """Writes for one attempt at a slot, in one turn at each place, from its first batch there on.  `close` it.

    `places`: the topic-partitions, in the order of the ledger.
    """

    def __init__(self, ledger: Ledger, attempt: Attempt, places: Sequence[TopicPartition]) -> None:
        self._ledger = ledger
        self._attempt = attempt
        self._places = places
        self._held = ExitStack()
        self._turns: dict[int, Turn] = {}
        self._written = Counter[int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the turns of this attempt."""
        self._held.close()
        self._ledger.close()

    async def write(self, place: int, records: BatchBuilder) -> None:
        """Send a batch behind all that is there.  Raises PoisonedError if others still write; as `Attempt.write`."""
        if place not in self._turns:
            mine = self._held.enter_context(self._ledger.turn(place))
            if mine is None:
                raise PoisonedError("another attempt at the batch still writes: the driver runs it again")
            mine.begin()
            self._turns[place] = mine
            self._attempt.go_on(self._places[place], mine.records)
        self._written[place] += records.count
        await self._attempt.write(self._places[place], records)

    async def finish(self, rows: int) -> list[Written]:
        """As `Attempt.finish`; then the places that it wrote to are settled."""
        written = await self._attempt.finish(rows)
        for place, mine in self._turns.items():
            mine.settle(self._written[place])
        return written


def close_places(ledger: Ledger, places: Sequence[TopicPartition], written: Sequence[Written]) -> None:
    """Close every place to who is late.

    Raises PoisonedError where an attempt wrote, or still writes, that is not in `written`: the reports of the attempts
    whose results Spark took.  `places`: the topic-partitions, in the order of the ledger.
    """
    there = reported(written)
    for number, at in enumerate(places):
        with ledger.turn(number) as mine:
            refusal = refused_closing(at, None if mine is None else mine.state, there.get(at, 0))
            if mine is None or refusal is not None:
                raise PoisonedError(refusal)
            mine.close()
