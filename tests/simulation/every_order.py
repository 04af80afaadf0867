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
from typing import NamedTuple

from tests.simulation.every_order_world import NOW, PLACES, POSITIONS, A, Entry, Program, World

from fencepost.coordinator.group.offsets import CommittedOffset, Offsets
from fencepost.coordinator.transaction.decision import Transition
from fencepost.coordinator.transaction.prepare import complete
from fencepost.coordinator.transaction.state import State as TransactionState
from fencepost.coordinator.transaction.timeout import time_out
from fencepost.protocol.types import NO_LEADER_EPOCH, Milliseconds, Offset

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
            position = CommittedOffset(Offset(10 * entry.who + entry.transaction), NO_LEADER_EPOCH, "", Milliseconds(0))
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
