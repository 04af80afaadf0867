"""Random walks of one transactional id, of which its coordinator is asked answer by answer and state by state.

A walk is seeded and goes through requests of every version, with current, old, future and
foreign pairs.  Producer ids are compared by the order in which they first appear.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from typing import Any, NamedTuple

from tests.compare.nodes import requests
from tests.compare.nodes.comparison import Seen
from tests.compare.nodes.connection import NOT_READY, Connection, is_moving
from tests.compare.nodes.plain import Met
from tests.compare.nodes.twins import FOREIGN, NOBODY

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import ProducerIdAndEpoch

TOPIC = "differential"
PARTITIONS = 2
_SETTLED_AFTER = 5.0


class Step(NamedTuple):
    """One request.  The producer id in `pair` is its number of appearance (-1: none, 99: foreign)."""

    request: str
    version: int
    pair: ProducerIdAndEpoch
    argument: int = 0
    """Commit (1) or abort (0); partition; sequence; whether only to verify."""

    def take(self, node: Coordinator, /) -> Answer:
        return node.take(self)

    def __str__(self) -> str:
        return f"{self.request} v{self.version} {tuple(self.pair)} {self.argument}"


class Answer(NamedTuple):
    """What a node answered, and what it then says of the transactional id."""

    error: int | str
    pair: ProducerIdAndEpoch
    state: str
    current: ProducerIdAndEpoch

    def __str__(self) -> str:
        error = self.error if isinstance(self.error, str) else ErrorCode(self.error).name
        return f"{error} {tuple(self.pair)} -> {self.state} {tuple(self.current)}"


class Coordinator(Connection):
    """One of the two nodes, as the coordinator of one transactional id per walk."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._producers: Met[int] = Met()
        self._name = ""
        self._sequences: dict[tuple[int, ProducerIdAndEpoch], int] = {}

    def begin(self, name: str) -> None:
        """A new transactional id."""
        self._name, self._producers, self._sequences = name, Met(), {}

    def symbol(self, producer_id: int) -> int:
        return -1 if producer_id < 0 else self._producers.number(producer_id)

    def real(self, pair: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        if pair.producer_id < 0:
            return pair
        return ProducerIdAndEpoch.of(self._producers.real(pair.producer_id, FOREIGN), pair.producer_epoch)

    # Steps

    def take(self, step: Step) -> Answer:
        """Send the request, and see what has become of the id."""
        end = time.monotonic() + 30
        while True:
            error, pair = getattr(self, f"_{step.request}")(step)
            if error not in NOT_READY or time.monotonic() > end:
                break
            time.sleep(0.05)
        state, current = self.settled()
        return Answer(error, pair, state, current)

    def settled(self) -> tuple[str, ProducerIdAndEpoch]:
        """The state when no marker is missing any more."""
        end = time.monotonic() + _SETTLED_AFTER
        while True:
            found = self.described(self._name)
            if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return "none", NOBODY
            if found.error_code in NOT_READY:
                continue
            if not is_moving(found) or time.monotonic() > end:
                return found.transaction_state, self._pair_of(found)
            time.sleep(0.005)

    def _pair_of(self, answer: Any) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch.of(self.symbol(answer.producer_id), answer.producer_epoch)

    def _init(self, step: Step) -> tuple[int | str, ProducerIdAndEpoch]:
        answer = self.ask(requests.init(self._name, self.real(step.pair)), step.version)
        return (answer, NOBODY) if isinstance(answer, str) else (answer.error_code, self._pair_of(answer))

    def _add(self, step: Step) -> tuple[int | str, ProducerIdAndEpoch]:
        pair, partitions = self.real(step.pair), {TOPIC: [step.argument % PARTITIONS]}
        if step.version < 4:
            request = requests.add(self._name, pair, partitions)
        else:
            request = requests.batched(requests.one(self._name, pair, partitions, verify=step.argument >= PARTITIONS))
        answer = self.ask(request, step.version)
        if isinstance(answer, str):
            return answer, NOBODY
        if step.version < 4:
            return answer.results_by_topic[0].results_by_partition[0].partition_error_code, NOBODY
        if answer.error_code:
            return answer.error_code, NOBODY
        result = answer.results_by_transaction[0].topic_results[0].results_by_partition[0]
        return result.partition_error_code, NOBODY

    def _add_offsets(self, step: Step) -> tuple[int | str, ProducerIdAndEpoch]:
        answer = self.ask(requests.add_offsets(self._name, self.real(step.pair), "group"), step.version)
        return (answer if isinstance(answer, str) else answer.error_code), NOBODY

    def _produce(self, step: Step) -> tuple[int | str, ProducerIdAndEpoch]:
        partition = step.argument % PARTITIONS
        sequence = self._sequences.get((partition, step.pair), 0)
        records = requests.Written(step.pair, sequence).batch(self.real(step.pair).producer_id)
        answer = self.ask(requests.produce_records(self._name, TOPIC, partition, records), step.version)
        if isinstance(answer, str):
            return answer, NOBODY
        error = answer.responses[0].partition_responses[0].error_code
        if error == ErrorCode.NONE:
            self._sequences[partition, step.pair] = sequence + 1
        return error, NOBODY

    def _commit_offsets(self, step: Step) -> tuple[int | str, ProducerIdAndEpoch]:
        request = requests.txn_commit(self._name, self.real(step.pair), "group", {TOPIC: {0: 1}})
        answer = self.ask(request, step.version)
        return (answer if isinstance(answer, str) else answer.topics[0].partitions[0].error_code), NOBODY

    def _end(self, step: Step) -> tuple[int | str, ProducerIdAndEpoch]:
        answer = self.ask(requests.end(self._name, self.real(step.pair), commit=step.argument == 1), step.version)
        return (answer, NOBODY) if isinstance(answer, str) else (answer.error_code, self._pair_of(answer))


VERSIONS = {
    "init": (0, 1, 2, 3, 4, 5),
    "add": (0, 1, 2, 3, 4, 5),
    "add_offsets": (0, 1, 2, 3, 4),
    "produce": (3, 9, 11, 12),
    "commit_offsets": (0, 2, 3, 4, 5),
    "end": (0, 1, 2, 3, 4, 5),
}


def walk(chance: random.Random, length: int, tv2: bool) -> Generator[Step, Seen, None]:
    """Steps, each chosen knowing what was seen of the last one: mostly sensible ones, so that something happens."""
    current, known = NOBODY, [NOBODY]
    yield_first = True
    for _ in range(length):
        weights = {"init": 2, "add": 2, "add_offsets": 1, "produce": 4, "commit_offsets": 1, "end": 4}
        request = "init" if yield_first else chance.choices(list(weights), list(weights.values()))[0]
        newest = (
            VERSIONS[request][-1]
            if tv2
            else {"produce": 11, "end": 4, "commit_offsets": 4, "add": 3}.get(request, VERSIONS[request][-1])
        )
        version = newest if chance.random() < 0.6 else chance.choice(VERSIONS[request])
        pair = current
        if request == "init" and (yield_first or chance.random() < 0.5):
            pair = NOBODY
        elif chance.random() < 0.35:
            base = chance.choice(known)
            pair = chance.choice(
                [
                    base,
                    ProducerIdAndEpoch.of(base.producer_id, base.producer_epoch - 1),
                    ProducerIdAndEpoch.of(base.producer_id, base.producer_epoch + 1),
                    ProducerIdAndEpoch.of(99, base.producer_epoch),
                ]
            )
        argument = (
            chance.randrange(2) if request == "end" else chance.randrange(PARTITIONS * (2 if version >= 4 else 1))
        )
        if request in ("init", "add_offsets", "commit_offsets"):
            argument = 0
        if request == "init" and version < 3:
            pair = NOBODY
        yield_first = False
        seen = yield Step(request, version, pair, argument)
        answer: Answer = seen.answers[0]
        if answer.current != NOBODY:
            current = answer.current
            known.append(current)
