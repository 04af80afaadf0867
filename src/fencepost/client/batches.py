"""Records of one partition that are sent together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count, repeat
from typing import Any, NamedTuple

from fencepost.client.errors import ClientError, DeliveryError
from fencepost.client.together import Together
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import UNLIMITED, BatchBuilder, Headers, decode_batch
from fencepost.protocol.types import NO_PRODUCER, Offset, ProducerIdAndEpoch, TopicPartition


class RecordMetadata(NamedTuple):
    """Where a record was written; `timestamp` is in milliseconds since 1970.

    `offset` is -1 if the broker does not tell (a batch that it had already, or acks=0).
    """

    topic: str
    partition: int
    offset: Offset
    timestamp: int


_metadata = partial(tuple.__new__, RecordMetadata)

OnAcknowledged = Callable[[RecordMetadata, Exception | None], None]
"""Called once for each record with its metadata, and the error if it failed (else None)."""


class Batch:
    """Records of one partition that are sent together."""

    __slots__ = (
        "abandoned",
        "at",
        "base_sequence",
        "builder",
        "data",
        "deadline",
        "ended",
        "fails",
        "futures",
        "in_doubt",
        "is_stranded",
        "last",
        "on_acknowledged",
        "on_wire",
        "producer_id_and_epoch",
        "times",
        "together",
        "tries",
        "whole",
    )

    def __init__(
        self,
        at: TopicPartition,
        compression: Compression,
        deadline: float,
        on_acknowledged: OnAcknowledged | None = None,
    ) -> None:
        self.at = at
        self.on_acknowledged = on_acknowledged
        """Called for each record, also for one whose future nobody waits for any more."""
        self.builder = BatchBuilder(compression)
        self.whole: asyncio.Future[int] | None = None
        """A future of the offset of the first record, if the batch was sent as a whole; else None."""
        self.together: Together | None = None
        """The call by which its records were handed over, if it was one for many; else None."""
        self.deadline = deadline
        self.futures: list[asyncio.Future[RecordMetadata]] = []
        self.times: list[int] = []
        self.data: bytes | None = None
        self.producer_id_and_epoch = NO_PRODUCER
        self.base_sequence = -1
        self.tries = 0
        self.last = ""
        """Why the last try did not write it, or may not have, for messages; empty: there was no try."""
        self.in_doubt = False
        """Whether a try may have written it without an answer that says so."""
        self.on_wire = False
        """Whether a request with it waits for its answer."""
        self.is_stranded = False
        """Whether a batch before it failed for good: unless it is written already it cannot be under its number."""
        self.fails = False
        """Whether it fails with the one before it unless its answer is that it is written."""
        self.abandoned: ClientError | None = None
        """The error of its records if no answer comes, as it was given up and is not sent again; None: it was not."""
        self.ended = False
        """Whether the futures of its records are set, even if its answer is still to come."""

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        future: asyncio.Future[RecordMetadata] | None,
        limit: int = UNLIMITED,
    ) -> bool:
        """Append a record, unless the batch has more than `limit` bytes before compression then; whether it was done.

        Raises TypeError, ValueError or AttributeError if these are no fields of a record.
        """
        if not self.builder.append(timestamp, key, value, headers, limit):
            return False
        if future is not None:
            self.futures.append(future)
            self.times.append(timestamp)
        return True

    @property
    def can_be_split(self) -> bool:
        """Whether it may be sent in halves: not if a try may have written it, or it was sent as a whole."""
        return self.builder.count > 1 and not self.in_doubt and not self.abandoned and self.whole is None

    def halves(self) -> list[Batch]:
        """Two batches with the records of this one, in their order."""
        futures = self.futures if self.together is None else [None] * self.builder.count
        records = list(zip(decode_batch(self.builder.build()), futures, strict=True))
        middle = len(records) // 2
        found = []
        for half in (records[:middle], records[middle:]):
            batch = Batch(self.at, self.builder.compression, self.deadline, self.on_acknowledged)
            for record, future in half:
                batch.append(record.timestamp, record.key, record.value, record.headers, future)
            batch.together = self.together
            found.append(batch)
        if self.together is not None:
            self.together.one_more()  # two instead of one
        return found

    def number(self, producer_id_and_epoch: ProducerIdAndEpoch, sequence: int, transactional: bool) -> None:
        """Give the batch the producer's id and epoch and its base sequence number in its partition, and encode it."""
        self.producer_id_and_epoch, self.base_sequence = producer_id_and_epoch, sequence
        self.data = self.builder.build(
            producer_id=producer_id_and_epoch.producer_id,
            producer_epoch=producer_id_and_epoch.producer_epoch,
            base_sequence=sequence,
            transactional=transactional,
        )

    def unnumber(self) -> None:
        """Take its sequence number back, after every try was refused: it can be sent under another one."""
        self.data, self.is_stranded = None, False

    def succeed(self, base_offset: int, log_append_time: int) -> None:
        """Set the results of its records: partition, offset, timestamp.  Nothing if the batch has ended before."""
        if self.ended:
            return
        self.ended = True
        if self.whole is not None and not self.whole.done():
            self.whole.set_result(base_offset)
        if self.together is not None:
            self.together.written(self.at, base_offset, self.builder.count)
        times = self.times if log_append_time < 0 else repeat(log_append_time)
        offsets = repeat(-1) if base_offset < 0 else count(base_offset)
        told = zip(repeat(self.at.topic), repeat(self.at.partition), offsets, times, strict=False)
        for future, metadata in zip(self.futures, map(_metadata, told), strict=False):
            if not future.done():
                future.set_result(metadata)
            if self.on_acknowledged is not None:
                self.on_acknowledged(metadata, None)

    def fail(self, error: Exception, *, reported: bool) -> None:
        """Set `error` as the exception of its records.  Nothing if the batch has ended before.

        `reported`: the caller hears of it elsewhere, so that nobody needs to look at the single records.
        """
        if self.ended:
            return
        self.ended = True
        if self.together is not None:
            self.together.failed(error, reported=reported)
        waiting: list[asyncio.Future[Any]] = [*self.futures]
        if self.whole is not None:
            waiting.append(self.whole)
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                if reported:
                    future.exception()
        if self.on_acknowledged is not None:
            for time in self.times:
                self.on_acknowledged(RecordMetadata(self.at.topic, self.at.partition, Offset(-1), time), error)

    def too_late(self) -> DeliveryError:
        """The error of its records when `delivery_timeout_ms` is over."""
        last = f"; last: {self.last}" if self.last else "" if self.tries else "; none was sent"
        written = "whether they were written is not known" if self.in_doubt else "they were not written"
        return DeliveryError(
            f"{self.builder.count} records for {self.at.topic}-{self.at.partition} were not acknowledged within "
            f"delivery_timeout_ms{last}: {written}. Raise it if the broker needs longer"
        )

    def refused(self, why: str, *, maybe_written: bool = False) -> str:
        """The message for records that a leader refused for good; `maybe_written`: the answer leaves that open."""
        before = ", after a try that may have written them" if self.in_doubt else ""
        but = ". Whether they were written is not known" if maybe_written and not before else ""
        return f"{self.builder.count} records for {self.at.topic}-{self.at.partition} were refused{before}: {why}{but}"

    def behind_a_failed_one(self) -> DeliveryError:
        """The error of its records when a batch before it failed, so that it is not sent again."""
        written = "nobody knows whether they were written" if self.in_doubt else "they were not written"
        return DeliveryError(
            f"{self.builder.count} records for {self.at.topic}-{self.at.partition} failed with those before them, so "
            f"that none overtakes another: {written}. Send them again if they may come behind later ones"
        )
