"""What leaves on one connection: answers in the order of requests, then bytes that the transport has yet to take."""

from __future__ import annotations

from asyncio import Transport
from collections import deque

from fencepost.broker.network.limits import LARGE_ANSWER, PIECE, MemoryPool


class Slot:
    """The place of one response in the order of requests."""

    __slots__ = ("data", "lsn", "size")

    def __init__(self, size: int) -> None:
        self.data: bytes | bytearray | None = None
        self.lsn = 0
        self.size = size
        """Bytes that wait in it: of the request, then of the response."""


class Outgoing:
    """The answers of one connection.  `memory`: of the node, for large answers that have not left."""

    def __init__(self, memory: MemoryPool) -> None:
        self.is_writable = True
        """Whether the transport takes more."""
        self.slots: deque[Slot] = deque()
        """Requests that were taken and whose answer may not leave yet."""
        self.held = 0
        """Bytes in the slots."""
        self._memory = memory
        self._large = 0  # Bytes of large answers that have not left.
        self._output: list[bytes | bytearray] = []
        self.unsent = 0
        """Bytes of answers that were added since the last `send`."""
        self._rest: deque[memoryview] = deque()
        """What the transport did not take; in front of the output."""

    def new_slot(self, size: int) -> Slot:
        """The place of the answer to the request that was taken last, of so many bytes."""
        slot = Slot(size)
        self.slots.append(slot)
        self.held += size
        return slot

    def put(self, data: bytes | bytearray, slot: Slot | None, lsn: int, durable: int) -> bool:
        """An answer into its place, or behind all others; True if it may leave, as nothing is before it.

        Else it does when everything up to `lsn` is durable, and what is before it has left: see `take_ready`.
        """
        size = len(data)
        if size > LARGE_ANSWER:
            self._large += size
            self._memory.add(size)
        if slot is None:
            if not self.slots and lsn <= durable:
                if data:
                    self._output.append(data)
                    self.unsent += size
                return True
            slot = self.new_slot(0)
        self.held += size - slot.size
        slot.data, slot.lsn, slot.size = data, lsn, size
        return False

    def take_ready(self, durable: int) -> None:
        """What is ready at the front of the order leaves next."""
        slots = self.slots
        while slots:
            slot = slots[0]
            if slot.data is None or slot.lsn > durable:
                break
            if slot.data:
                self._output.append(slot.data)
                self.unsent += len(slot.data)
            self.held -= slot.size
            slots.popleft()

    def clear(self) -> None:
        """Drop what has not left yet."""
        self.slots.clear()
        self._output.clear()
        self._rest.clear()
        self._forget_large()

    def _forget_large(self) -> None:
        large, self._large = self._large, 0
        if large:
            self._memory.give(large)

    def send(self, transport: Transport | None) -> None:
        """Hand over what the transport takes."""
        if not self._output and not self._rest:
            return
        if transport is not None:
            if self._rest or self.unsent > PIECE:
                self._send_pieces(transport)
            else:
                transport.write(self._output[0] if len(self._output) == 1 else b"".join(self._output))
        self._output, self.unsent = [], 0
        if self._large and not self._rest and not self.slots:
            self._forget_large()

    def send_all(self, transport: Transport) -> None:
        """Hand over the rest, whether it is taken or not: the connection ends."""
        while self._rest:
            transport.write(self._rest.popleft())

    def _send_pieces(self, transport: Transport) -> None:
        """Send a response piece by piece: nothing is copied before the transport takes it."""
        rest = self._rest
        rest.extend(map(memoryview, self._output))
        while rest and self.is_writable:
            piece = rest[0][:PIECE]
            if len(piece) == len(rest[0]):
                rest.popleft()
            else:
                rest[0] = rest[0][PIECE:]
            transport.write(piece)
