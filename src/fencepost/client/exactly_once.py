"""Read, transform, write: each record of the input counts once in the output, whatever fails in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from fencepost.client.batches import RecordMetadata
from fencepost.client.consumer import Consumer
from fencepost.client.errors import MisuseError, TransactionTimedOutError
from fencepost.client.producer import Producer
from fencepost.client.records import ConsumerRecord
from fencepost.client.transaction_loop import Handed, State, TransactionLoop
from fencepost.protocol.records import Headers

#: Of transaction_timeout_ms, for the block; the rest is for the commit.
_SHARE_OF_THE_BLOCK: Final = 0.8


class ExactlyOnce:
    """Hands out records in transactions, each with what is written in it and with the positions after its records.

        async with (
            Consumer("payments", bootstrap_servers=servers, group_id="ledger", auto_commit=False) as consumer,
            Producer(servers, transactional_id="ledger-1") as producer,
        ):
            async for transaction in ExactlyOnce(consumer, producer):
                async with transaction:
                    for record in transaction.records:
                        await transaction.send("ledger", record.value, key=record.key)

    At the end of the block everything is committed at once, also where it is left by `return` or `break`: all of its
    records count as processed. A block that raises is aborted, the consumer goes back, and the error is raised. Where
    the transaction failed for no fault of the block (a time-out, a broker that was away, a rebalance) it is aborted
    too, nothing is raised, and the records are handed out again: to this loop, or to whoever has their partitions then.
    So the block may run several times for a record, and is committed once. **What it does outside of the transaction is
    not undone**; `transaction.committed` is known after the block.

    A transaction has up to `max_records` records: those that are there, and those that come within `linger_ms`
    milliseconds.  Without records there is no transaction.  A block that takes longer than four fifths of the
    producer's `transaction_timeout_ms` is cancelled, and counts as failed for no fault of its own.

    Raises what only a person can mend, as ProducerFencedError when another producer has the transactional id, and
    what failed again and again for `retry_timeout_ms` milliseconds.  After any error the loop may be gone on with, if
    the producer can: what became of the last transaction is found out first.

    The consumer needs a group_id, auto_commit=False and read_committed; the producer a transactional_id that no other
    running producer has.  The transactional id is taken over unless that was done.  Neither is closed here, and nobody
    else may use them meanwhile: a second loop on one of them is refused while a transaction of the first has not ended.
    """

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer,
        *,
        max_records: int = 500,
        linger_ms: float = 0,
        retry_timeout_ms: float = 300_000,
    ) -> None:
        self._producer = producer
        self._loop = TransactionLoop(
            consumer, producer, max_records=max_records, linger_ms=linger_ms, retry_timeout_ms=retry_timeout_ms
        )

    def stop(self) -> None:
        """End the iteration, after the transaction that is open if there is one."""
        self._loop.stop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Transaction:
        handed = await self._loop.next()
        if handed is None:
            raise StopAsyncIteration
        return Transaction(self._loop, handed, self._producer)


class Transaction:
    """A transaction: the records that were read, and those written for them.  Enter it by `async with`, once."""

    def __init__(self, loop: TransactionLoop, handed: Handed, producer: Producer) -> None:
        self._loop = loop
        self._handed = handed
        self._producer = producer
        self._limit = asyncio.timeout(None)

    @property
    def records(self) -> Sequence[ConsumerRecord]:
        """The records of the transaction, in the order of each partition."""
        return self._handed.records

    @property
    def committed(self) -> bool:
        """Whether it is known that it was committed.  False after the block: its records are handed out again."""
        return self._handed.state is State.COMMITTED

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Write a record in the transaction, as `Producer.send` does.

        Its result need not be awaited: the commit does.  Raises MisuseError outside of the block.
        """
        check_open(self._handed)
        return await self._producer.send(
            topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers
        )

    async def __aenter__(self) -> Self:
        await self._loop.begin(self._handed)
        await self._limit.__aenter__()
        seconds = self._producer.transaction_timeout_ms / 1000 * _SHARE_OF_THE_BLOCK
        self._limit.reschedule(asyncio.get_running_loop().time() + seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            await self._limit.__aexit__(kind, error, traceback)
        except TimeoutError:
            name, most = self._producer.transactional_id, self._producer.transaction_timeout_ms
            late = TransactionTimedOutError(
                f"the block of {name!r} took longer than four fifths of transaction_timeout_ms={most}: make it shorter "
                "(max_records), or the time-out longer"
            )
            if await self._loop.end(self._handed, late):
                return True
            raise late from error
        return await self._loop.end(self._handed, error)


def check_open(handed: Handed) -> None:
    """Raises MisuseError unless the transaction is inside of its block."""
    if handed.state is not State.OPEN:
        raise MisuseError("this transaction is not open: send inside of its `with` (`async with`) block")
