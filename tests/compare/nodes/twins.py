"""Two nodes that are asked the same, and whose whole answers are compared.

Requests name producer ids by the order in which they first appeared; answers are told as plain dicts and lists in the
same terms.  What cannot be equal (throttle times, moments, texts, addresses) is reduced to whether it is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from tests.compare.nodes.comparison import Findings
from tests.compare.nodes.connection import MUTE, NOT_READY, Connection, frame
from tests.compare.nodes.plain import Met, batches_of, even_out
from tests.compare.nodes.two_nodes import TwoNodes

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.message import Message
from fencepost.protocol.messages import DescribeTransactionsRequest
from fencepost.protocol.messages.produce import PartitionProduceResponse
from fencepost.protocol.types import NO_PRODUCER, ZERO_UUID, ProducerIdAndEpoch

#: What nodes are started with whose coordinators are to be quick, and topics with their numbers of partitions.
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
}
TOPICS = {"twins-a": 2, "twins-b": 1}
FOREIGN = 123_456_789
_MEMBER, _SHORT = "member ", 30
"""Ids of members that a node made up are named by the order of their appearance."""
_FIRST = 1000
"""The number of the first producer id that was met."""
_LEARNT_AFTER = 2.0
_PATIENCE_WITH_NONSENSE = 5.0
_IGNORED = (
    "throttle_time_ms",
    "transaction_timed_out",
    "host",
    "port",
    "base_offset",
    "log_start_offset",
    "client_host",
)
_TEXTS = ("error_message",)
_MOMENTS = ("transaction_start_time_ms", "log_append_time_ms")
_UNORDERED = {
    "topics": ("topic", "name"),
    "topic_results": ("name",),
    "results_by_topic": ("name",),
    "results_by_partition": ("partition_index",),
    "partitions": ("partition_index",),
    "transaction_states": ("transactional_id",),
    "groups": ("group_id",),
    "members": ("member_id",),
    "results": ("group_id", "feature"),
}
"""Lists that come from a hash table: in which field, and by what they are sorted."""


#: Here, and in what follows, a producer id is its number of appearance (-1: none), the same on both nodes.
NOBODY = NO_PRODUCER


@runtime_checkable
class Batch(Protocol):
    """A batch whose producer id is put in for each node."""

    pair: ProducerIdAndEpoch

    def batch(self, producer_id: int) -> bytes: ...


class Asked(NamedTuple):
    """One request and both answers."""

    request: Any
    version: int
    kafka: Any
    ours: Any
    level: int = 2

    @property
    def name(self) -> str:
        return type(self.request).__name__.removesuffix("Request")

    def __str__(self) -> str:
        same = self.kafka == self.ours
        if same and self.name == "DescribeTransactions":
            return "".join(f"    {_state(one)}\n" for one in self.kafka.get("transaction_states", ())).rstrip("\n")
        told = f"    both:      {self.kafka}" if same else f"    kafka:     {self.kafka}\n    fencepost: {self.ours}"
        return f"{self.name} v{self.version} {brief(self.request)}\n{told}"


def _state(one: Any) -> str:
    if one["error_code"]:
        return f"{one['transactional_id']!r}: {one['error_code']}"
    pair = one["producer_id"], one["producer_epoch"]
    return f"{one['transactional_id']!r}: {one['transaction_state']} {pair} {one.get('topics', '')}"


class Diverged(Exception):
    """The nodes are not in the same state any more; the rest of this scenario says nothing."""


#: Whether a listed reason explains a difference.  It is given both answers and everything asked before.
Explanation = Callable[["Twins", Asked], bool]


def brief(message: Any) -> str:
    """The fields that are not their defaults."""
    if isinstance(message, Message):
        fields = message.__schema__.fields
        given = (f"{k}={brief(getattr(message, k))}" for k in fields if getattr(message, k) != fields[k].default)
        return f"({', '.join(given)})"
    if isinstance(message, list):
        return f"[{', '.join(brief(one) for one in message)}]"
    told = repr(message)
    return told if len(told) < 100 else f"<{len(message)} long>"


class Twins:
    """Apache Kafka and Fencepost, side by side."""

    def __init__(self, nodes: TwoNodes, level: int, explanations: Mapping[Explanation, Collection[int]]) -> None:
        self.nodes, self.addresses = nodes, nodes.addresses
        self.kafka, self.ours = (Connection(address) for address in nodes.addresses)
        self.findings = Findings(explanations)
        self._producers: tuple[Met[int], Met[int]] = Met(), Met()
        self._members: tuple[Met[str], Met[str]] = Met(), Met()
        self.set_level(level)
        self.history: list[Asked] = []
        self.states: dict[str, Any] = {}
        self.timed_out: dict[str, ProducerIdAndEpoch] = {}
        self.diverged = False
        """Whether the nodes parted in the last scenario."""
        self.is_over = False
        """An explanation says that from here on the nodes cannot be compared."""

    @property
    def level(self) -> int:
        """Of transaction.version; a walk may think it another one for a while."""
        return self.findings.level

    @level.setter
    def level(self, level: int) -> None:
        self.findings.level = level

    def set_level(self, level: int) -> None:
        """Finalize transaction.version on both."""
        self.nodes.set_level(level)
        self.level = level

    def restart(self, how: str) -> None:
        """End both nodes, start them again, and connect anew."""
        self.nodes.restart(how)
        for connection in (self.kafka, self.ours):
            connection.hang_up()

    # Scenarios

    def play(self, title: str, scenario: Callable[[], object], before: Iterable[Asked] = ()) -> None:
        """Run one scenario; a difference that nothing explains is kept, with all that led to it.

        `before`: what was asked in the part of it that was played already.
        """
        self.history, self.states, self.is_over = list(before), {}, False
        self.diverged = False
        try:
            scenario()
        except Diverged as why:
            self.diverged = True
            # One side may know of more: later ones are to have the same names.
            even_out(self._members)
            even_out(self._producers)
            if str(why):
                told = "\n".join(str(asked) for asked in self.history)
                self.findings.faults.append(f"== {title}, transaction.version {self.level}\n{told}")

    # Asking

    def ask(self, request: Any, version: int, told: Callable[[Any], Any] | None = None) -> Any:
        """The answer (what `told` takes of it) if both are the same; else raises Diverged."""
        theirs, ours = self._one(0, request, version), self._one(1, request, version)
        if told is not None:
            theirs, ours = told(theirs), told(ours)
        return self.judge(Asked(request, version, theirs, ours, self.level))

    def agreed(self, request: Any, version: int, told: Callable[[Any], Any] = lambda answer: answer) -> Any:
        """What both answer in the end: a node of Apache Kafka learns of a change after it was answered."""
        end = time.monotonic() + _LEARNT_AFTER
        while True:
            theirs, ours = (told(self._one(side, request, version)) for side in (0, 1))
            if theirs == ours or time.monotonic() > end:
                return self.judge(Asked(request, version, theirs, ours, self.level))
            time.sleep(0.02)

    def judge(self, asked: Asked) -> Any:
        """The answer if it is the same, or differs for a listed reason; else raises Diverged."""
        self.findings.compared += 1
        self.history.append(asked)
        if asked.kafka != asked.ours:
            if not self.findings.explains(self, asked):
                raise Diverged("unexplained")
            if self.is_over or not self._are_in_the_same_state():
                raise Diverged
        return asked.kafka

    def _are_in_the_same_state(self) -> bool:
        """Whether both still say the same of every id that was described so far."""
        names = [name for name in self.states if name]
        request = DescribeTransactionsRequest(transactional_ids=names)
        return bool(names) and self._one(0, request, 0) == self._one(1, request, 0)

    def ask_raw(self, api: int, version: int, body: bytes) -> Any:
        """What comes back for a request that nobody could read: bytes, CLOSED or MUTE."""
        told: list[bytes | str] = []
        for address in self.addresses:
            connection = Connection(address, _PATIENCE_WITH_NONSENSE)
            told.append(connection.send_frame(frame(api, version, body)) or connection.frame(connection.patience))
            connection.hang_up()
        return self.judge(Asked((api, version), version, told[0], told[1], self.level))

    def _one(self, side: int, request: Any, version: int) -> Any:
        node = (self.kafka, self.ours)[side]
        sent = self.real(request, side)
        end = time.monotonic() + 20
        while True:
            answer = node.ask(sent, version)
            told = answer if isinstance(answer, str) else self.heard(answer, side)
            if answer == MUTE or not _is_not_ready(told) or time.monotonic() > end:
                return told
            time.sleep(0.02)

    def describe(self, *names: str) -> list[Any]:
        """What both say of the transactional ids, once no marker is missing any more."""
        wanted = list(names)
        for side in (0, 1):
            end = time.monotonic() + 5
            while time.monotonic() < end:
                found = self._one(side, DescribeTransactionsRequest(transactional_ids=wanted), 0)
                if not any(one["transaction_state"].startswith("Prepare") for one in found["transaction_states"]):
                    break
                time.sleep(0.002)
        told: list[Any] = self.ask(DescribeTransactionsRequest(transactional_ids=wanted), 0)["transaction_states"]
        self.states |= {one["transactional_id"]: one for one in told}
        return told

    def await_state(self, name: str, state: str, patience: float = 60.0) -> None:
        """Wait until each node says that the transactional id is in this state: one may come to it long before."""
        for side in (0, 1):
            end = time.monotonic() + patience
            while True:
                found = self._one(side, DescribeTransactionsRequest(transactional_ids=[name]), 0)
                reached = found["transaction_states"][0].get("transaction_state")
                if reached == state:
                    break
                assert time.monotonic() < end, f"{name} is {reached} on {self.addresses[side]}, and not {state}"
                time.sleep(0.05)

    def held(self, name: str) -> ProducerIdAndEpoch:
        """The pair that the transactional id had when it was last described."""
        found = self.states.get(name)
        return (
            NOBODY
            if found is None or found["error_code"]
            else ProducerIdAndEpoch.of(found["producer_id"], found["producer_epoch"])
        )

    def state(self, name: str) -> str:
        """The state that the transactional id had when it was last described."""
        return str(self.states.get(name, {}).get("transaction_state", ""))

    # Names of producer ids

    def symbol(self, real: int, side: int) -> int:
        return real if real < 0 else _FIRST + self._producers[side].number(real)

    def real(self, value: Any, side: int) -> Any:
        """A request with the node's own producer ids."""
        if isinstance(value, list):
            return [self.real(one, side) for one in value]
        if isinstance(value, Batch):
            return value.batch(self._number(value.pair.producer_id, side))
        if not isinstance(value, Message):
            return value
        fields: dict[str, Any] = {}
        for name in value.__schema__.fields:
            found = getattr(value, name)
            if name == "member_id" and str(found).startswith(_MEMBER):
                fields[name] = self._members[side].real(int(found.removeprefix(_MEMBER)), "")
            elif name == "producer_id":
                fields[name] = self._number(found, side)
            elif name == "producer_id_filters":
                fields[name] = [self._number(one, side) for one in found]
            else:
                fields[name] = self.real(found, side)
        return type(value)(**fields)

    def _number(self, symbol: int, side: int) -> int:
        return self._producers[side].real(symbol - _FIRST, symbol)

    def heard(self, value: Any, side: int) -> Any:
        """An answer in terms that both share."""
        if isinstance(value, list):
            return [self.heard(one, side) for one in value]
        if not isinstance(value, Message):
            return value
        told: dict[str, Any] = {}
        refused = getattr(value, "error_code", 0) != 0
        for name in value.__schema__.fields:
            found = getattr(value, name)
            if name in _IGNORED or (name in _TEXTS and (refused or isinstance(value, PartitionProduceResponse))):
                continue
            if name.endswith("producer_id") and not refused:
                found = self.symbol(found, side)
            elif name in ("member_id", "leader") and len(found) > _SHORT:
                found = f"{_MEMBER}{self._members[side].number(found)}"
            elif name == "node_id" and found >= 0:
                found = "a node"
            elif name in _MOMENTS and found > 0:
                found = "set"
            elif name.endswith("error_code"):
                found = ErrorCode(found).name if found else 0
            elif name == "records":
                found = batches_of(found, lambda real: self.symbol(real, side))
            found = self.heard(found, side)
            if name in _UNORDERED:
                found = _sorted(found, _UNORDERED[name])
            if found != ZERO_UUID and found != []:
                told[name] = found
        return told


def _sorted(found: list[Any], keys: tuple[str, ...]) -> list[Any]:
    if found and isinstance(found[0], int):
        return sorted(found)
    return sorted(found, key=lambda one: [one.get(key, "") for key in keys])


_NOT_READY_NAMES = {code.name for code in NOT_READY}


def _is_not_ready(told: Any) -> bool:
    """Whether a coordinator is still being loaded or made."""
    if isinstance(told, dict):
        return any(_is_not_ready(one) for one in told.values())
    if isinstance(told, list):
        return any(_is_not_ready(one) for one in told)
    return isinstance(told, str) and told in _NOT_READY_NAMES
