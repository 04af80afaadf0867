"""Two nodes that are asked the same, and whose whole answers are compared.

Requests name producer ids by the order in which they first appeared; answers are told as plain dicts and lists in the
same terms.  What cannot be equal (throttle times, moments, texts, addresses) is reduced to whether it is there.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from tests.compare.coordinator.differential import Node
from tests.compare.leader.nodes import batches_of

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.message import Message
from fencepost.protocol.messages import DescribeTransactionsRequest
from fencepost.protocol.messages.produce import PartitionProduceResponse
from fencepost.protocol.types import NO_PRODUCER, ZERO_UUID, ProducerIdAndEpoch

CLOSED = "the connection was closed"
MUTE = "no answer"
FOREIGN = 123_456_789
_MEMBER, _SHORT = "member ", 30
"""Ids of members that a node made up are named by the order of their appearance."""
_NOT_READY = (14, 15, 16)
_LEARNT_AFTER = 2.0
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
            return "".join(f"    {_state(one)}\n" for one in self.kafka["transaction_states"]).rstrip("\n")
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

    def __init__(self, kafka: str, ours: str, level: int, explanations: Mapping[Explanation, Iterable[int]]) -> None:
        self.addresses = kafka, ours
        self.kafka, self.ours, self.level = Node(kafka), Node(ours), level
        self._known: tuple[list[int], list[int]] = [], []
        self._members: tuple[list[str], list[str]] = [], []
        self._explanations = explanations
        self.asked = 0
        self.explained: Counter[str] = Counter()
        self.faults: list[str] = []
        self.history: list[Asked] = []
        self.states: dict[str, Any] = {}
        self.timed_out: dict[str, ProducerIdAndEpoch] = {}
        self.diverged = False
        """Whether the nodes parted in the last scenario."""
        self.is_over = False
        """An explanation says that from here on the nodes cannot be compared."""

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
            for members in self._members:
                members += [""] * (max(map(len, self._members)) - len(members))
            for known in self._known:
                known += [-1] * (max(map(len, self._known)) - len(known))
            if str(why):
                told = "\n".join(str(asked) for asked in self.history)
                self.faults.append(f"== {title}, transaction.version {self.level}\n{told}")

    def report(self) -> str:
        return f"{len(self.faults)} scenarios differ\n" + "\n\n".join(self.faults[:3])

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
        theirs = asked.kafka
        self.asked += 1
        self.history.append(asked)
        if theirs != asked.ours:
            for explains, levels in self._explanations.items():
                if self.level in levels and explains(self, asked):
                    self.explained[explains.__name__] += 1
                    if self.is_over or not self._are_in_the_same_state():
                        raise Diverged
                    return theirs
            raise Diverged("unexplained")
        return theirs

    def _are_in_the_same_state(self) -> bool:
        """Whether both still say the same of every id that was described so far."""
        names = [name for name in self.states if name]
        request = DescribeTransactionsRequest(transactional_ids=names)
        return bool(names) and self._one(0, request, 0) == self._one(1, request, 0)

    def ask_raw(self, api: int, version: int, body: bytes) -> Any:
        """What comes back for a request that nobody could read: bytes, or nothing."""
        frame = struct.pack(">hhih", api, version, 1, -1) + body
        told = [_raw(address, struct.pack(">i", len(frame)) + frame) for address in self.addresses]
        self.asked += 1
        self.history.append(Asked((api, version), version, told[0], told[1]))
        if told[0] != told[1]:
            raise Diverged("unexplained")
        return told[0]

    def _one(self, side: int, request: Any, version: int) -> Any:
        node = (self.kafka, self.ours)[side]
        sent = self.real(request, side)
        end = time.monotonic() + 20
        while True:
            try:
                answer = node.ask(sent, version)
            except TimeoutError:
                return MUTE
            except ConnectionError:
                answer = None
            told = CLOSED if answer is None else self.heard(answer, side)
            if not _is_not_ready(told) or time.monotonic() > end:
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
        if real < 0:
            return real
        known = self._known[side]
        if real not in known:
            known.append(real)
        return 1000 + known.index(real)

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
                fields[name] = self._members[side][int(found.removeprefix(_MEMBER))]
            elif name == "producer_id":
                fields[name] = self._number(found, side)
            elif name == "producer_id_filters":
                fields[name] = [self._number(one, side) for one in found]
            else:
                fields[name] = self.real(found, side)
        return type(value)(**fields)

    def _number(self, symbol: int, side: int) -> int:
        known = self._known[side]
        return known[symbol - 1000] if 1000 <= symbol < 1000 + len(known) else symbol

    def _member(self, real: str, side: int) -> str:
        known = self._members[side]
        if real not in known:
            known.append(real)
        return f"{_MEMBER}{known.index(real)}"

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
                found = self._member(found, side)
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


def _raw(address: str, frame: bytes) -> bytes | str:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(frame)
        try:
            return connection.recv(65536) or CLOSED
        except ConnectionResetError:
            return CLOSED
        except TimeoutError:
            return MUTE


_NOT_READY_NAMES = {ErrorCode(code).name for code in _NOT_READY}


def _is_not_ready(told: Any) -> bool:
    """Whether a coordinator is still being loaded or made."""
    if isinstance(told, dict):
        return any(_is_not_ready(one) for one in told.values())
    if isinstance(told, list):
        return any(_is_not_ready(one) for one in told)
    return isinstance(told, str) and told in _NOT_READY_NAMES
