"""The ledger that tasks share (spark.ledger), as the simulation has it: whose process dies loses its locks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.processes import Process
from fencepost.spark.ledger import Ledger
from fencepost.spark.ledger_file import packed, unpacked
from fencepost.spark.place_states import NOTHING_THERE, Kind, PlaceState


class LedgerInMemory:
    """The states of the places of one run, and who has which lock."""

    def __init__(self, places: Sequence[TopicPartition]) -> None:
        self.places: Final = places
        self.states = [packed(NOTHING_THERE)] * len(places)
        self.holders: dict[int, Process] = {}
        self.is_gone = False
        """Whether the run is over: nobody can open it.  Who has it open still has it."""

    def of(self, process: Process, begun: Callable[[], None] = lambda: None) -> Ledger:
        """The ledger as a process opens it, once.  Raises FileNotFoundError when the run is over.

        `begun` is called when it has noted that it is about to send.
        """
        if self.is_gone:
            raise FileNotFoundError("the run is over")
        return Ledger(_Opened(self, process, begun))


class _Opened:
    """A ledger as one process has opened it (spark.ledger.LedgerStore)."""

    def __init__(self, ledger: LedgerInMemory, process: Process, begun: Callable[[], None]) -> None:
        self._ledger = ledger
        self._process = process
        self._begun = begun
        self._waited: set[int] = set()

    def lock(self, place: int) -> bool:
        holder = self._ledger.holders.get(place)
        if holder is not None and holder is not self._process and not holder.is_dead:
            if place not in self._waited:
                self._waited.add(place)
                self._tell(place, f"{holder.name} has its turn")
            return False
        self._waited.discard(place)
        self._ledger.holders[place] = self._process
        return True

    def unlock(self, place: int) -> None:
        if self._ledger.holders.get(place) is self._process:
            del self._ledger.holders[place]

    def read(self, place: int) -> PlaceState:
        return unpacked(self._ledger.states[place])

    def note(self, place: int, state: PlaceState) -> None:
        if not self._process.is_dead:  # what is cleared away in the end does nothing
            self._ledger.states[place] = packed(state)
            self._tell(place, f"{state.kind.name} {state.records}")
            if state.kind is Kind.UNSETTLED:
                self._begun()

    def close(self) -> None:
        for place in range(len(self._ledger.states)):
            self.unlock(place)

    def _tell(self, place: int, what: str) -> None:
        topic, number = self._ledger.places[place]
        self._process.world.note(f"{self._process.name} at {topic}-{number}: {what}")
