"""The faults of a run and the transactions of its producers, one by one: drawn and written down, or given.

A run that is given what another one has written down has the same history.  One that is given a part of it is a
smaller run: whatever is left stays at its time.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from random import Random
from typing import Final, Generic, NamedTuple, Protocol, TypeVar


class RequestFault(Enum):
    """The kinds of faults that befall a request of a client."""

    LOST = "lost, with its connection"
    ANSWER_LOST = "carried out, its answer lost with the connection"
    HELD_BACK = "its connection is lost, it arrives later"
    LATE = "late"


class Call(Enum):
    """The kinds of calls between coordinators and leaders."""

    MARKER = "marker"
    LOOK = "look"
    ADD = "add"


class CallFault(Enum):
    """The kinds of faults that befall a call."""

    LOST = "lost"
    ANSWER_LOST = "answer lost"
    LATE = "late"
    ANSWER_LATE = "answer late"
    REPEATED = "repeated"


class Happening(NamedTuple):
    """A trouble that befalls the node at a time."""

    time: float
    """Seconds from the beginning, as all times here."""
    trouble: str
    """The name of a kind of trouble, in capitals."""
    number: int
    """What is drawn while it happens follows from the seed of the run and this number."""


class BefallenRequest(NamedTuple):
    """A fault that befalls a request of a client: the first one of its kind at that time or later."""

    time: float
    client: str
    api: int
    fault: RequestFault
    late: float = 0
    """Seconds that it is late."""
    after: int = 0
    """How many requests of its kind are sent at that very time before it."""

    @property
    def key(self) -> Hashable:
        """The kind of a request: the client and the API."""
        return self.client, self.api


class BefallenCall(NamedTuple):
    """A fault that befalls a call between coordinators and leaders: the first one of its kind at that time or later."""

    time: float
    call: Call
    fault: CallFault
    late: float = 0
    """Seconds that it is late, or until it is repeated."""
    after: int = 0

    @property
    def key(self) -> Hashable:
        """The kind of a call: what is called for."""
        return self.call


class End(Enum):
    """The ends of a producer's transaction."""

    COMMITS = "commits"
    ABORTS = "aborts"
    DIES = "dies"
    IS_REPLACED = "is replaced"
    """Another instance takes over while this one goes on."""


class Write(NamedTuple):
    """A record of a transaction."""

    topic: str
    partition: int
    pause: float = 0
    """Seconds until the producer goes on."""


class Transaction(NamedTuple):
    """A transaction as a producer is to do it."""

    number: int
    """Its own, by which its records are known."""
    time: float
    """The earliest time at which it is begun."""
    records: tuple[Write, ...]
    end: End = End.COMMITS
    position: bool = False
    """Whether it commits a position of a group."""


class Script(NamedTuple):
    """All that is drawn while a run goes on, but for latencies and what a power loss takes."""

    troubles: tuple[Happening, ...] = ()
    requests: tuple[BefallenRequest, ...] = ()
    calls: tuple[BefallenCall, ...] = ()
    transactions: Mapping[str, tuple[Transaction, ...]] = {}
    """The transactions of each producer, by its name."""


class _Befallen(Protocol):
    @property
    def time(self) -> float: ...
    @property
    def after(self) -> int: ...
    @property
    def key(self) -> Hashable: ...


B = TypeVar("B", bound=_Befallen)
F = TypeVar("F", bound=Enum)


class _Notes(Generic[B]):
    """The faults of requests or of calls, given or drawn, and written down as they come."""

    def __init__(self, given: Iterable[B] | None) -> None:
        self.noted: list[B] = []
        self._given: dict[Hashable, deque[B]] | None = None
        if given is not None:
            self._given = defaultdict(deque)
            for each in sorted(given, key=lambda each: (each.time, each.after)):
                self._given[each.key].append(each)
        self._newest: dict[Hashable, tuple[float, int]] = {}

    def next(self, key: Hashable, now: float, draw: Callable[[int], B | None]) -> B | None:
        """The fault of this request or call, or None; `draw` is given how many of its kind came at the same time."""
        time, count = self._newest.get(key, (now, -1))
        after = count + 1 if time == now else 0
        self._newest[key] = now, after
        if self._given is None:
            found = draw(after)
        else:
            waiting = self._given.get(key)
            is_due = waiting and (waiting[0].time < now or (waiting[0].time == now and waiting[0].after <= after))
            found = waiting.popleft() if waiting and is_due else None
        if found is not None:
            self.noted.append(found)
        return found


class Prompter:
    """Tells a run what comes next: as its script says or, where it has none, as it is drawn; it writes that down."""

    def __init__(self, script: Script | None = None) -> None:
        self._given = script
        self._troubles: list[Happening] = []
        self._requests = _Notes(None if script is None else script.requests)
        self._calls = _Notes(None if script is None else script.calls)
        self._transactions: dict[str, list[Transaction]] = {}

    @property
    def script(self) -> Script:
        """The script of what has happened so far."""
        transactions = {name: tuple(those) for name, those in self._transactions.items()}
        return Script(tuple(self._troubles), tuple(self._requests.noted), tuple(self._calls.noted), transactions)

    @property
    def troubles(self) -> tuple[Happening, ...] | None:
        """The troubles that are to befall the node; None if they are to be drawn."""
        return None if self._given is None else self._given.troubles

    def happens(self, happening: Happening) -> None:
        """Note that something befalls the node now."""
        self._troubles.append(happening)

    def request(
        self, client: str, api: int, now: float, draw: Callable[[], tuple[RequestFault, float] | None]
    ) -> BefallenRequest | None:
        """The fault of a request, or None; `draw` gives a fault and the seconds that it is late."""

        def drawn(after: int) -> BefallenRequest | None:
            found = draw()
            return None if found is None else BefallenRequest(now, client, api, *found, after)

        return self._requests.next((client, api), now, drawn)

    def call(self, call: Call, now: float, draw: Callable[[], tuple[CallFault, float] | None]) -> BefallenCall | None:
        """The fault of a call, or None; `draw` gives a fault and the seconds that it is late."""

        def drawn(after: int) -> BefallenCall | None:
            found = draw()
            return None if found is None else BefallenCall(now, call, *found, after)

        return self._calls.next(call, now, drawn)

    def transaction(self, producer: str, draw: Callable[[], Transaction]) -> Transaction | None:
        """The next transaction of a producer; None if it has no other one."""
        done = self._transactions.setdefault(producer, [])
        if self._given is None:
            done.append(draw())
        else:
            given = self._given.transactions.get(producer, ())
            if len(done) == len(given):
                return None
            done.append(given[len(done)])
        return done[-1]


def drawn_shares(chance: Random, kinds: type[F], shares: Sequence[float]) -> dict[F, float]:
    """Some of these faults, each with the share of requests or calls, 0 to 1, that it is to befall."""
    chosen = [kind for kind in kinds if chance.random() < 0.4] or [chance.choice(list(kinds))]
    return {kind: chance.choice(shares) for kind in chosen}


#: A number of its own; of a member of a group, its life; of a task, its batch and attempt; a time.
_LIVES: Final = re.compile(r"^(.+?-\d+)-\d+$|^(.+-\d+)\.\d{1,4}$|^(\w+)(?:\.\d+){2,}$|^(.+)-\d+\.\d{5,}$")


def lane(client: str) -> str:
    """The lane of a client, whichever of its lives this is: producer-1 of producer-1-17."""
    found = _LIVES.match(client)
    return client if found is None else str(found[found.lastindex or 0])
