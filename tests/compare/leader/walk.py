"""Random walks over two partitions: several producers, an admin who writes markers, and readers."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

from tests.compare.leader.batches import DEFECTS, Batch
from tests.compare.leader.steps import (
    HERE,
    Delete,
    End,
    EndOfEpoch,
    Fetch,
    Find,
    Mark,
    Marker,
    Produce,
    Register,
    Renew,
    Step,
)
from tests.compare.nodes.comparison import Plain, Seen
from tests.compare.nodes.leader import FOREIGN, PARTITIONS

IDS = ("t", "u")
"""Transactional ids of producers 0 and 1; producer 2 is idempotent only."""
IDEMPOTENT = 2
LAST_SEQUENCE = 2**31 - 1
_WEIGHTS = {
    "produce": 12,
    "produce_many": 1,
    "register": 3,
    "end": 3,
    "renew": 1,
    "mark": 1,
    "fetch": 2,
    "find": 1,
    "end_of_epoch": 0.3,
    "delete": 0.3,
}


class _Walk:
    """What the next step is chosen from: chance, and what Apache Kafka last said of itself."""

    def __init__(self, chance: random.Random, level: int) -> None:
        self.chance = chance
        self.level = level
        self.state: Plain = None

    def next(self) -> Step:
        kind = self.chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        step: Step = getattr(self, f"_{kind}")()
        return step

    def _mostly(self, usual: Any, *others: Any, odds: float = 0.8) -> Any:
        return usual if self.chance.random() < odds else self.chance.choice(others)

    # What is known

    def _pair(self, number: int) -> tuple[int, int]:
        """The pair that a transactional id has now: its producer id may have changed."""
        if self.state is not None and self.state["states"][number][0]:
            return self.state["states"][number][1], self.state["states"][number][2]
        return number, 0

    def _entry(self, producer: int, partition: int) -> tuple[int, int]:
        """(epoch, last sequence) of a producer as the leader knows it."""
        if self.state is not None:
            for found in self.state["producers"]["partitions"][partition]["active_producers"]:
                if found["producer_id"] == producer:
                    return found["producer_epoch"], found["last_sequence"]
        return -1, -1

    def _log_end(self, partition: int) -> int:
        return 0 if self.state is None else int(self.state["ends"][0][partition])

    # Steps

    def _batch(self, partition: int) -> tuple[Batch, str | None]:
        """A batch, and the transactional id it is sent under."""
        chance = self.chance
        producer = chance.choices((0, 1, IDEMPOTENT, FOREIGN, -1), (8, 4, 4, 1, 2))[0]
        if producer == -1:
            return Batch(count=chance.choice((1, 2)), defect=self._defect()), self._mostly(None, "", *IDS)
        number, (real, epoch) = producer, (producer, 0)
        if producer < len(IDS):
            real, epoch = self._pair(producer)
        known_epoch, last = self._entry(real, partition)
        epoch = self._mostly(epoch, max(epoch - 1, 0), epoch + 1, known_epoch, odds=0.9)
        following = (last + 1) % (LAST_SEQUENCE + 1) if epoch == known_epoch else 0
        wrong = (*(following - n for n in range(1, 8)), following + 1, following + 2, 0, LAST_SEQUENCE, -1, -2)
        sequence = self._mostly(following, *(number for number in wrong if -2 <= number <= LAST_SEQUENCE), odds=0.72)
        transactional = self._mostly(number < len(IDS), number >= len(IDS), odds=0.93)
        of = IDS[number] if number < len(IDS) else None
        name = self._mostly(of, None, "", "t", "u", odds=0.95)
        count = self._mostly(1, 2, 3, odds=0.85)
        return Batch(real, epoch, sequence, transactional, count, defect=self._defect()), name

    def _defect(self) -> str:
        defect: str = self._mostly("", *DEFECTS, odds=0.95)
        return defect

    def _version(self) -> int:
        newest = 13 if self.level == 2 else 11
        version: int = self._mostly(newest, *range(3, newest + 1), odds=0.5)
        return version

    def _produce(self) -> Step:
        partition = self.chance.randrange(PARTITIONS)
        batch, name = self._batch(partition)
        return Produce(self._version(), ((partition, batch, HERE),), name, self._mostly(-1, 1, 0, 2, odds=0.85))

    def _produce_many(self) -> Step:
        first, name = self._batch(0)
        second, _ = self._batch(1)
        return Produce(self._version(), ((0, first, HERE), (1, second, HERE)), name)

    def _of(self) -> tuple[str, int, int]:
        number = self.chance.randrange(len(IDS))
        return IDS[number], *self._pair(number)

    def _register(self) -> Step:
        partitions = self._mostly((self.chance.randrange(PARTITIONS),), (0, 1), odds=0.7)
        return Register(3, *self._of(), partitions)

    def _end(self) -> Step:
        return End(5 if self.level == 2 else 4, *self._of(), self.chance.random() < 0.5)

    def _renew(self) -> Step:
        name, producer, epoch = self._of()
        pair = self._mostly((producer, epoch), (-1, -1), odds=0.5)
        return Renew(4, name, *pair)

    def _mark(self) -> Step:
        chance = self.chance
        producer = chance.choice((0, 1, IDEMPOTENT, FOREIGN))
        partition = chance.randrange(PARTITIONS)
        if producer < len(IDS):
            # No later epoch than the coordinator's own: it could not write its own markers any more.
            producer, epoch = self._pair(producer)
            epoch = max(epoch - chance.choice((0, 0, 1)), 0)
            coordinator = 0
        else:
            epoch = max(self._entry(producer, partition)[0] + chance.choice((-1, 0, 1)), 0)
            coordinator = chance.choice((-1, 0, 1, 2))
        places = chance.choice((((HERE, (partition,)),), ((HERE, (0, 1)),)))
        version = chance.choice((1, 2))
        transaction_version = chance.choice((0, 1, 2)) if version == 2 else 0
        commit = chance.random() < 0.5
        return Mark(version, (Marker(producer, epoch, commit, places, coordinator, transaction_version),))

    def _fetch(self) -> Step:
        chance = self.chance
        parts = []
        for partition in chance.choice(((0,), (1,), (0, 1))):
            offset = chance.randint(-1, self._log_end(partition) + 1)
            parts.append((partition, offset, self._mostly(1 << 20, 0, 1, 100, 300, odds=0.6)))
        isolation = chance.choice((0, 1))
        return Fetch(chance.randint(4, 18), tuple(parts), isolation, self._mostly(1 << 20, 0, 1, 200, odds=0.7))

    def _find(self) -> Step:
        chance = self.chance
        timestamp = chance.choice((-1, -2, -3, -4, -5, -6, 0, 1, 2, 5))
        return Find(chance.randint(1, 11), ((0, timestamp), (1, timestamp)), chance.choice((0, 1)))

    def _end_of_epoch(self) -> Step:
        return EndOfEpoch(self.chance.choice((2, 3, 4)), ((0, -1, self.chance.choice((-1, 0, 1))), (1, 0, 0)))

    def _delete(self) -> Step:
        partition = self.chance.randrange(PARTITIONS)
        return Delete(2, ((partition, self.chance.randint(-1, self._log_end(partition) + 1)),))


def walk(seed: int, length: int, level: int) -> Generator[Step, Seen, None]:
    """Steps of one seed, each chosen knowing what was seen of the one before it."""
    walking = _Walk(random.Random(seed), level)
    for _ in range(length):
        seen = yield walking.next()
        walking.state = seen.states[0]
