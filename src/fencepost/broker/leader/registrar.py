"""What a leader asks the transaction coordinator: are these partitions in the transaction, or add them to it."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import NamedTuple, Protocol

from fencepost.coordinator.transaction import TransactionCoordinator
from fencepost.log.storage import Storage
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import NO_LSN, Epoch, Lsn, ProducerId, TopicPartition


class Question(NamedTuple):
    """A leader's question about one transaction.  `add`: add the partitions, beginning it if need be; else look."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: Epoch
    partitions: Sequence[TopicPartition]
    add: bool


class Answer(NamedTuple):
    """The coordinator's error for each partition; `lsn`: what must be durable before anybody acts on it."""

    errors: Mapping[TopicPartition, ErrorCode]
    lsn: Lsn = NO_LSN
    timed_out: bool = False

    @classmethod
    def lost(cls, question: Question) -> Answer:
        """The answer where none came, NETWORK_EXCEPTION for each partition: they may have been added, or not."""
        return cls(dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION))


class Registrar(Protocol):
    """Asks the coordinator of a transactional id; the counterpart of `Markers`."""

    def ask(self, question: Question) -> Answer | Awaitable[Answer]:
        """The coordinator's answer; an awaitable where that is not on this node.  Never raises: see `Answer.lost`.

        Asking the same again is harmless, and happens.
        """
        ...


class LocalRegistrar:
    """Asks the coordinator on this node, which has every transactional id, so it answers at once."""

    def __init__(self, transactions: TransactionCoordinator, storage: Storage) -> None:
        self._transactions = transactions
        self.storage = storage

    def ask(self, question: Question) -> Answer:
        coordinator, (name, pid, epoch, partitions, add) = self._transactions, question
        if add:
            added = coordinator.add_partitions(name, pid, epoch, partitions, 2)
            return Answer(dict.fromkeys(partitions, added.error), added.lsn, added.timed_out)
        return Answer(coordinator.verify_partitions(name, pid, epoch, partitions), self.storage.lsn)
