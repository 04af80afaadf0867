"""Random walks of a few transactional ids and groups through every request of the coordinators.

Each step is drawn from what a producer could sensibly do now, and often enough from what it should not.  After each
step both nodes describe the ids.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from tests.compare.nodes import requests
from tests.compare.nodes.connection import CLOSED
from tests.compare.nodes.twins import FOREIGN, NOBODY, TOPICS, Twins

from fencepost.protocol.types import ProducerIdAndEpoch

UNKNOWN = {"twins-unknown": [0]}
INTERNAL = {"__consumer_offsets": [0], "__transaction_state": [1]}
#: request -> (first version, newest version, the newest that a client below transaction.version 2 sends)
VERSIONS = {
    "init": (0, 5, 5),
    "add": (0, 3, 3),
    "batched": (4, 5, 5),
    "add_offsets": (0, 4, 4),
    "produce": (3, 12, 11),
    "txn_commit": (0, 5, 4),
    "end": (0, 5, 4),
    "commit": (2, 9, 9),
    "fetch": (1, 9, 9),
}
USUAL = {"init": 3, "add": 3, "batched": 2, "add_offsets": 1, "produce": 3, "txn_commit": 2, "end": 5, "fetch": 1}


class Walk:
    """One walk.  `weights`: how often each request comes."""

    def __init__(
        self, twins: Twins, chance: random.Random, prefix: str, weights: Mapping[str, int] = USUAL, ids: int = 2
    ) -> None:
        self.twins, self.chance, self.prefix, self.weights = twins, chance, prefix, weights
        self.names = [f"{prefix}-{number}" for number in range(ids)]
        self.groups = [f"{prefix}-g", f"{prefix}-h"]
        self.timeout_ms = 60_000
        self.internal: dict[str, list[int]] = INTERNAL
        self.current: dict[str, ProducerIdAndEpoch] = dict.fromkeys(self.names, NOBODY)
        self.seen: dict[str, list[ProducerIdAndEpoch]] = {name: [NOBODY] for name in self.names}
        self._sequences: dict[tuple[str, int, ProducerIdAndEpoch], int] = {}
        self._moves: dict[str, Callable[[str, int], None]] = {
            "init": self._init,
            "add": self._add,
            "batched": self._batched,
            "add_offsets": self._add_offsets,
            "produce": self._produce,
            "txn_commit": self._txn_commit,
            "end": self._end,
            "commit": self._commit,
            "fetch": self._fetch,
        }

    def go(self, length: int) -> None:
        for name in self.names:
            self.twins.ask(requests.init(name, timeout_ms=self.timeout_ms), 4)
        self.go_on(length)

    def go_on(self, length: int) -> None:
        self.look()
        for _ in range(length):
            self.step()

    def step(self) -> None:
        move = self.chance.choices(list(self.weights), list(self.weights.values()))[0]
        self._moves[move](self.chance.choice(self.names), self.version(move))
        self.look()

    def look(self) -> None:
        """Both say what they hold of the ids."""
        for found in self.twins.describe(*self.names, f"{self.prefix}-never", ""):
            name = found["transactional_id"]
            if found["error_code"] == 0 and name in self.current:
                pair = ProducerIdAndEpoch.of(found["producer_id"], found["producer_epoch"])
                self.current[name] = pair
                if pair not in self.seen[name]:
                    self.seen[name].append(pair)

    # Choices

    def version(self, move: str) -> int:
        first, newest, usual = VERSIONS[move]
        if self.chance.random() < 0.6:
            return newest if self.twins.level == 2 else usual
        if self.twins.level == 0 and self.chance.random() < 0.97:
            newest = max(usual, first)  # a request of version 2 blocks the id in Apache Kafka
        return self.chance.randint(first, newest)

    def pair(self, name: str) -> ProducerIdAndEpoch:
        if self.chance.random() < 0.7:
            return self.current[name]
        base = self.chance.choice(self.seen[name])
        return self.chance.choice(
            [
                base,
                ProducerIdAndEpoch.of(base.producer_id, max(base.producer_epoch - 1, -1)),
                ProducerIdAndEpoch.of(base.producer_id, min(base.producer_epoch + 1, 32767)),
                ProducerIdAndEpoch.of(FOREIGN, base.producer_epoch),
            ]
        )

    def name(self, name: str) -> str:
        return name if self.chance.random() < 0.95 else self.chance.choice([f"{self.prefix}-never", ""])

    def partitions(self, odd: float = 0.12) -> dict[str, list[int]]:
        """Some partitions that exist, rarely others."""
        found = {
            topic: sorted(self.chance.sample(range(count), self.chance.randint(1, count)))
            for topic, count in TOPICS.items()
            if self.chance.random() < 0.6
        }
        if self.chance.random() < odd:
            found |= self.chance.choice([UNKNOWN, {"twins-a": [0, 7]}, self.internal, {}])
        if self.chance.random() < 0.3:
            found = dict(reversed(found.items()))
        return found or {"twins-a": [1]}

    # Requests

    def _init(self, name: str, version: int) -> None:
        pair = self.pair(name) if version >= 3 and self.chance.random() < 0.6 else NOBODY
        timeout = self.chance.choice([self.timeout_ms] * 2 + [self.timeout_ms - 10_000, 900_000, 900_001, 0, -1])
        self.twins.ask(requests.init(self.name(name), pair, timeout), version)

    def _add(self, name: str, version: int) -> None:
        self.twins.ask(requests.add(self.name(name), self.pair(name), self.partitions()), version)

    def _batched(self, name: str, version: int) -> None:
        names = [name] if self.chance.random() < 0.6 else list(self.names)
        verify = (0.98, 0.75, 0.5)[self.twins.level]
        each = [
            requests.one(self.name(one), self.pair(one), self.partitions(0.08), self.chance.random() < verify)
            for one in names
        ]
        self.twins.ask(requests.batched(*each), version)

    def _add_offsets(self, name: str, version: int) -> None:
        group = self.chance.choice([*self.groups, ""])
        self.twins.ask(requests.add_offsets(self.name(name), self.pair(name), group), version)

    def _produce(self, name: str, version: int) -> None:
        pair, topic = self.pair(name), self.chance.choice(list(TOPICS))
        partition = self.chance.randrange(TOPICS[topic])
        if pair.producer_id < 0:
            return
        at = topic, partition, pair
        sequence = self._sequences.get(at, 0)
        answer = self.twins.ask(requests.produce(name, pair, topic, partition, sequence), version)
        if answer != CLOSED and not answer["responses"][0]["partition_responses"][0]["error_code"]:
            self._sequences[at] = sequence + 1

    def _txn_commit(self, name: str, version: int) -> None:
        member: tuple[str, int, str | None] = ("", -1, None)
        if version >= 3 and self.chance.random() < 0.15:
            member = self.chance.choice([("m", 3, None), ("m", -1, None), ("", 5, None), ("m", 1, "i"), ("", -1, "i")])
        request = requests.txn_commit(
            self.name(name),
            self.pair(name),
            self.chance.choice([*self.groups, *self.groups, ""]),
            self.to_commit(),
            self.chance.choice(["", "", None, "note", "x" * 4096, "x" * 4097]),
            member,
        )
        self.twins.ask(request, version)

    def to_commit(self) -> dict[str, dict[int, int]]:
        return {
            topic: {index: self.chance.randrange(100) for index in indexes}
            for topic, indexes in self.partitions(0.1).items()
        }

    def _end(self, name: str, version: int) -> None:
        self.twins.ask(requests.end(self.name(name), self.pair(name), self.chance.random() < 0.5), version)

    def _commit(self, name: str, version: int) -> None:  # noqa: ARG002
        self.twins.ask(requests.commit(self.chance.choice(self.groups), self.to_commit()), version)

    def _fetch(self, name: str, version: int) -> None:  # noqa: ARG002
        wanted = None if version >= 2 and self.chance.random() < 0.4 else self.partitions()
        stable = version >= 7 and self.chance.random() < 0.5
        groups = self.groups if self.chance.random() < 0.5 else [self.chance.choice([*self.groups, ""])]
        self.twins.ask(requests.fetch(groups, wanted, stable, version), version)
