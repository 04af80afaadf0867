"""When the time of each open transaction is up, without looking at every transaction at every tick."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from fencepost.coordinator.transaction.shards import TransactionalIdEntry
from fencepost.protocol.types import Milliseconds


class Alarms:
    """A heap with about one alarm per transactional id, however many transactions it has had.

    A transaction that begins while its id's alarm is set for earlier leaves the alarm alone; when that rings it is set
    again for the transaction that is open by then.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Milliseconds, int, TransactionalIdEntry]] = []
        self._set = 0

    def set(self, entry: TransactionalIdEntry, deadline: Milliseconds | None) -> None:
        """Ring after `deadline`, or earlier.  Nothing if there is none."""
        if deadline is None or (entry.alarm is not None and entry.alarm <= deadline):
            return
        entry.alarm = deadline
        self._set += 1
        heappush(self._heap, (deadline, self._set, entry))

    def ring(self, now: Milliseconds) -> Iterator[TransactionalIdEntry]:
        """The entries whose alarm was set for before `now`, each once; it is off until it is set again."""
        heap = self._heap
        while heap and heap[0][0] < now:
            deadline, _, entry = heappop(heap)
            if entry.alarm == deadline:
                entry.alarm = None
                yield entry
