"""The buffered batches of open transactions: whole as they were fetched, in memory up to a limit, behind it on disk.

A transaction begins in memory.  From the first batch on that has no room there, what comes of it goes to the temporary
file, so each batch is written at most once and the limit holds at every moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from fencepost.client.commit_order.spill_file import RawFile, Spilled, SpillFile
from fencepost.client.errors import SpillError
from fencepost.protocol.batch import crc_matches, read_header
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.types import Buffer

#: Bytes that a batch in memory takes beside its own, about.
OVERHEAD: Final = 64
#: The two fields by which the end of a batch is known: base offset and length.
_LENGTH_KNOWN: Final = 12


class TransactionBuffers:
    """The records of open transactions, of all partitions of one consumer.  `limit`: bytes in memory."""

    def __init__(self, limit: int, open_file: Callable[[], RawFile]) -> None:
        self.limit = limit
        self.in_memory = 0
        """Bytes that are counted against the limit."""
        self.file = SpillFile(open_file)

    def begin(self) -> TransactionBuffer:
        """An empty buffer for the records of one transaction in one partition."""
        return TransactionBuffer(self)

    def close(self) -> None:
        """Remove the temporary file."""
        self.file.close()


class TransactionBuffer:
    """The batches of one transaction, taken out once, in the order in which they came."""

    __slots__ = ("_all", "_batches", "_spilled")

    def __init__(self, all_of_them: TransactionBuffers) -> None:
        self._all = all_of_them
        self._batches: deque[bytes] = deque()
        self._spilled = Spilled()

    @property
    def is_empty(self) -> bool:
        return not self._batches and not self._spilled.size

    @property
    def in_memory(self) -> int:
        """Bytes in memory, as they are counted against the limit."""
        return sum(map(len, self._batches)) + OVERHEAD * len(self._batches)

    @property
    def on_disk(self) -> int:
        """Bytes of records that are in the spill file."""
        return self._spilled.size

    def append(self, batch: Buffer) -> None:
        """Keep a copy of a batch, in memory or on disk.  Raises SpillError if that fails; then all is as it was."""
        size = len(batch) + OVERHEAD
        if not self._spilled.size and self._all.in_memory + size <= self._all.limit:
            self._batches.append(bytes(batch))
            self._all.in_memory += size
        else:
            self._all.file.append(self._spilled, batch)

    def pop(self) -> bytes:
        """Take the next batch out.  Raises SpillError if it cannot be read; the rest cannot be had from here then."""
        if self._batches:
            batch = self._batches.popleft()
            self._all.in_memory -= len(batch) + OVERHEAD
            return batch
        take = self._all.file.take
        front = take(self._spilled, _LENGTH_KNOWN)
        rest = int.from_bytes(front[8:], "big", signed=True)
        if not 0 <= rest <= self._spilled.size:
            raise _damaged()
        batch = front + take(self._spilled, rest)
        try:
            if crc_matches(batch, 0, read_header(batch)):
                return batch
        except ProtocolError:
            pass
        raise _damaged()

    def drop(self) -> None:
        """Drop the batches that are left of the transaction."""
        self._all.in_memory -= self.in_memory
        self._batches.clear()
        self._all.file.drop(self._spilled)


def _damaged() -> SpillError:
    return SpillError("records of open transactions were damaged in a temporary file: go on with a new consumer")
