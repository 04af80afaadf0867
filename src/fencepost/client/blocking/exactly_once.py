"""Reads, transforms and writes in transactions, without asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from fencepost.client import exactly_once
from fencepost.client.batches import RecordMetadata
from fencepost.client.blocking.consumer import Consumer
from fencepost.client.blocking.face import as_in
from fencepost.client.blocking.producer import Producer
from fencepost.client.delivery import Delivery
from fencepost.client.records import ConsumerRecord
from fencepost.client.transaction_loop import Handed, State, TransactionLoop
from fencepost.protocol.records import Headers


class ExactlyOnce:
    """`fencepost.client.ExactlyOnce`; takes the same arguments.

        for transaction in ExactlyOnce(consumer, producer):
            with transaction:
                for record in transaction.records:
                    transaction.send("ledger", record.value, key=record.key)

    A block that takes too long is not interrupted here: the broker aborts its transaction, which the commit is told.
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
        self._consumer = consumer  # who is forgotten is closed
        self._producer = producer
        self._loop = TransactionLoop(
            consumer._consumer,
            producer._elsewhere,
            max_records=max_records,
            linger_ms=linger_ms,
            retry_timeout_ms=retry_timeout_ms,
        )

    @as_in(exactly_once.ExactlyOnce.stop)
    def stop(self) -> None:
        self._loop.stop()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Transaction:
        handed = self._consumer._portal.call(self._loop.next(), self._loop.take_back)
        if handed is None:
            raise StopIteration
        return Transaction(self._loop, handed, self._consumer, self._producer)


class Transaction:
    """A transaction: the records that were read, and those that are written for them.  Enter it by `with`, once."""

    def __init__(self, loop: TransactionLoop, handed: Handed, consumer: Consumer, producer: Producer) -> None:
        self._loop = loop
        self._handed = handed
        self._consumer = consumer
        self._producer = producer

    @property
    def records(self) -> Sequence[ConsumerRecord]:
        """The records of the transaction, in the order of each partition."""
        return self._handed.records

    @property
    def committed(self) -> bool:
        """Whether it is known that it was committed.  False after the block: its records are handed out again."""
        return self._handed.state is State.COMMITTED

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery[RecordMetadata]:
        """Write a record in the transaction, as `Producer.send` does.

        Its result need not be awaited: the commit does.  Raises MisuseError outside of the block.
        """
        exactly_once.check_open(self._handed)
        return self._producer.send(topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers)

    def __enter__(self) -> Self:
        self._consumer._portal.call(self._loop.begin(self._handed))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> bool:
        return self._consumer._portal.call(self._loop.end(self._handed, error))
