"""Bring hundreds of transactional ids into their situations, and ask them everything after the restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.compare.coordinator.timeouts import asked_for
from tests.compare.nodes import requests
from tests.compare.nodes.plain import NOW
from tests.compare.nodes.requests import Written
from tests.compare.nodes.twins import FOREIGN, NOBODY, Asked, Twins
from tests.compare.restarts.situations import BRIEFLY, FOR_A_WHILE, LONG, RELATIONS, Case, steps

from fencepost.protocol.messages import DeleteTopicsRequest, ProduceRequest
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.types import ProducerIdAndEpoch

_VERSIONS = {"old": {"produce": 11, "commit": 4, "end": 4}, "new": {"produce": 12, "commit": 5, "end": 5}}


class Actor:
    """The producer of one transactional id, before the restart and after it."""

    def __init__(self, twins: Twins, name: str, case: Case, gone: str) -> None:
        self.twins, self.name, self.case = twins, name, case
        self.pair = NOBODY
        self.used = NOBODY
        """The pair of its last transaction."""
        self._versions = _VERSIONS[case.protocol]
        self.is_ready = False
        self.asked: list[Asked] = []
        """Of it, before the restart."""
        self._steps = list(steps(case.situation, case.protocol))
        self._sequences: dict[tuple[str, ProducerIdAndEpoch], int] = {}
        self._places = {"a": "twins-a", "b": "twins-b", "late": "twins-late", "gone": gone}

    def go(self) -> None:
        """Take the steps up to one that has to wait, or all."""
        while self._steps and self._steps[0] != "wait":
            self._take(self._steps.pop(0))
        self.is_ready = True

    def wake(self) -> None:
        """Take the rest."""
        self.is_ready = False
        if self._steps:
            self.wait()
            self._steps.pop(0)
        self.go()

    def wait(self) -> None:
        """Until its transaction is aborted by a time-out."""
        self.twins.timed_out[self.name] = self.used
        self.twins.await_state(self.name, "CompleteAbort")
        self.look()

    def look(self) -> Any:
        """What both hold of the id."""
        found = self.twins.describe(self.name)[0]
        if found["error_code"] == 0:
            self.pair = ProducerIdAndEpoch.of(found["producer_id"], found["producer_epoch"])
        return found

    def _take(self, step: str) -> None:
        verb, _, what = step.partition(" ")
        if verb == "init":
            self._init(what)
        elif verb == "add":
            self._add(what)
        elif verb == "write":
            self.used = self.pair
            self.twins.ask(self.written(self._places[what], 0), self._versions["produce"])
            self._sequences[self._places[what], self.pair] = self._next(self._places[what]) + 1
        elif verb == "offset":
            self.used = self.pair
            self.twins.ask(asked_for(self.name, self.pair, "commit offsets"), self._versions["commit"])
        else:
            self.twins.ask(requests.end(self.name, self.pair, verb == "commit"), self._versions["end"])
            self.look()

    def _init(self, how: str) -> None:
        timeout = {"briefly": BRIEFLY, "for a while": FOR_A_WHILE}.get(how, LONG)
        pair = self.pair if how == "with its pair" else NOBODY
        while True:
            answer = self.twins.ask(requests.init(self.name, pair, timeout), 4)
            if answer["error_code"] != "CONCURRENT_TRANSACTIONS":
                break
            self.look()
        if answer["error_code"] == 0:
            self.pair = ProducerIdAndEpoch.of(answer["producer_id"], answer["producer_epoch"])

    def _add(self, what: str) -> None:
        self.used = self.pair
        if what == "offsets":
            self.twins.ask(requests.add_offsets(self.name, self.pair, f"{self.name}-g"), 3)
        else:
            self.twins.ask(
                requests.add(self.name, self.pair, {self._places[what]: [0]} if what != "nothing" else {}), 3
            )

    def _next(self, topic: str) -> int:
        return self._sequences.get((topic, self.pair), 0)

    def written(self, topic: str, ahead: int, pair: ProducerIdAndEpoch | None = None) -> ProduceRequest:
        """Its next batch, or one further ahead."""
        records: Any = Written(pair or self.pair, self._next(topic) + ahead, NOW)
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        return ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=5000, topic_data=[data])

    def ask(self) -> None:
        """Twice what its case asks; then whether the id is of use."""
        self.look()
        pair = self._meant()
        for _ in range(2):
            self.twins.ask(self._request(pair), self.case.version)
            self.look()
        for _ in range(2):
            self.twins.ask(requests.init(self.name), 4)
            self.look()

    def _meant(self) -> ProducerIdAndEpoch:
        base = self.used if self.used != NOBODY and self.case.situation.startswith("timed out") else self.pair
        if self.case.relation == "another producer":
            return ProducerIdAndEpoch.of(FOREIGN, max(base.producer_epoch, 0))
        return ProducerIdAndEpoch.of(base.producer_id, max(base.producer_epoch + RELATIONS[self.case.relation], -1))

    def _request(self, pair: ProducerIdAndEpoch) -> Any:
        ahead = {"produce on": 0, "produce beyond": 1}
        if self.case.request in ahead:
            return self.written("twins-a", ahead[self.case.request], pair)
        return asked_for(self.name, pair, self.case.request)


class Rehearsal:
    """All cases of one restart."""

    def __init__(self, twins: Twins, prefix: str, cases: Sequence[Case]) -> None:
        self.twins, self.prefix = twins, prefix
        self._gone = f"{prefix}-gone"
        last_of_all = sorted(cases, key=lambda case: "while the node was down" in case.situation)
        self.actors = [Actor(twins, f"{prefix}-{n}", case, self._gone) for n, case in enumerate(last_of_all)]
        self._until = 0.0

    @property
    def groups(self) -> list[str]:
        return [f"{actor.name}-g" for actor in self.actors if "offset" in actor.case.situation]

    @property
    def settled(self) -> list[str]:
        """The ids that nothing happens to while the node is down."""
        return [actor.name for actor in self.actors if "down" not in actor.case.situation]

    def prepare(self) -> None:
        """Take all steps; an id on which the nodes part already, for a listed reason, is left out."""
        make_topics(self.twins, ("twins-a", "twins-b", "twins-late", self._gone))
        self._take(lambda actor: actor.go)
        self._until = time.monotonic() + FOR_A_WHILE / 1000
        time.sleep(0.5)
        self._take(lambda actor: actor.wake)
        self.twins.ask(DeleteTopicsRequest(topic_names=[self._gone], timeout_ms=10_000), 5)

    def _take(self, part: Callable[[Actor], Callable[[], None]]) -> None:
        for actor in self.actors:
            self.twins.play(f"preparing {actor.case}", part(actor))
            actor.asked += self.twins.history
        self.actors = [actor for actor in self.actors if actor.is_ready]

    def go_on(self) -> None:
        """Ask everything after the restart."""
        time.sleep(max(self._until - time.monotonic(), 0))
        for actor in self.actors:
            if "down" in actor.case.situation:
                actor.wait()
        for actor in self.actors:
            self.twins.play(f"{actor.name}: {actor.case}", actor.ask, actor.asked)


def make_topics(twins: Twins, names: Sequence[str]) -> None:
    """Topics of two partitions (or as they are) whose records stay."""
    for node in (twins.kafka, twins.ours):
        node.ask(requests.create_topics(dict.fromkeys(names, 2), retention_ms="-1"), 5)
