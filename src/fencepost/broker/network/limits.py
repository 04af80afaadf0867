"""The memory that one request, one connection and all of them together may hold (Kafka's MemoryPool), and their pace.

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
    ElectLeadersRequest,
    FetchRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetFetchRequest,
)

MOST_WAITING: Final = 512
"""Responses that may wait on one connection before nothing more is read from it."""
LEAST_PROGRESS: Final = 64 * 1024
"""Bytes of a large request that must come, or of a large answer that must be taken, between two looks at a connection,
ten seconds, while others wait."""
LARGE_REQUEST: Final = 16 * 1024
"""Bytes of a request that is decoded in steps, if it has many items."""
MOST_HELD: Final = 1024 * 1024
"""Bytes of waiting requests and responses on one connection before nothing more is read from it."""
MOST_KEPT: Final = 4 * 1024 * 1024
"""Bytes of a buffer that is kept for the next large frame of a connection that goes on."""
PIECE: Final = 256 * 1024
"""Bytes that are handed to the transport at once; it then says whether to go on."""

NODE_ANSWERS: Final = 512 * 1024 * 1024
"""Bytes of large answers that all clients together have not taken yet, before Fetch gives less and longer ones wait."""
LEAST_ANSWER: Final = 1024 * 1024
"""Bytes that a Fetch may give however much others hold: nobody starves."""
MOST_READ: Final = 8 * 1024 * 1024
"""What a Fetch gives at most, but for a first batch that is larger: to read it and encode it is one step, of some 6 ms.

It is one step so that what all answers have together is known before the next one is read."""
LARGE_ANSWER: Final = 64 * 1024
"""Bytes of the largest answer that is not counted."""
SLOWEST_LOOKS: Final = 6
"""Looks at a connection, ten seconds apart, in which it takes what it asked for at the latest, while others wait."""

NODE_UNFOLDED: Final = 64 * 1024 * 1024
"""Bytes that the batches may have that are looked at in several steps, unfolded."""

NODE_REQUESTS: Final = 1024 * 1024 * 1024
"""Bytes of requests that are being read, on all connections, where `queued.max.request.bytes` says nothing (-1)."""

_LARGE: Final[tuple[Any, ...]] = (
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    DescribeTransactionsRequest,
    ElectLeadersRequest,
    FetchRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetFetchRequest,
)
ONE_AT_A_TIME: Final[frozenset[int]] = frozenset(request.__schema__.api for request in _LARGE)
"""APIs whose answers may be large."""
A_FEW_AT_A_TIME: Final = frozenset(request.__schema__.api for request in _LARGE if request is not FetchRequest)
"""APIs of which long answers are made a few at a time.  A Fetch gives less: it never waits for other clients."""


class MemoryPool:
    """A number of bytes that is shared.  Not strict: what is taken last may go beyond the limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._holders: dict[Callable[[], None], None] = {}
        """Those who took some and have not given it back, in the order of their first takes."""
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_short(self) -> bool:
        """Whether nobody may take more."""
        return self.used >= self.limit

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for some."""
        return bool(self._waiting)

    def take(self, count: int, who: Callable[[], None]) -> bool:
        """Take so many bytes more, if there are any left.  `who`: as in `wait`.

        Whoever has held some for the longest gets them in any case: those who each have a part of what they need would
        else wait for one another.
        """
        if self.is_short and who != next(iter(self._holders), None):
            return False
        self._holders[who] = None
        self.used += count
        return True

    def waits(self, resume: Callable[[], None]) -> bool:
        return resume in self._waiting

    def wait(self, resume: Callable[[], None]) -> None:
        """Call back once, in turn, when there are bytes left again.  Whoever cannot take them then waits anew."""
        self._waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        """Let `resume` wait no more."""
        self._waiting.pop(resume, None)

    def give(self, count: int, who: Callable[[], None]) -> None:
        """Give back all that `who` took, so many bytes."""
        self.used -= count
        assert self.used >= 0, "no more is given back than was taken"
        self._holders.pop(who, None)
        while self._waiting and not self.is_short:
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()
        first = next(iter(self._holders), None)
        if first in self._waiting:
            del self._waiting[first]
            first()


def _nobody() -> None:
    """Do nothing: what is called back for a reservation that has ended."""


class Reservation:
    """The share of one connection in the memory for requests: as much as its buffer grew to for the frame at hand.

    What a frame announces does not count: whoever announced a large one and sent nothing would keep all others waiting.
    `resume`: called when there may be more.
    """

    __slots__ = ("_came", "_pool", "_resume", "held")

    def __init__(self, pool: MemoryPool, resume: Callable[[], None]) -> None:
        self._pool, self._resume = pool, resume
        self.held = 0
        """Bytes of the pool that are taken."""
        self._came: int | None = None

    @property
    def is_waiting(self) -> bool:
        return self._pool.waits(self._resume)

    def grow(self, size: int) -> bool:
        """Have `size` bytes in all; False if there are not so many now, and then `resume` is called later."""
        if size <= self.held:
            return True
        if not self._pool.take(size - self.held, self._resume):
            self._pool.wait(self._resume)
            return False
        self.held = size
        return True

    def release(self) -> bool:
        """Give back all bytes; whether there were any."""
        held, self.held, self._came = self.held, 0, None
        if held:
            self._pool.give(held, self._resume)
        return held > 0

    def forget(self) -> None:
        """Have `resume` called no more."""
        self._pool.forget(self._resume)

    def end(self) -> None:
        """Give all of it back, for good.

        `resume` is forgotten, for it refers to whoever has this: such a circle, and the buffer in it, would stay until
        the garbage collector comes.
        """
        self.forget()
        self.release()
        self._resume = _nobody

    def is_kept_from_others(self, came: int) -> bool:
        """Whether nearly nothing came since this was asked last, while others wait.  `came`: bytes of the frame."""
        if not self.held:
            return False
        before, self._came = self._came, came
        return before is not None and came - before < LEAST_PROGRESS and self._pool.is_wanted
