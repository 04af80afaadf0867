"""Two producers, two partitions and a group's positions: every order of events, with so many faults, step by step.

What is decided here is decided by the real decisions: of the coordinator (claims, additions, ends, time-outs) and of a
partition about its producers.  Around them is as little as possible: requests, journals and logs are tuples.  A step is
one request that is carried out, one verified write that is appended, one marker, one completion, or one fault:

- an answer is lost, and the request is sent again; it is lost itself, and arrives any time later, or never;
- a marker is repeated any time later;
- the coordinator and the leaders crash: what they had decided is durable, what they were about to do is forgotten;
- an open transaction's time is up;
- a producer is replaced by a new instance, and its next request arrives any time later.

Clients do what well-behaved ones do: they repeat what is not answered, and abort what cannot be committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy
from typing import Any, Final, NamedTuple

from fencepost.coordinator.group.offsets import CommittedOffset, Offsets
from fencepost.coordinator.transaction.add_partitions import AddPartitions, add_partitions
from fencepost.coordinator.transaction.decision import Refusal, Transition, Unchanged
from fencepost.coordinator.transaction.end import End, end
from fencepost.coordinator.transaction.initialize import Initialize, initialize
from fencepost.coordinator.transaction.prepare import complete
from fencepost.coordinator.transaction.state import State as TransactionState
from fencepost.coordinator.transaction.timeout import time_out
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.coordinator.transaction.verify import verify
from fencepost.log.producer_state import Origin, VerificationGuard
from fencepost.log.producers import Producers
from fencepost.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import (
    NO_PRODUCER,
    Milliseconds,
    Offset,
    ProducerId,
    ProducerIdAndEpoch,
    TopicPartition,
)

A, B, POSITIONS = 0, 1, 2
#: Partitions of two topics, and that of the group's positions.
PLACES: Final = (TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("__consumer_offsets", 0))
NOW: Final = Milliseconds(0)


class Transaction(NamedTuple):
    """Where a producer writes, one place after the other, and how it ends it."""

    places: tuple[int, ...]
    end: str = "commit"


Program = tuple[Transaction, ...]
"""The transactions of a producer."""


class Request(NamedTuple):
    """What a producer asks."""

    kind: str
    """init, add, write, commit or abort; or marker, which a coordinator asks."""
    who: int
    transaction: int = 0
    pair: ProducerIdAndEpoch = NO_PRODUCER
    place: int = -1
    sequence: int = -1


class Client(NamedTuple):
    """A producer: what it is about to do, and what it was told."""

    pair: ProducerIdAndEpoch = NO_PRODUCER
    doing: str = "init"
    """init, work, abort, or nothing."""
    transaction: int = 0
    step: int = 0
    registered: tuple[int, ...] = ()
    """Below level 2: where the coordinator knows of it."""
    sequences: tuple[int, ...] = (0, 0)
    told: tuple[str, ...] = ()
    """Of each transaction: committed, aborted or unknown."""


class Entry(NamedTuple):
    """What stands in a partition; a marker has no sequence, and its transaction is 1 for a commit, 0 for an abort."""

    pair: ProducerIdAndEpoch
    is_marker: bool
    transaction: int
    who: int


class Place:
    """One partition."""

    __slots__ = ("log", "producers")

    def __init__(self, log: tuple[Entry, ...], producers: Producers) -> None:
        self.log, self.producers = log, producers

    def copy(self) -> Place:
        known, own = self.producers, Producers()
        for producer_id, entry in known.entries.items():
            own.entries[producer_id] = twin = copy(entry)
            twin.batches = entry.batches.copy()
        own._verifications = {producer_id: copy(each) for producer_id, each in known._verifications.items()}
        own._open = dict(known._open)
        return Place(self.log, own)


class Verified(NamedTuple):
    """A write that the coordinator vouched for, on its way to the log.  `waited_for`: its producer wants the answer."""

    request: Request
    guard: VerificationGuard
    waited_for: bool


class World:
    """Everything at one moment.  Whoever changes it changes a copy."""

    def __init__(self, level: int, programs: tuple[Program, ...], faults: int) -> None:
        self.level, self.programs, self.faults = level, programs, faults
        self.transactions = [
            TransactionMetadata(f"t{who}", ProducerId(10 + who), timeout_ms=Milliseconds(1000))
            for who in range(len(programs))
        ]
        self.clients = [Client() for _ in programs]
        self.places = [Place((), Producers()) for _ in PLACES]
        self.marked: list[tuple[int, ...]] = [() for _ in programs]
        """Where the markers of a prepared transaction are, as its coordinator knows."""
        self.late: tuple[Request, ...] = ()
        self.verified: tuple[Verified, ...] = ()

    def copy(self) -> World:
        other = copy(self)
        other.transactions, other.clients = [*self.transactions], [*self.clients]
        other.places, other.marked = [place.copy() for place in self.places], [*self.marked]
        return other

    def key(self) -> int:
        """The same for worlds of which nothing can tell the difference; by chance for others once in 2^60."""
        guards: dict[int, int] = {}

        def number(guard: object) -> int:
            return -1 if guard is None else guards.setdefault(id(guard), len(guards))

        places = tuple(
            (
                place.log,
                tuple(
                    (pid, v.epoch, v.lowest_sequence, number(v.guard))
                    for pid, v in sorted(place.producers._verifications.items())
                ),
                tuple((pid, number(e.opened_by)) for pid, e in sorted(place.producers.entries.items())),
            )
            for place in self.places
        )
        verified = tuple((each.request, number(each.guard), each.waited_for) for each in self.verified)
        transactions = tuple(each._replace(partitions=tuple(each.partitions)) for each in self.transactions)  # type: ignore[arg-type]
        rest = tuple(self.clients), tuple(self.marked), self.late, self.faults
        return hash((transactions, places, verified, rest))

    # Clients

    def next_request(self, who: int) -> Request | None:
        """What a producer sends next; None where it waits, or has nothing to do."""
        client = self.clients[who]
        if client.doing == "nothing" or any(each.waited_for and each.request.who == who for each in self.verified):
            return None
        if client.doing in ("init", "abort"):
            return Request(client.doing, who, client.transaction, client.pair)
        places, way = self.programs[who][client.transaction]
        if client.step == len(places):
            return Request(way, who, client.transaction, client.pair)
        place = places[client.step]
        if self.level < 2 and place not in client.registered:
            return Request("add", who, client.transaction, client.pair, place)
        sequence = -1 if place == POSITIONS else client.sequences[place]
        return Request("write", who, client.transaction, client.pair, place, sequence)

    def answer(self, request: Request, error: ErrorCode, pair: ProducerIdAndEpoch = NO_PRODUCER) -> None:
        """A producer is told."""
        client = self.clients[request.who]
        if error in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS):
            return  # it asks again
        if request.kind == "init":
            self._become(request.who, client, error, pair=pair, doing="work", sequences=(0, 0))
        elif request.kind == "add" and not error:
            self.clients[request.who] = client._replace(registered=(*client.registered, request.place))
        elif request.kind == "write" and not error:
            sequences = tuple(n + (place == request.place) for place, n in enumerate(client.sequences))
            self.clients[request.who] = client._replace(step=client.step + 1, sequences=sequences)
        elif request.kind in ("commit", "abort") and not error:
            told = "committed" if request.kind == "commit" else "aborted"
            self._go_on(request.who, client, told, pair)
        elif error in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING) or request.kind == "abort":
            self.clients[request.who] = client._replace(doing="nothing", told=(*client.told, "unknown"))
        else:
            self.clients[request.who] = client._replace(doing="abort")

    def _become(self, who: int, client: Client, error: ErrorCode, **fields: Any) -> None:
        self.clients[who] = client._replace(doing="nothing") if error else client._replace(**fields)

    def _go_on(self, who: int, client: Client, told: str, pair: ProducerIdAndEpoch) -> None:
        """To the next transaction."""
        bumped = pair != client.pair
        following = client.transaction + 1
        self.clients[who] = client._replace(
            pair=pair,
            doing="work" if following < len(self.programs[who]) else "nothing",
            transaction=following,
            step=0,
            registered=(),
            sequences=(0, 0) if bumped else client.sequences,
            told=(*client.told, told),
        )

    # The coordinator and the leaders

    def carry_out(self, request: Request, *, answered: bool) -> None:
        """A request arrives.  `answered`: its producer gets the answer, if there is one at once."""
        if request.kind == "write":
            error = self._write(request, answered)
            if error is not None and answered:
                self.answer(request, error)
            return
        if request.kind == "marker":
            self._append_marker(request)
            return
        transaction = self.transactions[request.who]
        if request.kind == "init":
            decision: Any = initialize(transaction, Initialize(request.pair, Milliseconds(1000)), NOW, self.level)
        elif request.kind == "add":
            decision = add_partitions(
                transaction, AddPartitions(*request.pair, [PLACES[request.place]], 0), NOW, self.level
            )
        else:
            version = 5 if self.level >= 2 else 4
            decision = end(transaction, End(*request.pair, request.kind == "commit", version), NOW, self.level)
        error, pair = self._take(request.who, decision)
        if answered:
            self.answer(request, error, pair)

    def _take(self, who: int, decision: Refusal | Unchanged | Transition) -> tuple[ErrorCode, ProducerIdAndEpoch]:
        if isinstance(decision, Refusal):
            return decision.error, NO_PRODUCER
        if isinstance(decision, Unchanged):
            return ErrorCode.NONE, ProducerIdAndEpoch(decision.producer_id, decision.producer_epoch)
        if decision.to.is_prepared:
            self.marked[who] = ()
        self.transactions[who] = decision.to
        return decision.error, ProducerIdAndEpoch(decision.producer_id, decision.producer_epoch)

    def _write(self, request: Request, answered: bool) -> ErrorCode | None:
        """Have it verified; None: it is on its way to the log."""
        place, implicit = self.places[request.place], self.level >= 2
        found = place.producers.start_verification(*request.pair, request.sequence, implicit, NOW)
        if isinstance(found, ErrorCode):
            return found
        if found is None:
            return self._append(request, None)
        transaction, partitions = self.transactions[request.who], [PLACES[request.place]]
        if implicit:
            decision = add_partitions(transaction, AddPartitions(*request.pair, partitions, 2), NOW, self.level)
            error, _ = self._take(request.who, decision)
        else:
            error = verify(transaction, *request.pair, partitions)[partitions[0]]
        if error:
            return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error
        self.verified = (*self.verified, Verified(request, found, answered))
        return None

    def append_verified(self, index: int) -> None:
        """What was verified gets to its partition."""
        each = self.verified[index]
        self.verified = (*self.verified[:index], *self.verified[index + 1 :])
        error = self._append(each.request, each.guard)
        if each.waited_for:
            self.answer(each.request, error)

    def _append(self, request: Request, guard: VerificationGuard | None) -> ErrorCode:
        place = self.places[request.place]
        header = _header(len(place.log), request.pair, request.sequence, TRANSACTIONAL)
        origin = Origin.COORDINATOR if request.place == POSITIONS else Origin.CLIENT
        if origin is Origin.CLIENT and place.producers.duplicate_of(header) is not None:
            return ErrorCode.NONE
        refused = place.producers.check_data(header, guard, origin, True)
        if refused is not None:
            return refused
        place.producers.data_appended(header, len(place.log), NOW)
        place.log = (*place.log, Entry(request.pair, False, request.transaction, request.who))
        return ErrorCode.NONE

    def marker(self, who: int, place: int) -> Request:
        """The marker that a coordinator writes to a partition now."""
        transaction = self.transactions[who]
        commit = transaction.state is TransactionState.PREPARE_COMMIT
        pair = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        return Request("marker", who, int(commit), pair, place, transaction.client_transaction_version)

    def _append_marker(self, request: Request) -> None:
        place = self.places[request.place]
        header = _header(len(place.log), request.pair, -1, TRANSACTIONAL | CONTROL)
        if place.producers.check_marker(header, 0, request.sequence) is None:
            place.producers.marker_appended(header, len(place.log), 0, bool(request.transaction), NOW)
            place.log = (*place.log, Entry(request.pair, True, request.transaction, request.who))

    def unmarked(self, who: int) -> list[int]:
        """Where the marker of a prepared transaction is still to be written."""
        partitions = self.transactions[who].partitions
        return [n for n, at in enumerate(PLACES) if at in partitions and n not in self.marked[who]]

    # Faults

    def crash(self) -> None:
        """Of coordinator and leaders only what is in their journals and logs is left; nobody is answered."""
        self.verified, self.marked = (), [() for _ in self.marked]
        for place in self.places:
            place.producers._verifications.clear()
            for entry in place.producers.entries.values():
                entry.opened_by = None

    def replace(self, who: int, request: Request | None) -> None:
        """A new instance of a producer; the old one's next request is on its way still."""
        client = self.clients[who]
        self.late = self.late if request is None else tuple(sorted((*self.late, request)))
        self.verified = tuple(
            each._replace(waited_for=each.waited_for and each.request.who != who) for each in self.verified
        )
        asked = request is not None and request.kind == "commit"
        self._go_on(who, client, "unknown" if asked else "aborted", NO_PRODUCER)
        self.clients[who] = self.clients[who]._replace(doing="init")


def _header(offset: int, pair: ProducerIdAndEpoch, sequence: int, attributes: int) -> BatchHeader:
    return BatchHeader(
        Offset(offset), 49, 0, 2, 0, attributes, 0, 0, 0, pair.producer_id, pair.producer_epoch, sequence, 1
    )


# Every step that can follow


def steps(world: World) -> Iterator[tuple[str, World]]:
    """What can happen next, and the world afterwards."""
    for who in range(len(world.clients)):
        yield from _steps_of(world, who)
    for index, each in enumerate(world.verified):
        after = world.copy()
        after.append_verified(index)
        yield f"append {each.request}", after
    for index, request in enumerate(world.late):
        if index and world.late[index - 1] == request:
            continue
        after = world.copy()
        after.late = (*world.late[:index], *world.late[index + 1 :])
        yield f"never arrives: {request}", after
        after = after.copy()
        after.carry_out(request, answered=False)
        yield f"arrives late: {request}", after
    if world.faults:
        after = _faulty(world)
        after.crash()
        yield "crash", after


def _faulty(world: World) -> World:
    after = world.copy()
    after.faults -= 1
    return after


def _steps_of(world: World, who: int) -> Iterator[tuple[str, World]]:
    request, transaction = world.next_request(who), world.transactions[who]
    if request is not None:
        after = world.copy()
        after.carry_out(request, answered=True)
        yield f"{request}", after
    if transaction.is_prepared:
        yield from _endings(world, who)
    if not world.faults:
        return
    if request is not None:
        after = _faulty(world)
        after.carry_out(request, answered=False)
        yield f"its answer is lost: {request}", after
        after = _faulty(world)
        after.late = tuple(sorted((*after.late, request)))
        yield f"is late: {request}", after
    if transaction.state is TransactionState.ONGOING and transaction.pending is None:
        after = _faulty(world)
        decision = time_out(transaction, world.level, NOW)
        assert isinstance(decision, Transition)
        after._take(who, decision)
        yield f"the time of {who} is up", after
    if world.clients[who].doing in ("work", "abort") and world.clients[who].transaction + 1 < len(world.programs[who]):
        after = _faulty(world)
        after.replace(who, request)
        yield f"{who} is replaced", after


def _endings(world: World, who: int) -> Iterator[tuple[str, World]]:
    left = world.unmarked(who)
    if not left:
        after = world.copy()
        after.transactions[who] = complete(world.transactions[who], NOW)
        yield f"{who} is complete", after
    for place in left:
        request = world.marker(who, place)
        after = world.copy()
        after.carry_out(request, answered=False)
        after.marked[who] = (*after.marked[who], place)
        yield f"{request}", after
        if world.faults:
            again = after.copy()
            again.faults -= 1
            again.late = tuple(sorted((*again.late, request)))
            yield f"once more, later: {request}", again


# Promises


def broken(world: World, *, is_over: bool) -> str | None:
    """The promise that is broken in this world; `is_over`: nothing can happen any more."""
    seen = [_committed(place.log) for place in world.places]
    for who, client in enumerate(world.clients):
        for number, (places, way) in enumerate(world.programs[who]):
            counts = [seen[place].count((who, number)) for place in places]
            told = client.told[number] if number < len(client.told) else ""
            name = f"transaction {number} of producer {who}"
            # A position may be written again; it is the same.
            if any(count > 1 for count, place in zip(counts, places, strict=True) if place != POSITIONS):
                return f"{name} is shown twice"
            if (told == "aborted" or way == "abort") and any(counts):
                return f"{name} is aborted, and is shown"
            if is_over and told == "committed" and not all(counts):
                return f"{name} was committed, and {counts} is shown"
            if is_over and any(counts) and not all(counts):
                return f"{name} is torn: {counts} is shown"
    return _hanging(world) or (_position(world) if is_over else None)


def _committed(log: tuple[Entry, ...]) -> list[tuple[int, int]]:
    """(producer, transaction) of what a reader of committed records is shown."""
    shown: list[tuple[int, int]] = []
    pending: dict[int, list[tuple[int, int]]] = {}
    for entry in log:
        if not entry.is_marker:
            pending.setdefault(entry.pair.producer_id, []).append((entry.who, entry.transaction))
        else:
            found = pending.pop(entry.pair.producer_id, [])
            shown += found if entry.transaction else []
    return shown


def _hanging(world: World) -> str | None:
    """A transaction that is open in a partition is known to its coordinator, or a write is about to be ended by it."""
    for at, place in zip(PLACES, world.places, strict=True):
        for producer_id, _ in place.producers.open_transactions():
            transaction = world.transactions[producer_id - 10]
            if at not in transaction.partitions:
                return f"{at.topic} holds a transaction of {producer_id} that nobody knows: it hangs"
    return None


def _position(world: World) -> str | None:
    """The group is where the log of its positions says, by the code that loads it."""
    offsets, log = Offsets(), world.places[POSITIONS].log
    for number, entry in enumerate(log):
        if entry.is_marker:
            offsets.complete(entry.pair.producer_id, bool(entry.transaction))
        else:
            position = CommittedOffset(Offset(10 * entry.who + entry.transaction), -1, "", 0)
            offsets.put_pending(entry.pair.producer_id, f"g{entry.who}", PLACES[A], position, Offset(number))
    for who, client in enumerate(world.clients):
        made = [number for writer, number in _committed(log) if writer == who]
        found = offsets.committed(f"g{who}", PLACES[A])
        expected = 10 * who + made[-1] if made else None
        if (None if found is None else found.offset) != expected:
            return f"the group of {who} is at {found}, told {client.told}"
    return None


class Found(NamedTuple):
    """What came of looking at every order."""

    states: int
    broken: str | None
    schedule: list[str]
    """The shortest way there."""


def explore(level: int, programs: tuple[Program, ...], faults: int, without: tuple[str, ...] = ()) -> Found:
    """Look at every state, nearest first, until a promise is broken.  `without`: steps whose names begin so."""
    first = World(level, programs, faults)
    came_from: dict[int, tuple[int, str] | None] = {first.key(): None}
    waiting = deque([first])
    while waiting:
        world = waiting.popleft()
        key, moved = world.key(), False
        for step, after in steps(world):
            if step.startswith(without):
                continue
            found = after.key()
            moved = moved or (found != key and after.faults == world.faults)
            if found not in came_from:
                came_from[found] = key, step
                waiting.append(after)
        wrong = broken(world, is_over=not moved)
        if wrong is not None:
            return Found(len(came_from), wrong, _way(came_from, key))
    return Found(len(came_from), None, [])


def _way(came_from: dict[int, tuple[int, str] | None], key: int) -> list[str]:
    way: list[str] = []
    while (before := came_from[key]) is not None:
        key, step = before
        way.append(step)
    return way[::-1]
