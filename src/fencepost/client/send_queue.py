"""Records that threads hand over to the event loop of their producer, which puts many into batches in one wake-up.

To ask the event loop for each record costs two changes of threads, some 100 us of a processor: twenty times what is
done with it there.  So a thread does by itself what a `send` may raise (the record is looked at, its partition chosen,
its timestamp taken), and leaves the record in a queue.  The event loop is woken for the first of them, and takes all
that are there by then:

* They are put into batches in the order in which they were left: that of each thread, and one order for all of them.
* Whatever is asked of the producer, in whichever thread (a flush, a commit, the result of a record), is asked of the
  loop after it was woken, and begins after that: it sees every record that was left before.
* A record is left only while the producer takes records, which is looked at under the lock of the queue.  When it takes
  no more, since a commit, an abort or the end begins, or its transaction has failed, it first says so and then empties
  the queue, in one step of its loop: so each record is in the transaction that was open when it was left, or `send` has
  raised.
* What waits here counts as what waits in batches: beyond `buffer_bytes` a `send` waits.  It also waits for the event
  loop when MOST_WAITING records are here: to empty the queue, during which the loop does nothing else, is short work.

What needs more than that goes through the event loop by itself, behind what was left before, and may wait or raise
there: the first record of a topic, one that may be too large, one that is no record, one for which there is no room.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final, Protocol, TypeAlias

from fencepost.client.batches import RecordMetadata
from fencepost.client.delivery import Delivery
from fencepost.client.portal import Portal
from fencepost.client.sender import Sender
from fencepost.protocol.records import Headers

Placed: TypeAlias = tuple[Sender, str, int, bytes | None, bytes | None, int, Headers]
"""A record that can be put into a batch as it is: sender, topic, partition, value, key, timestamp (ms), headers."""
MOST_WAITING: Final = 2048


class Takes(Protocol):
    """What the queue asks of its producer."""

    @property
    def takes_records(self) -> bool:
        """Whether records are taken now.  Asked in any thread."""
        ...

    @property
    def buffer_used(self) -> int:
        """Bytes of the records in batches.  Asked in any thread."""
        ...

    def put_in(self, record: Placed) -> asyncio.Future[RecordMetadata]:
        """Put a record into a batch, in the event loop; the future of its metadata."""
        ...


class SendQueue:
    """The queue of one producer.  `portal` has its event loop; `limit` in bytes is its `buffer_bytes`."""

    def __init__(self, producer: Takes, portal: Portal, limit: int) -> None:
        self._producer = producer
        self._portal = portal
        self._limit = limit
        self._lock = threading.RLock()  # a signal's handler may send while its thread does
        self._waiting: list[tuple[Delivery[RecordMetadata], Placed, int]] = []
        self._is_woken = False
        self._taking = 0
        """How many of the records that the loop has taken are still to be put into batches."""
        self._left = self._taken = 0
        """The bytes that were ever left here, and those of them that were put into batches."""

    def __len__(self) -> int:
        """The number of records that are in no batch yet.  In any thread."""
        return len(self._waiting) + self._taking

    @property
    def size(self) -> int:
        """Bytes of the records that are in no batch yet, at most.  In any thread."""
        return self._left - self._taken

    @property
    def is_full(self) -> bool:
        """Whether there is no room for a record: it has to wait.  In any thread."""
        # First what waits here: what goes into a batch between the two counts twice.  Else it would count nowhere.
        return self.size + self._producer.buffer_used >= self._limit or len(self._waiting) >= MOST_WAITING

    @property
    def used(self) -> int:
        """Bytes of the records here and in batches; each counts once, but for the one that is on its way between them.

        In any thread.
        """
        while True:
            taken = self._taken
            used = self._left - taken + self._producer.buffer_used
            if taken == self._taken:
                return used

    def leave(self, record: Placed, size: int) -> Delivery[RecordMetadata] | None:
        """Leave a record of `size` bytes at most; None if no records are taken, or it has to wait.  In any thread.

        Raises ClosedError once the portal is closed.
        """
        with self._lock:
            if self.is_full or not self._producer.takes_records:
                return None
            if not self._is_woken:
                self._portal.wake(self._wake_up)
                self._is_woken = True
            delivery: Delivery[RecordMetadata] = Delivery(self._portal)
            self._waiting.append((delivery, record, size))
            self._left += size
        return delivery

    def take_in(self) -> None:
        """Put all records that are here into batches, in the event loop."""
        with self._lock:  # who is about to leave one does so before
            taken, self._waiting = self._waiting, []
            self._taking += len(taken)
        put_in = self._producer.put_in
        for delivery, record, size in taken:
            delivery.future = put_in(record)
            self._taken += size
            self._taking -= 1

    def _wake_up(self) -> None:
        with self._lock:
            self._is_woken = False
        self.take_in()
