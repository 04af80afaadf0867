"""Hands single records over to their partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from fencepost.client.acknowledgements import Unnumbered
from fencepost.client.batches import RecordMetadata
from fencepost.client.cluster import Cluster
from fencepost.client.errors import TransactionAbortableError
from fencepost.client.idempotence import Idempotence
from fencepost.client.placement import Placement
from fencepost.client.producer_record import BYTES, checked_timestamp, what_is_wrong
from fencepost.client.send_queue import Placed, SendQueue
from fencepost.client.sender import WAITING_FOR_ROOM, Sender
from fencepost.client.transactions import Transactions
from fencepost.protocol.records import Headers

#: Bytes that a record, or a header of it, may have at most beside names, keys and values, with a batch of its own.
_AROUND: Final = 100
_AROUND_HEADER: Final = 10


class Sending:
    """Hands records of one producer over, one by one.

    `at_once`, `send` and `placed` take what `Producer.send` does.
    """

    def __init__(
        self,
        cluster: Cluster,
        placement: Placement,
        rules: Transactions | Idempotence | Unnumbered,
        max_request_size: int,
    ) -> None:
        self._home = cluster.home
        self._clock = cluster.runtime.clock
        self._deadline = cluster.deadline
        self._placement = placement
        self._rules = rules
        self._note_send = rules.note_send if isinstance(rules, Transactions) else None
        self._max_request_size = max_request_size
        self._answers_wait = False  # since a batch was full
        self.sender: Sender | None = None
        """The sender; None while the producer takes no records."""
        self._queue: SendQueue | None = None

    def take_from(self, queue: SendQueue) -> None:
        """Use a queue: its records are put into batches before `stop`, and before a transaction takes no more."""
        self._queue = queue
        if isinstance(self._rules, Transactions):
            self._rules.take_in = queue.take_in

    @property
    def queued(self) -> int:
        """The number of records that are in no batch yet."""
        return 0 if self._queue is None else len(self._queue)

    @property
    def used(self) -> int:
        """Bytes of the records in batches, and of those that are in none yet."""
        return self.buffer_used if self._queue is None else self._queue.used

    def stop(self) -> None:
        """Take no more records."""
        self.sender = None
        if self._queue is not None:
            self._queue.take_in()

    def at_once(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> asyncio.Future[RecordMetadata] | None:
        """Hand over a record if nothing has to be waited for, looked up or refused; else None: `send` does it."""
        self._home.check()
        sender = self.sender
        if sender is None or self._answers_wait or sender.is_full or not self._rules.takes_records:
            return None
        if not (isinstance(value, BYTES) and isinstance(key, BYTES)):
            return None
        # -1 if the topic or its partition is not known: a partitioner of the user is not asked then.
        number = self._placement.known(topic, key, partition, len(value or b""))
        return None if number < 0 else self._append(sender, topic, number, value, key, timestamp, headers)

    # In any thread

    @property
    def takes_records(self) -> bool:
        """Whether a record can be handed over now."""
        return self.sender is not None and self._rules.takes_records

    @property
    def buffer_used(self) -> int:
        """Bytes of the records in batches."""
        return 0 if self.sender is None else self.sender.buffer_used

    def placed(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> tuple[Placed, int] | None:
        """The record as `put_in` takes it, copied so that nobody can change it, and the bytes that it has at most.

        None: `send` has to look its partition up, or to refuse it.
        """
        sender = self.sender
        if sender is None or not (isinstance(value, BYTES) and isinstance(key, BYTES)):
            return None
        size = _AROUND
        if value is not None:
            value = bytes(value)
            size += len(value)
        if key is not None:
            key = bytes(key)
            size += len(key)
        if headers:
            kept = _kept(headers)
            if kept is None:
                return None
            headers, more = kept
            size += more
        if size > self._max_request_size:
            return None
        now = self._clock.now() if timestamp is None else checked_timestamp(timestamp)
        number = self._placement.known(topic, key, partition, len(value or b""))
        return None if number < 0 else ((sender, topic, number, value, key, now, headers), size)

    # In the event loop again

    def put_in(self, record: Placed) -> asyncio.Future[RecordMetadata]:
        """Put a record into a batch.

        An error is raised by the future that is returned, not here; the record's transaction has failed then.
        """
        try:
            if isinstance(self._rules, Idempotence) and self._rules.error is not None:
                raise self._rules.error  # since it was placed
            return self._append(*record)
        except Exception as error:
            if isinstance(self._rules, Transactions):  # who sent it may never look at what was returned
                reason = f"a record could not be put into a batch ({error!r}): abort the transaction, then go on"
                self._rules.fail(TransactionAbortableError(reason), fatal=False)
            failed: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    async def send(
        self,
        check: Callable[[], Awaitable[Sender]],
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> asyncio.Future[RecordMetadata]:
        """Hand over a record, after waiting for room, and for its topic, if need be.  Raises as `Producer.send`.

        `check` returns the sender, or raises why no record can be sent now.
        """
        sender = await check()
        if self._answers_wait:  # first, so that who is cancelled here has handed over nothing
            self._answers_wait = await asyncio.sleep(0, False)
            await check()
        if not (isinstance(value, BYTES) and isinstance(key, BYTES)):
            raise what_is_wrong(key, value, headers)
        size = len(value or b"")
        number = self._placement.known(topic, key, partition, size)
        if number < 0:
            view = await self._placement.looked_up(topic, partition)
            number = self._placement.partitioner.choose(view, key, partition, size)
            await check()
        if sender.is_full:
            await sender.wait_for_room(self._deadline(WAITING_FOR_ROOM))
            await check()
        return self._append(sender, topic, number, value, key, timestamp, headers)

    def _append(
        self,
        sender: Sender,
        topic: str,
        number: int,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: Headers,
    ) -> asyncio.Future[RecordMetadata]:
        now = self._clock.now() if timestamp is None else checked_timestamp(timestamp)
        try:
            future, full = sender.append((topic, number), now, key, value, headers)
        except (TypeError, ValueError, AttributeError):
            raise what_is_wrong(key, value, headers) from None
        if self._note_send is not None:
            self._note_send()
        if full:
            self._placement.partitioner.another(topic)
            self._answers_wait = True
        return future


def _kept(headers: Headers) -> tuple[Headers, int] | None:
    """A copy of the headers, and the bytes that they have at most; None if they may not be headers."""
    if not isinstance(headers, list | tuple):
        return None
    kept, size = [], 0
    try:
        for name, value in headers:
            if not isinstance(value, BYTES):
                return None
            kept.append((name, None if value is None else bytes(value)))
            size += _AROUND_HEADER + len(name.encode()) + len(value or b"")
    except (TypeError, ValueError, AttributeError):
        return None
    return tuple(kept), size
