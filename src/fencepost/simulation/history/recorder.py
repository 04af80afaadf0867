"""Writes down what happens in a simulated world while it happens, and changes nothing of it.

It is shown the network's bytes, what is appended to partitions, and what applications call; it draws nothing, waits for
nothing and sets no timer, so that a run is the same with it and without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from fencepost.coordinator.transaction.state import State
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.codec import decode_stored
from fencepost.protocol.control import COMMIT, read_control_record
from fencepost.protocol.records import decode_batch
from fencepost.protocol.stored import TransactionLogKey, TransactionLogValue
from fencepost.protocol.types import NO_LSN, NO_PRODUCER, TRANSACTION_STATE, Buffer, Lsn, ProducerIdAndEpoch
from fencepost.simulation.history import messages
from fencepost.simulation.history.events import (
    Answer,
    Append,
    Arrival,
    Call,
    CallFault,
    Durable,
    Event,
    Loss,
    NodeChange,
    Note,
    Outcome,
    Request,
    RequestFault,
    Return,
    Transition,
    Trouble,
)


class End(Protocol):
    """One end of a connection."""

    @property
    def owner(self) -> str:
        """The client whose connection it is."""
        ...

    @property
    def is_client(self) -> bool:
        """Whether it is the client's end."""
        ...

    @property
    def peer(self) -> Any:
        """The other end."""
        ...


@dataclass
class _Exchange:
    """A request and its answer, as far as they have come."""

    number: int
    api: int
    version: int
    correlation_id: int
    has_arrived: bool = False
    has_answer: bool = False


@dataclass
class _Conversation:
    """One connection, from the client's end."""

    number: int
    open: dict[int, _Exchange] = field(default_factory=dict)
    """Exchanges that are not over, by correlation id."""
    on_its_way: dict[bool, deque[tuple[int, _Exchange]]] = field(
        default_factory=lambda: {True: deque(), False: deque()}
    )
    """To the node (True) and back: how many bytes have arrived when it has, in order."""
    written: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    arrived: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    half: bytearray = field(default_factory=bytearray)
    """What the node has written of an answer."""


class Recorder:
    """Writes down everything that happens, in order, in seconds of virtual time.

    `durable`: up to which lsn the node is; `state_of`: the state in which its coordinator has a transactional id.  None
    where there is no node, or where it does not know.
    """

    def __init__(
        self, now: Callable[[], float], durable: Callable[[], Lsn | None], state_of: Callable[[str], str | None]
    ) -> None:
        self.events: list[Event] = []
        self._now = now
        self._durable = durable
        self._state_of = state_of
        self._last_durable = NO_LSN
        self._conversations: dict[Any, _Conversation] = {}
        self._exchanges = self._connections = self._calls = 0
        self._states: dict[str, str] = {}
        self._topics: messages.Topics = {}

    @property
    def time(self) -> int:
        """The virtual time, in microseconds."""
        return round(self._now() * 1_000_000)

    def _add(self, event: Event) -> None:
        durable = self._durable()
        if durable is not None and durable > self._last_durable:
            self._last_durable = durable
            self.events.append(Durable(self.time, durable))
        self.events.append(event)

    # The network (network.Watch)

    def wrote(self, end: End, data: bytes, /) -> None:
        """Note that a client writes requests, or the node a part of its answers."""
        conversation = self._conversation(end)
        if end.is_client:
            for frame in messages.frames(data):
                self._asked(conversation, end.owner, frame)
            return
        half = conversation.half
        half += data
        while len(half) >= 4 and len(half) >= (size := 4 + int.from_bytes(half[:4], "big")):
            frame = bytes(half[4:size])
            del half[:size]
            self._answered(conversation, frame)

    def _conversation(self, end: End) -> _Conversation:
        ours = end if end.is_client else end.peer
        if ours not in self._conversations:
            self._connections += 1
            self._conversations[ours] = _Conversation(self._connections)
        return self._conversations[ours]

    def _asked(self, conversation: _Conversation, owner: str, frame: bytes) -> None:
        header, said = messages.read_request(frame, self._topics)
        self._exchanges += 1
        exchange = _Exchange(self._exchanges, header.api, header.version, header.correlation_id)
        conversation.open[header.correlation_id] = exchange
        conversation.written[True] += 4 + len(frame)
        conversation.on_its_way[True].append((conversation.written[True], exchange))
        self._add(
            Request(
                self.time,
                exchange.number,
                client=owner or header.client_id,
                connection=conversation.number,
                api=messages.name_of(header.api),
                version=header.version,
                correlation_id=header.correlation_id,
                transactional_id=said.transactional_id,
                producer_id=said.producer_id,
                producer_epoch=said.producer_epoch,
                group=said.group,
                partitions=tuple(said.partitions),
                batches=tuple(said.batches),
                detail=said.detail,
            )
        )

    def _answered(self, conversation: _Conversation, frame: bytes) -> None:
        conversation.written[False] += 4 + len(frame)
        exchange = conversation.open.get(int.from_bytes(frame[:4], "big"))
        if exchange is None:
            return
        said = messages.read_answer(frame, exchange.api, exchange.version, self._topics)
        exchange.has_answer = True
        conversation.on_its_way[False].append((conversation.written[False], exchange))
        self._add(
            Answer(
                self.time,
                exchange.number,
                errors=tuple(said.errors),
                producer_id=said.producer_id,
                producer_epoch=said.producer_epoch,
                offsets=tuple(said.offsets),
                batches=tuple(said.batches),
                detail=said.detail,
            )
        )

    def befell(self, end: End, request: bytes, what: str, /) -> None:
        """Note that a fault befalls a request that a client wrote."""
        exchange = self._conversation(end).open.get(int.from_bytes(request[8:12], "big"))
        if exchange is not None:
            self._add(RequestFault(self.time, exchange.number, what))

    def arrived(self, end: End, count: int, /) -> None:
        """Note that `count` bytes arrive at one end."""
        conversation, to_node = self._conversation(end), not end.is_client
        conversation.arrived[to_node] += count
        waiting = conversation.on_its_way[to_node]
        while waiting and waiting[0][0] <= conversation.arrived[to_node]:
            exchange = waiting.popleft()[1]
            if to_node:
                exchange.has_arrived = True
                self._add(Arrival(self.time, exchange.number))
            else:
                conversation.open.pop(exchange.correlation_id, None)
                self._add(Return(self.time, exchange.number))

    def lost(self, end: End, /) -> None:
        """Note that an end is gone; of what the node does for a client that is gone nothing is noted."""
        if not end.is_client:
            return
        conversation = self._conversation(end)
        for exchange in conversation.open.values():
            what = "answer" if exchange.has_answer else "unanswered" if exchange.has_arrived else "request"
            self._add(Loss(self.time, exchange.number, what))

    # The node

    def appended(self, topic: str, index: int, header: BatchHeader, data: Buffer, lsn: Lsn) -> None:
        """Note that a batch was appended to a partition."""
        batch = messages.batch_of(data, header, f"{topic}-{index}")
        marker = ""
        if header.is_control:
            control = read_control_record(data, 0, header)
            marker = "COMMIT" if control is not None and control.type == COMMIT else "ABORT"
        self._add(Append(self.time, batch, int(header.base_offset), header.last_offset, marker, lsn))
        if topic == TRANSACTION_STATE and not header.is_control:
            for record in decode_batch(data, 0, header):
                self._changed(decode_stored(TransactionLogKey, record.key or b"").transactional_id, record.value, lsn)

    def _changed(self, transactional_id: str, stored: bytes | None, lsn: Lsn) -> None:
        before = self._state_of(transactional_id) or self._states.get(transactional_id, "")
        if stored is None:
            self._states.pop(transactional_id, None)
            after, producer, partitions = State.DEAD.wire_name, NO_PRODUCER, []
        else:
            value = decode_stored(TransactionLogValue, stored)
            after = self._states[transactional_id] = State(value.transaction_status).wire_name
            producer = ProducerIdAndEpoch.of(int(value.producer_id), int(value.producer_epoch))
            topics = value.transaction_partitions or ()
            partitions = [f"{topic.topic}-{index}" for topic in topics for index in topic.partition_ids]
        self._add(
            Transition(
                self.time,
                transactional_id,
                before=before,
                after=after,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                partitions=tuple(partitions),
                lsn=lsn,
            )
        )

    def node(self, what: str, life: int) -> None:
        """Note that the node started or ended.  `life`: which start it was, from 1."""
        self._last_durable = NO_LSN
        self._add(NodeChange(self.time, what, life))

    # The run

    def trouble(self, what: str, *, is_over: bool = False) -> None:
        """Note that a trouble befalls the node, or is over."""
        self._add(Trouble(self.time, what, is_over))

    def call_befell(self, call: str, what: str, about: str) -> None:
        """Note that a fault befalls a call between a coordinator and a leader."""
        self._add(CallFault(self.time, call, what, about))

    def note(self, text: str) -> None:
        """Note this sentence."""
        self._add(Note(self.time, text))

    def called(self, client: str, operation: str) -> int:
        """Note that an application calls a method of its client; the number of the call."""
        self._calls += 1
        self._add(Call(self.time, self._calls, client, operation))
        return self._calls

    def ended(self, call: int, error: BaseException | None) -> None:
        """Note that a call has returned, or raised `error`."""
        text = "" if error is None else f"{type(error).__name__}: {error}".removesuffix(": ")
        self._add(Outcome(self.time, call, text))
