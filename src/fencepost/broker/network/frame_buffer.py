"""What has been read from a connection, and the frames in it.

A frame is held as it comes: whoever announces a large one and sends nothing makes nobody set memory aside.  The buffer
doubles while a large frame comes in, and is made small again when `shrink` is called.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from fencepost.protocol.errors import ProtocolError

_SIZE: Final = Struct(">i")
SMALL: Final = 64 * 1024
"""Bytes of a buffer that is used; one that never was has `_FIRST`."""
_FIRST: Final = 4 * 1024
_SHORTEST: Final = 8
"""Bytes of the shortest request: its header without a client id."""


def _other_protocol(beginning: bytes) -> str:
    """The protocol that begins with these four bytes, which are no length, and what to do; empty if it is unknown."""
    if beginning.startswith(b"\x16\x03"):
        return ". It speaks TLS, which this node does not: security.protocol of the client must be PLAINTEXT"
    if beginning in (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI"):
        return ". It speaks HTTP: metrics are at the port of --metrics, this one is for clients of Kafka"
    return ""


class FrameBuffer:
    """Bytes that came in, cut into frames.  `largest`: the longest frame that is taken, in bytes."""

    __slots__ = ("_bytes", "_end", "_largest", "_start", "_view", "announced")

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._bytes = bytearray(_FIRST)
        self._view = memoryview(self._bytes)
        self._start = 0
        self._end = 0
        self.announced = 0
        """Length of the frame that is coming in, its length prefix included; 0 between two frames."""

    @property
    def size(self) -> int:
        """Bytes of memory that are held."""
        return len(self._bytes)

    @property
    def held(self) -> int:
        """Bytes that have come and were not taken."""
        return self._end - self._start

    @property
    def needed(self) -> int:
        """Bytes of memory that it takes to read on in the frame that is coming in; 0 for a small one."""
        if self.announced <= SMALL:
            return 0
        return self._larger if self._end == len(self._bytes) else len(self._bytes)

    @property
    def _larger(self) -> int:
        return max(min(max(2 * self.held, SMALL), self.announced), SMALL, self.held + _FIRST)

    def room(self) -> memoryview:
        """The memory to put the next bytes in; never empty."""
        if self._end == len(self._bytes):
            self._move(self._larger)
        return self._view[self._end :]

    def filled(self, count: int) -> None:
        """Note that so many bytes were put there."""
        self._end += count

    def take(self) -> memoryview | None:
        """The next whole frame without its length; it stays as it is until more is read.  Raises ProtocolError."""
        at, end = self._start, self._end
        if end - at < 4:
            if at == end:
                self._start = self._end = 0
            self.announced = 0
            return None
        (size,) = _SIZE.unpack_from(self._bytes, at)
        if not _SHORTEST <= size <= self._largest:
            told = f"a frame of {size} bytes announced: it must have {_SHORTEST} to {self._largest}"
            raise ProtocolError(told + _other_protocol(bytes(self._view[at : at + 4])))
        stop = at + 4 + size
        if stop > end:
            self.announced = 4 + size
            if at and stop > len(self._bytes):
                self._move(max(SMALL, end - at))
            return None
        self._start = stop
        return self._view[at + 4 : stop]

    def put_back(self, frame: memoryview) -> None:
        """Have the frame that was taken last be taken again."""
        self._start -= 4 + len(frame)

    def drop(self) -> None:
        """Forget the bytes that have come."""
        self._start = self._end = 0

    def shrink(self) -> None:
        """Hold no more than what there is to hold."""
        if len(self._bytes) > SMALL and self.held <= SMALL // 2:
            self._move(SMALL)

    def _move(self, size: int) -> None:
        """Move what is not read yet to the front of a new buffer: views of the old one may be in use."""
        rest = self._view[self._start : self._end]
        self._bytes = bytearray(size)
        self._view = memoryview(self._bytes)
        self._view[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
