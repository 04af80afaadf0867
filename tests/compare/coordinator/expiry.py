"""Every request to a transactional id that nobody used for transactional.id.expiration.ms; and two-phase commits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from tests.compare.coordinator.timeouts import VERSIONS, asked_for
from tests.compare.coordinator.walks import USUAL, Walk
from tests.compare.nodes import requests
from tests.compare.nodes.twins import FOREIGN, Twins

from fencepost.protocol.types import ProducerIdAndEpoch

#: What both nodes are started with for this.
SETTINGS = {
    "transactional.id.expiration.ms": "1500",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    "transaction.two.phase.commit.enable": "true",
}
#: Apache Kafka serves InitProducerId v6 only with this.
UNSTABLE = {"unstable.api.versions.enable": "true"}
A = {"twins-a": [0]}
STATES = ("Empty", "CompleteCommit", "CompleteAbort", "Ongoing")
RELATIONS = ("the last pair", "the one after it", "another producer's")


class Expiry:
    """Each scenario: use an id, wait until it has expired (an open transaction does not), then ask one thing twice."""

    def __init__(self, twins: Twins, prefix: str) -> None:
        self.twins, self.prefix = twins, prefix

    def all(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Every scenario; all ids are used first, so that all are waited for together."""
        every = [
            (state, request, version, relation)
            for state in STATES
            for request, versions in VERSIONS.items()
            for version in (versions[0], versions[-1])
            for relation in RELATIONS
        ]
        names = [f"{self.prefix}-{number}" for number in range(len(every))]
        pairs = {name: self._use(name, one[0]) for name, one in zip(names, every, strict=True)}
        time.sleep(2.5)
        for name, (state, request, version, relation) in zip(names, every, strict=True):
            title = f"{request} v{version} with {relation} after {state}"
            yield title, lambda n=name, r=request, v=version, k=relation: self._ask(n, pairs[n], r, v, k)  # type: ignore[misc]

    def _use(self, name: str, state: str) -> ProducerIdAndEpoch:
        answer = self.twins.ask(requests.init(name), 4)
        pair = ProducerIdAndEpoch.of(answer["producer_id"], answer["producer_epoch"])
        if state != "Empty":
            self.twins.ask(requests.add(name, pair, A), 3)
        if state.startswith("Complete"):
            self.twins.ask(requests.end(name, pair, state == "CompleteCommit"), 4)
        return pair

    def _ask(self, name: str, used: ProducerIdAndEpoch, request: str, version: int, relation: str) -> None:
        self.twins.describe(name)
        producer = FOREIGN if relation == RELATIONS[2] else used.producer_id
        pair = ProducerIdAndEpoch.of(producer, used.producer_epoch + (relation == RELATIONS[1]))
        for _ in range(2):
            self.twins.ask(asked_for(name, pair, request), version)
            self.twins.describe(name)


class TwoPhase(Walk):
    """A random walk whose producers take part in two-phase commits (InitProducerId v6)."""

    def __init__(self, twins: Twins, chance: random.Random, prefix: str) -> None:
        super().__init__(twins, chance, prefix, {**USUAL, "init": 6})

    def _init(self, name: str, version: int) -> None:  # noqa: ARG002
        timeout = self.chance.choice([60_000, 900_001, 0])
        two_phase, keep = self.chance.random() < 0.7, self.chance.random() < 0.1
        self.twins.ask(requests.init(self.name(name), self.pair(name), timeout, two_phase, keep), 6)
