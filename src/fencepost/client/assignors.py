"""Assignors, which share partitions out among the members of a group: pure functions, run by the group's leader.

None of them depends on the order in which members are given.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.protocol.types import TopicPartition


class Member(NamedTuple):
    """What a member of a group says of itself in JoinGroup."""

    topics: Collection[str]
    instance_id: str | None = None
    owned: Sequence[TopicPartition] = ()
    """Partitions that it has, or had until now."""
    generation: int = -1
    """The generation in which they were given to it; -1: none."""


Shares = dict[str, list[TopicPartition]]
"""Member id -> its partitions."""
Assignor = Callable[[Mapping[str, Member], Mapping[str, int]], Shares]
"""A function of the members by id, and the number of partitions of each topic."""


def in_order(members: Mapping[str, Member]) -> list[str]:
    """Ids of members: those with an instance id first, by that, so that a restart moves nothing."""

    def place(member: str) -> tuple[bool, str, str]:
        instance_id = members[member].instance_id
        return instance_id is None, instance_id or "", member

    return sorted(members, key=place)


def _looked_up(members: Mapping[str, Member]) -> dict[str, Member]:
    """The same members, whose topics are found at once: there may be tens of thousands, by a pattern."""
    return {member: known._replace(topics=dict.fromkeys(known.topics)) for member, known in members.items()}


def assign_ranges(members: Mapping[str, Member], partition_counts: Mapping[str, int]) -> Shares:
    """Shares in which each subscriber of a topic gets consecutive partitions, the first ones one more.

    Topics with as many partitions and the same subscribers are shared out alike.
    """
    members = _looked_up(members)
    assigned: Shares = {member: [] for member in in_order(members)}
    for topic, count in sorted(partition_counts.items()):
        subscribers = [member for member in assigned if topic in members[member].topics]
        if not subscribers:
            continue
        share, surplus = divmod(count, len(subscribers))
        start = 0
        for place, member in enumerate(subscribers):
            end = start + share + (place < surplus)
            assigned[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return assigned


def assign_round_robin(members: Mapping[str, Member], partition_counts: Mapping[str, int]) -> Shares:
    """Shares by turns: each partition in its order to the next member that is subscribed to its topic."""
    members = _looked_up(members)
    assigned: Shares = {member: [] for member in in_order(members)}
    turns, turn = list(assigned), 0
    for topic, count in sorted(partition_counts.items()):
        if not any(topic in member.topics for member in members.values()):
            continue
        for number in range(count):
            while topic not in members[turns[turn]].topics:
                turn = (turn + 1) % len(turns)
            assigned[turns[turn]].append(TopicPartition(topic, number))
            turn = (turn + 1) % len(turns)
    return assigned


def assign_sticky(members: Mapping[str, Member], partition_counts: Mapping[str, int]) -> Shares:
    """Shares as even as the subscriptions allow, in which members keep as many of their partitions as that allows.

    Nobody has two more than somebody who could have one of them.  Where several say that they had a partition, whoever
    had it in the newest generation did.
    """
    shares = _Shares(members, partition_counts)
    for at, member in _owners(members, partition_counts).items():
        shares.give(at, member)
    shares.give_the_rest()
    shares.even_out()
    return {member: sorted(found) for member, found in shares.assigned.items()}


def assign_cooperatively(members: Mapping[str, Member], partition_counts: Mapping[str, int]) -> Shares:
    """As `assign_sticky`, without partitions that another member still has: it gives them up first (KIP-429).

    Whoever gives something up joins again, and it is shared out then.
    """
    holders: dict[TopicPartition, list[str]] = {}
    for member, known in members.items():
        for at in known.owned:
            holders.setdefault(at, []).append(member)
    return {
        member: [at for at in found if all(holder == member for holder in holders.get(at, ()))]
        for member, found in assign_sticky(members, partition_counts).items()
    }


RANGE: Final = "range"
ROUND_ROBIN: Final = "roundrobin"
STICKY: Final = "sticky"
COOPERATIVE_STICKY: Final = "cooperative-sticky"
ASSIGNORS: Final[Mapping[str, Assignor]] = {
    RANGE: assign_ranges,
    ROUND_ROBIN: assign_round_robin,
    STICKY: assign_sticky,
    COOPERATIVE_STICKY: assign_cooperatively,
}
"""The assignors by the names that members agree on, which are Apache Kafka's."""


def strategies_of(names: str | Sequence[str]) -> tuple[str, ...]:
    """Assignors by the setting partition_assignment_strategy.  Raises ValueError for unknown, repeated or no names.

    Raises TypeError for what are no names.
    """
    known = f"partition_assignment_strategy={names!r}: it must be one or several of {', '.join(ASSIGNORS)}, each once"
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise TypeError(known)
    found = (names,) if isinstance(names, str) else tuple(names)
    if not found or any(name not in ASSIGNORS for name in found) or len(set(found)) < len(found):
        raise ValueError(known)
    return found


def is_cooperative(strategies: Sequence[str]) -> bool:
    """Whether members with these keep their partitions while they join: only if no other one may be chosen."""
    return all(strategy == COOPERATIVE_STICKY for strategy in strategies)


def _owners(members: Mapping[str, Member], counts: Mapping[str, int]) -> dict[TopicPartition, str]:
    """By partition, the member that had it last and may keep it; left out if two say so of the same generation."""
    members = _looked_up(members)
    newest: dict[TopicPartition, tuple[int, list[str]]] = {}
    for member in in_order(members):
        known = members[member]
        for at in dict.fromkeys(known.owned):
            if at.topic not in known.topics or not 0 <= at.partition < counts.get(at.topic, 0):
                continue
            generation, holders = newest.get(at, (known.generation, []))
            if known.generation > generation:
                newest[at] = known.generation, [member]
            elif known.generation == generation:
                newest[at] = generation, [*holders, member]
    return {at: holders[0] for at, (_, holders) in sorted(newest.items()) if len(holders) == 1}


class _Shares:
    """Shares under way: `assigned` has the partitions of each member so far."""

    def __init__(self, members: Mapping[str, Member], counts: Mapping[str, int]) -> None:
        self.assigned: Shares = {member: [] for member in in_order(members)}
        self._places = {member: place for place, member in enumerate(self.assigned)}
        self._owner: dict[TopicPartition, str] = {}
        wanting: dict[str, list[str]] = {}
        for member in self.assigned:
            for topic in dict.fromkeys(members[member].topics):
                wanting.setdefault(topic, []).append(member)
        self._alike: dict[tuple[str, ...], list[TopicPartition]] = {}
        """Subscribers -> the partitions of all topics that exactly they want."""
        self._subscribers: dict[str, tuple[str, ...]] = {}
        for topic, subscribers in sorted(wanting.items()):
            alike = tuple(subscribers)
            self._subscribers[topic] = alike
            self._alike.setdefault(alike, [])
            self._alike[alike] += [TopicPartition(topic, number) for number in range(counts.get(topic, 0))]

    def give(self, at: TopicPartition, member: str) -> None:
        self.assigned[member].append(at)
        self._owner[at] = member

    def _load(self, member: str) -> tuple[int, int]:
        return len(self.assigned[member]), self._places[member]

    def give_the_rest(self) -> None:
        """Give each partition without an owner to the subscriber with fewest; those with fewest subscribers first."""
        for subscribers, partitions in sorted(self._alike.items(), key=lambda alike: (len(alike[0]), alike[0])):
            heap = [(*self._load(member), member) for member in subscribers]
            heapq.heapify(heap)
            for at in partitions:
                if at not in self._owner:
                    self.give(at, heap[0][2])
                    heapq.heapreplace(heap, (*self._load(heap[0][2]), heap[0][2]))

    def even_out(self) -> None:
        """Move partitions while a member has two more than another one that can have one of them."""
        while any(self._even_out(subscribers) for subscribers in self._alike):
            pass

    def _even_out(self, subscribers: tuple[str, ...]) -> bool:
        """Even out among these subscribers of the same topics; whether a partition was moved."""
        has_moved = False
        here = {
            member: [at for at in self.assigned[member] if self._subscribers[at.topic] == subscribers]
            for member in subscribers
        }
        while True:
            least = min(subscribers, key=self._load)
            givers = [member for member in subscribers if here[member]]
            most = max(givers, key=self._load, default=least)
            if len(self.assigned[most]) < len(self.assigned[least]) + 2:
                return has_moved
            at = here[most].pop()
            self.assigned[most].remove(at)
            self.give(at, least)
            here[least].append(at)
            has_moved = True
