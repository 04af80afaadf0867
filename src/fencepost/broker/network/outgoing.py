"""What leaves on one connection: answers in the order of requests, then bytes that the transport has yet to take."""

from __future__ import annotations

from asyncio import Transport
from collections import deque

from fencepost.broker.network.answer_memory import AnswerMemory
from fencepost.broker.network.limits import LARGE_ANSWER, LEAST_PROGRESS, PIECE, SLOWEST_LOOKS
from fencepost.protocol.types import NO_LSN, Lsn


class Slot:
    """The place of one response in the order of requests."""

    __slots__ = ("data", "lsn", "size")

    def __init__(self, size: int) -> None:
        self.data: bytes | bytearray | None = None
        self.lsn = NO_LSN
        self.size = size
        """Bytes that wait in it: of the request, then of the response."""


class Outgoing:
    """The answers of one connection.  `memory`: of the node, for large answers that have not left."""

    def __init__(self, memory: AnswerMemory) -> None:
        self.is_writable = True
        """Whether the transport takes more."""
        self.slots: deque[Slot] = deque()
        """Requests that were taken and whose answer may not leave yet."""
        self.held = 0
        """Bytes in the slots."""
        self._memory = memory
        self._large = 0  # Bytes of large answers that are there for the client to take.
        self._handed = 0  # Bytes of what did not leave at once.
        self._seen: int | None = None  # That, when it was looked at last; None: nothing was there to be taken.
        self._output: list[bytes | bytearray] = []
        self.unsent = 0
        """Bytes of answers that were added since the last `send`."""
        self._rest: deque[memoryview] = deque()
        """Pieces that the transport did not take; they go before `_output`."""

    def new_slot(self, size: int) -> Slot:
        """The place of the answer to the request that was taken last, of so many bytes."""
        slot = Slot(size)
        self.slots.append(slot)
        self.held += size
        return slot

    def put(self, data: bytes | bytearray, slot: Slot | None, lsn: Lsn, durable: Lsn) -> bool:
        """Put an answer into its place, or behind all others (None); True if it may leave, as nothing is before it.

        Else it does when everything up to `lsn` is durable, and what is before it has left: see `take_ready`.
        """
        size = len(data)
        if slot is None:
            if not self.slots and lsn <= durable:
                if data:
                    self._leave(data)
                return True
            slot = self.new_slot(0)
        if size > LARGE_ANSWER:
            self._memory.keep(size)
        self.held += size - slot.size
        slot.data, slot.lsn, slot.size = data, lsn, size
        return False

    def take_ready(self, durable: int) -> None:
        """Let the answers at the front of the order leave next that are ready: what they depend on is in `durable`."""
        slots = self.slots
        while slots:
            slot = slots[0]
            if slot.data is None or slot.lsn > durable:
                break
            if slot.data:
                self._forget_kept(slot)
                self._leave(slot.data)
            self.held -= slot.size
            slots.popleft()

    def _leave(self, data: bytes | bytearray) -> None:
        self._output.append(data)
        size = len(data)
        self.unsent += size
        if size > LARGE_ANSWER:
            self._large += size
            self._memory.add(size)

    def _forget_kept(self, slot: Slot) -> None:
        if slot.data and len(slot.data) > LARGE_ANSWER:
            self._memory.let_go(len(slot.data))

    def is_kept_from_others(self) -> bool:
        """Whether the client has hardly taken anything since this was asked last, while others wait for that."""
        seen, self._seen = self._seen, self._handed if self._rest else None
        if seen is None or self._seen is None or not self._memory.is_wanted:
            return False
        return self._handed - seen < max(LEAST_PROGRESS, self._large // SLOWEST_LOOKS)

    def clear(self) -> None:
        """Drop what has not left yet."""
        for slot in self.slots:
            self._forget_kept(slot)
        self.slots.clear()
        self._output.clear()
        self._rest.clear()
        self._forget_large()

    def _forget_large(self) -> None:
        large, self._large = self._large, 0
        if large:
            self._memory.give(large)

    def send(self, transport: Transport | None) -> None:
        """Write what is ready to the transport, as much of a large answer as it takes; None: drop it."""
        if not self._output and not self._rest:
            return
        if transport is not None:
            if self._rest or self.unsent > PIECE:
                self._send_pieces(transport)
            else:
                transport.write(self._output[0] if len(self._output) == 1 else b"".join(self._output))
        self._output, self.unsent = [], 0
        if self._large and not self._rest:
            self._forget_large()

    def send_all(self, transport: Transport) -> None:
        """Hand over the rest, whether it is taken or not: the connection ends."""
        while self._rest and not transport.is_closing():
            transport.write(self._rest.popleft())

    def _send_pieces(self, transport: Transport) -> None:
        """Send a response piece by piece: nothing is copied before the transport takes it.

        A transport whose other end is gone says so in the node's log for each piece more that it is given.
        """
        rest = self._rest
        rest.extend(map(memoryview, self._output))
        while rest and self.is_writable and not transport.is_closing():
            piece = rest[0][:PIECE]
            if len(piece) == len(rest[0]):
                rest.popleft()
            else:
                rest[0] = rest[0][PIECE:]
            self._handed += len(piece)
            transport.write(piece)
