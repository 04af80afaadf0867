"""The world of every order, as tuples that can be copied: requests, clients, coordinator, leaders and faults."""

from __future__ import annotations

from copy import copy
from typing import Any, Final, NamedTuple

from fencepost.coordinator.transaction.add_partitions import AddPartitions, add_partitions
from fencepost.coordinator.transaction.decision import Refusal, Transition, Unchanged
from fencepost.coordinator.transaction.end import End, end
from fencepost.coordinator.transaction.initialize import Initialize, initialize
from fencepost.coordinator.transaction.state import State as TransactionState
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.coordinator.transaction.verify import verify
from fencepost.log.producer_state import Origin, VerificationGuard
from fencepost.log.producers import Producers
from fencepost.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import (
    NO_PRODUCER,
    LeaderEpoch,
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
        place.producers.data_appended(header, Offset(len(place.log)), NOW)
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
        if place.producers.check_marker(header, LeaderEpoch(0), request.sequence) is None:
            place.producers.marker_appended(
                header, Offset(len(place.log)), LeaderEpoch(0), bool(request.transaction), NOW
            )
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
        Offset(offset),
        49,
        LeaderEpoch(0),
        2,
        0,
        attributes,
        0,
        Milliseconds(0),
        Milliseconds(0),
        pair.producer_id,
        pair.producer_epoch,
        sequence,
        1,
    )
