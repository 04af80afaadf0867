"""How much one request, one connection and all of them together may hold (Kafka's MemoryPool, and its pace).

Requests are taken ahead of their answers so that many writes share one sync.  What such an answer may hold is small;
an API whose answers may be large is served as Apache Kafka serves every request, one at a time: when all answers
before it have left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fencepost.protocol.messages import (
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetFetchRequest,
)

MOST_WAITING: Final = 512
"""Responses that may wait on one connection before nothing more is read from it."""
LARGE_REQUEST: Final = 16 * 1024
"""Bytes of a request that is decoded in steps, if it has many items."""
MOST_HELD: Final = 1024 * 1024
"""Bytes of waiting requests and responses on one connection before nothing more is read from it."""
MOST_KEPT: Final = 4 * 1024 * 1024
"""Bytes of a buffer that is kept for the next large frame of a connection that goes on."""
PIECE: Final = 256 * 1024
"""Bytes that are handed to the transport at once; it then says whether to go on."""

NODE_ANSWERS: Final = 512 * 1024 * 1024
"""Bytes of large answers that all clients together have not taken yet, before Fetch gives less."""
LEAST_ANSWER: Final = 1024 * 1024
"""What a Fetch may give however much others hold: nobody starves."""
LARGE_ANSWER: Final = 64 * 1024
"""Smaller ones are not counted."""

NODE_REQUESTS: Final = 1024 * 1024 * 1024
"""Bytes of requests that are being read, on all connections, where `queued.max.request.bytes` says nothing (-1)."""

_LARGE: Final[tuple[Any, ...]] = (
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetFetchRequest,
)
ONE_AT_A_TIME: Final[frozenset[int]] = frozenset(request.__schema__.api for request in _LARGE)
"""APIs whose answers may be large."""


class MemoryPool:
    """A number of bytes that is shared.  Not strict: what is taken last may go beyond the limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_short(self) -> bool:
        """Whether nobody may take more."""
        return self.used >= self.limit

    def take(self, count: int) -> bool:
        """Take so many bytes, if there are any left."""
        if self.is_short:
            return False
        self.used += count
        return True

    def add(self, count: int) -> None:
        """Take so many bytes, whatever is left."""
        self.used += count

    def waits(self, resume: Callable[[], None]) -> bool:
        return resume in self._waiting

    def wait(self, resume: Callable[[], None]) -> None:
        """Call back once, in turn, when there are bytes left again.  Whoever cannot take them then waits anew."""
        self._waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        """It does not wait any more."""
        self._waiting.pop(resume, None)

    def give(self, count: int) -> None:
        """Give back what was taken."""
        self.used -= count
        assert self.used >= 0, "no more is given back than was taken"
        while self._waiting and not self.is_short:
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()

    def left(self, least: int) -> int:
        """How much may be taken; never less than `least`."""
        return max(self.limit - self.used, least)
