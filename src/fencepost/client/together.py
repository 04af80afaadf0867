"""The result of `send_many`: how many records were written, and at which offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fencepost.protocol.types import TopicPartition


class ManyMetadata(NamedTuple):
    """The places where the records of one call were written.

    `records`: how many.  `offsets`: by partition, in the order of the records.  Those of a batch that the broker had
    already, and whose place it does not tell, are missing.
    """

    records: int
    offsets: Mapping[TopicPartition, Sequence[range]]


class Together:
    """The batches of one call; `result` is done when all of them are answered for good."""

    def __init__(self) -> None:
        self.result: asyncio.Future[ManyMetadata] = asyncio.get_running_loop().create_future()
        self._open = 1
        """The batches that are not answered for good, and 1 for the call until it has handed over everything."""
        self._count = 0
        self._offsets: dict[TopicPartition, list[range]] = {}
        self._error: Exception | None = None
        self._reported = False

    def one_more(self) -> None:
        """Count one batch, or record, more that `result` waits for."""
        self._open += 1

    def written(self, at: TopicPartition, base_offset: int, count: int) -> None:
        self._count += count
        if base_offset >= 0:
            known, end = self._offsets.setdefault(at, []), base_offset + count
            if known and known[-1].stop == base_offset:
                known[-1] = range(known[-1].start, end)
            else:
                known.append(range(base_offset, end))
        self.one_less()

    def failed(self, error: Exception, *, reported: bool) -> None:
        self._error, self._reported = self._error or error, self._reported or reported
        self.one_less()

    def one_less(self) -> None:
        """Count one less: a batch is answered for good, or everything was handed over.  The last one sets `result`."""
        self._open -= 1
        if self._open or self.result.done():
            return
        if self._error is not None:
            self.result.set_exception(self._error)
            if self._reported:
                self.result.exception()  # the caller hears of it elsewhere
        else:
            self.result.set_result(ManyMetadata(self._count, self._offsets))
