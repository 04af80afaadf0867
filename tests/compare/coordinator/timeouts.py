"""What the producer of a transaction that was timed out is told, by every request and version, and later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.compare.nodes import requests
from tests.compare.nodes.twins import FOREIGN, NOBODY, Twins

from fencepost.protocol.types import ProducerIdAndEpoch

A = {"twins-a": [0]}
#: request -> its versions
VERSIONS = {
    "init": range(6),
    "init with its pair": range(3, 6),
    "add": range(4),
    "add another": range(4),
    "verify": range(4, 6),
    "add implicitly": range(4, 6),
    "add offsets": range(5),
    "commit offsets": range(6),
    "produce": (3, 10, 11, 12),
    "produce elsewhere": (3, 10, 11, 12),
    "commit": range(6),
    "abort": range(6),
}
OF_VERSION_2 = {("add implicitly", 4), ("add implicitly", 5), ("commit offsets", 5), ("commit", 5), ("abort", 5)} | {
    ("produce", 12),
    ("produce elsewhere", 12),
}
#: Longer than a request and the look at both nodes after it take on a busy machine: what is asked may begin another
#: transaction that lasts as long, and one node might have aborted it by then.
TIMEOUT_MS = 3_000
RELATIONS = ("the pair that was timed out", "the pair after it", "two after it", "before it", "another producer")


def asked_for(name: str, pair: ProducerIdAndEpoch, request: str) -> Any:
    """The request of this title."""
    made: dict[str, Callable[[], Any]] = {
        "init": lambda: requests.init(name),
        "init with its pair": lambda: requests.init(name, pair),
        "add": lambda: requests.add(name, pair, A),
        "add another": lambda: requests.add(name, pair, {"twins-b": [0]}),
        "verify": lambda: requests.batched(requests.one(name, pair, A, True)),
        "add implicitly": lambda: requests.batched(requests.one(name, pair, A, False)),
        "add offsets": lambda: requests.add_offsets(name, pair, f"{name}-g"),
        "commit offsets": lambda: requests.txn_commit(name, pair, f"{name}-g", {"twins-a": {0: 7}}),
        "produce": lambda: requests.produce(name, pair, "twins-a", 0, 0),
        "produce elsewhere": lambda: requests.produce(name, pair, "twins-b", 0, 0),
        "commit": lambda: requests.end(name, pair, True),
        "abort": lambda: requests.end(name, pair, False),
    }
    return made[request]()


class Timeouts:
    """Each scenario: begin a transaction that lasts three seconds, wait for its end, then ask one thing twice."""

    def __init__(self, twins: Twins, prefix: str) -> None:
        self.twins, self.prefix = twins, prefix

    def all(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Every scenario; all transactions begin first, so that all are waited for together."""
        names: dict[str, tuple[str, int, str]] = {}
        for request, versions in VERSIONS.items():
            for version in versions:
                if self.twins.level == 0 and (request, version) in OF_VERSION_2:
                    continue  # listed: it blocks the id in Apache Kafka
                for relation in RELATIONS:
                    names[f"{self.prefix}-{len(names)}"] = request, version, relation
        begun = {name: self._begin(name) for name in names}
        time.sleep(TIMEOUT_MS / 1000)
        for name, (request, version, relation) in names.items():
            title = f"{request} v{version} with {relation}"
            yield title, lambda n=name, r=request, v=version, k=relation: self._ask(n, begun[n], r, v, k)  # type: ignore[misc]

    def _begin(self, name: str) -> ProducerIdAndEpoch:
        for _ in range(2):  # not the first epoch, so that there is one before it
            answer = self.twins.ask(requests.init(name, timeout_ms=TIMEOUT_MS), 4)
        pair = ProducerIdAndEpoch.of(answer["producer_id"], answer["producer_epoch"])
        self.twins.ask(requests.add(name, pair, A), 3)
        self.twins.timed_out[name] = pair
        return pair

    def _ask(self, name: str, began: ProducerIdAndEpoch, request: str, version: int, relation: str) -> None:
        self.twins.await_state(name, "CompleteAbort")
        self.twins.describe(name)
        steps = dict(zip(RELATIONS, (0, 1, 2, -1, 0), strict=True))
        producer = FOREIGN if relation == RELATIONS[-1] else began.producer_id
        pair = ProducerIdAndEpoch.of(producer, began.producer_epoch + steps[relation])
        if request == "init":
            pair = NOBODY
        for _ in range(2):
            self.twins.ask(asked_for(name, pair, request), version)
            self.twins.describe(name)
        for late in (4, 5) if self.twins.level else (4,):
            self.twins.ask(requests.end(name, began, False), late)
            self.twins.describe(name)
