"""Random walks of readers with fetch sessions (KIP-227), over several topics that are written to meanwhile.

A step is chosen by chance and by what Apache Kafka last answered; both nodes take the same ones.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from tests.compare.fetch_sessions.steps import (
    IDS,
    PARTITIONS,
    TOPICS,
    Answer,
    At,
    Delete,
    End,
    Read,
    Remake,
    Remove,
    Step,
    Write,
)
from tests.compare.nodes.comparison import Seen

from fencepost.protocol.fetch_sessions import LAST_SESSION_EPOCH

UNKNOWN = "unknown"
_WEIGHTS = {"read": 12, "write": 5, "write_transactional": 3, "end": 2, "delete": 0.5, "remove": 0.1, "nonsense": 0.6}
EVERYWHERE: tuple[At, ...] = tuple((topic, index) for topic in TOPICS for index in range(PARTITIONS))


@dataclass
class _Reader:
    """What one reader knows of its session."""

    version: int
    isolation: int
    epoch: int = 0
    followed: dict[At, int] = field(default_factory=dict)
    """Partitions, and where it goes on in them."""
    told: dict[At, int] = field(default_factory=dict)
    """The positions that its session knows."""


class _Walk:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.readers = [
            _Reader(version, isolation) for version, isolation in ((12, 0), (18, 1), (chance.randint(7, 18), 1))
        ]
        self.ends: dict[At, int] = dict.fromkeys(EVERYWHERE, 0)
        self.removed: set[str] = set()
        self.open: set[str] = set()

    def next(self) -> Step:
        if self.removed and self.chance.random() < 0.3:
            return Remake(self.removed.pop())
        kind = self.chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        step: Step = getattr(self, f"_{kind}")()
        return step

    def _there(self) -> At:
        return self.chance.choice([at for at in EVERYWHERE if at[0] not in self.removed])

    def _write(self) -> Step:
        return Write(self._there(), self.chance.choice((1, 1, 3)), self.chance.choice((10, 200, 900)))

    def _write_transactional(self) -> Step:
        of = self.chance.choice(IDS)
        self.open.add(of)
        return Write(self._there(), 1, self.chance.choice((10, 300)), of)

    def _end(self) -> Step:
        if not self.open:
            return self._read()
        of = self.chance.choice(sorted(self.open))
        self.open.discard(of)
        return End(of, self.chance.random() < 0.5)

    def _delete(self) -> Step:
        at = self._there()
        # Not into a batch that is open: there the nodes differ (see the list of differences).
        return self._read() if self.open else Delete(at, self.chance.randint(0, max(self.ends[at], 0)))

    def _remove(self) -> Step:
        if self.open or len(self.removed) > 1:
            return self._read()
        topic = self.chance.choice([topic for topic in TOPICS if topic not in self.removed])
        self.removed.add(topic)
        for index in range(PARTITIONS):
            self.ends[topic, index] = 0
        return Remove(topic)

    def _how(self) -> dict[str, Any]:
        chance = self.chance
        return {
            "max_bytes": chance.choice((1 << 20, 1 << 20, 1000, 300, 1, 0)),
            "partition_max": chance.choice((1 << 20, 1 << 20, 1 << 20, 500, 100, 0)),
            "min_bytes": chance.choice((0, 1, 1, 500)),
            "wait_ms": chance.choice((0, 0, 0, 0, 3)),
        }

    def _read(self) -> Step:
        """What a client sends that goes on with its session, now and then beginning anew or leaving."""
        chance, number = self.chance, self.chance.randrange(len(self.readers))
        reader = self.readers[number]
        forgotten: list[At] = []
        if reader.epoch == 0:
            wanted = chance.sample(EVERYWHERE, chance.randint(0 if chance.random() < 0.1 else 1, len(EVERYWHERE)))
            reader.followed = dict.fromkeys(wanted, 0)
            if chance.random() < 0.1:
                reader.followed[UNKNOWN, 0] = 0
            reader.told = {}
        elif chance.random() < 0.2:
            at = chance.choice(EVERYWHERE)
            if reader.followed.pop(at, None) is None:
                reader.followed[at] = 0
            else:
                forgotten.append(at)
                if chance.random() < 0.1:
                    reader.followed[at] = 0
        if chance.random() < 0.05:
            forgotten.append(chance.choice(EVERYWHERE))
            reader.followed.pop(forgotten[-1], None)
        asked = [(at, offset) for at, offset in reader.followed.items() if reader.told.get(at) != offset]
        if chance.random() < 0.05 and asked:
            asked.append((asked[0][0], asked[0][1] + 1))
        if chance.random() < 0.1:
            chance.shuffle(asked)
        epoch = reader.epoch if chance.random() < 0.97 else chance.choice((0, -1))
        step = Read(
            number,
            reader.version,
            epoch,
            tuple(asked),
            tuple(forgotten),
            isolation=reader.isolation if chance.random() < 0.95 else 1 - reader.isolation,
            **self._how(),
        )
        reader.told = {**reader.told, **dict(asked)}
        for at in forgotten:
            reader.told.pop(at, None)
        return step

    def _nonsense(self) -> Step:
        """Epochs, versions and sessions that are not the reader's."""
        chance, number = self.chance, self.chance.randrange(len(self.readers))
        reader = self.readers[number]
        kind = chance.choice(("epoch", "version", "session", "isolation"))
        asked = ((chance.choice(EVERYWHERE), chance.randint(-1, 5)),) if chance.random() < 0.5 else ()
        if kind == "epoch":
            wrong = (reader.epoch + 1, max(reader.epoch - 1, 1), LAST_SESSION_EPOCH, -2)
            epoch = chance.choice([one for one in wrong if one != reader.epoch])
            return Read(number, reader.version, epoch, asked, **self._how())
        if kind == "version":
            other = chance.randint(7, 12) if reader.version >= 13 else chance.randint(13, 18)
            return Read(number, other, max(reader.epoch, 1), asked, **self._how())
        if kind == "session":
            shift = chance.choice((1, -(2**31)))
            return Read(number, reader.version, chance.choice((1, -1, reader.epoch)), asked, shift=shift, **self._how())
        reader.told = {}
        return Read(number, reader.version, reader.epoch, asked, isolation=2, **self._how())

    def saw(self, step: Step, answer: Answer) -> None:
        """Go on from what Apache Kafka answered."""
        if isinstance(step, Write) and answer.end is not None:
            self.ends[step.at] = answer.end
        if not isinstance(step, Read):
            return
        reader = self.readers[step.reader]
        if step.shift:
            return
        lost = answer.error in ("FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH")
        if answer.session == "new":
            reader.epoch = 1
        elif step.epoch in (0, -1) or (step.epoch == reader.epoch and (lost or answer.session == "none")):
            reader.epoch = 0
        elif step.epoch == reader.epoch:
            reader.epoch += 1
        for at, following in answer.positions.items():
            if at in reader.followed and self.chance.random() < 0.8:
                reader.followed[at] = following


def walk(seed: int, length: int) -> Generator[Step, Seen, None]:
    """Steps of one seed, each chosen knowing what was seen of the one before it."""
    walking = _Walk(random.Random(seed))
    for _ in range(length):
        seen = yield walking.next()
        walking.saw(seen.step, seen.answers[0])
