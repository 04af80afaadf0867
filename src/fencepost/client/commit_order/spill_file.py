"""The temporary file for the batches of open transactions that the memory limit has no room for.

One file for all transactions of a consumer, without a name from its beginning (where the system can do that), so that
nothing is left behind however the process ends.  It consists of blocks.  Each transaction has blocks of its own, given
back when it ends, whatever other transactions do; the file shrinks as its last blocks become free.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Callable
from typing import Final, Protocol, cast

from fencepost.client.errors import SpillError
from fencepost.protocol.types import Buffer

BLOCK: Final = 64 * 1024


class RawFile(Protocol):
    """An open file without a buffer of its own."""

    def seek(self, offset: int, /) -> int: ...

    def read(self, size: int, /) -> bytes: ...

    def write(self, data: Buffer, /) -> int: ...

    def truncate(self, size: int, /) -> int: ...

    def close(self) -> None: ...


def temporary_file(directory: str | None) -> RawFile:
    """Open a new temporary file, gone when it is closed, in `directory` (None: that of the system).  Raises OSError."""
    return cast(RawFile, tempfile.TemporaryFile(buffering=0, prefix="fencepost-", dir=directory))


class Blocks:
    """The blocks of the file that are in use, by number; the lowest free one is taken next.  Pure."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._is_free: set[int] = set()
        self.end = 0
        """Number of blocks that the file has."""

    def take(self) -> int:
        """The number of a block that was free, or of a new one at the end of the file."""
        while self._free:
            number = heapq.heappop(self._free)
            if number in self._is_free:
                self._is_free.discard(number)
                return number
        self.end += 1
        return self.end - 1

    def give_back(self, number: int) -> None:
        """Free the block with this number."""
        assert 0 <= number < self.end and number not in self._is_free, "a block is given back once"
        self._is_free.add(number)
        heapq.heappush(self._free, number)
        while self.end - 1 in self._is_free:
            self.end -= 1
            self._is_free.discard(self.end)
        if not self._is_free:
            self._free.clear()  # those left of it are behind the end


class Spilled:
    """Bytes that are in the file, in order: read once, from the front."""

    __slots__ = ("blocks", "end", "start")

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.start = 0
        """Where the bytes that are left to read begin, counted from the beginning of the first block."""
        self.end = 0

    @property
    def size(self) -> int:
        """Bytes that are left to read."""
        return self.end - self.start


class SpillFile:
    """The temporary file, made when it is first needed.  What the disk refuses raises SpillError."""

    def __init__(self, open_file: Callable[[], RawFile]) -> None:
        self._open_file = open_file
        self._file: RawFile | None = None
        self.blocks = Blocks()

    def append(self, to: Spilled, data: Buffer) -> None:
        """Append `data` to `to`.  Raises SpillError if the disk refuses it; then everything is as it was."""
        end = to.end + len(data)
        new = [self.blocks.take() for _ in range(-(-end // BLOCK) - len(to.blocks))]
        within = to.end % BLOCK
        try:
            self._write([*to.blocks[-1:], *new] if within else new, within, data)
        except OSError as error:
            for number in new:
                self.blocks.give_back(number)
            self._shrink()
            raise SpillError(
                f"records of open transactions cannot be written to a temporary file ({_why(error)}). "
                "Nothing is lost: make room there and poll again, or close the consumer and make one with another "
                "spill_directory or more transaction_buffer_bytes"
            ) from error
        to.blocks += new
        to.end = end

    def _write(self, blocks: list[int], within: int, data: Buffer) -> None:
        """Write into these blocks, from a place within the first on."""
        if self._file is None:
            self._file = self._open_file()
        rest = memoryview(data)
        for number in blocks:
            part, rest = rest[: BLOCK - within], rest[BLOCK - within :]
            self._file.seek(number * BLOCK + within)
            while part:
                part = part[self._file.write(part) :]
            within = 0
        assert not rest, "the blocks have room for all of it"

    def take(self, of: Spilled, size: int) -> bytes:
        """The next `size` bytes; blocks that are read are given back.  Raises SpillError: the rest is to be dropped."""
        assert size <= of.size and self._file is not None
        parts: list[bytes] = []
        at, end = of.start, of.start + size
        try:
            while at < end:
                self._file.seek(of.blocks[at // BLOCK] * BLOCK + at % BLOCK)
                part = self._file.read(min(end - at, BLOCK - at % BLOCK))
                if not part:
                    raise OSError("it is shorter than what was written to it")
                parts.append(part)
                at += len(part)
        except OSError as error:
            raise SpillError(
                f"records of open transactions cannot be read back from a temporary file ({_why(error)}): go on with "
                "a new consumer"
            ) from error
        read = len(of.blocks) if at == of.end else at // BLOCK
        for number in of.blocks[:read]:
            self.blocks.give_back(number)
        del of.blocks[:read]
        of.start, of.end = (0, 0) if at == of.end else (at - read * BLOCK, of.end - read * BLOCK)
        if read:
            self._shrink()
        return b"".join(parts)

    def drop(self, what: Spilled) -> None:
        """Free the blocks that `what` still has.  The file becomes shorter if its end is free."""
        for number in what.blocks:
            self.blocks.give_back(number)
        what.blocks.clear()
        what.start = what.end = 0
        self._shrink()

    def _shrink(self) -> None:
        if self._file is not None:
            try:
                self._file.truncate(self.blocks.end * BLOCK)
            except OSError:
                pass  # the space is used again, or free when the file is closed

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _why(error: OSError) -> str:
    why = str(error.strerror or error)
    return f"{why}: {error.filename}" if error.filename else why
