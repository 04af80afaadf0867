"""Add partitions to a transaction, beginning it with the first.

AddPartitionsToTxn and AddOffsetsToTxn ask for it explicitly; Produce v12 and TxnOffsetCommit v5 implicitly (KIP-890).

The first check that fails decides (facts §3.3):

1. something is pending                       51 CONCURRENT_TRANSACTIONS, before the pair is looked at: after a rotation
                                              the caller may hold a pair that is not current yet (KAFKA-18660)
2. another producer id                        49 INVALID_PRODUCER_ID_MAPPING
3. another epoch, older or newer              90 PRODUCER_FENCED
4. being ended                                51 CONCURRENT_TRANSACTIONS
5. kept prepared (KIP-939)                    48 INVALID_TXN_STATE: it may only be ended
6. open, and all partitions known             success, nothing to write
7. a transaction.version 2 request at level 0 35 UNSUPPORTED_VERSION, and nothing changes; into a transaction that began
                                              before the downgrade 120 TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.coordinator.transaction.decision import Refusal, Transition, Unchanged
from fencepost.coordinator.transaction.state import State
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import (
    NO_EPOCH,
    NO_PRODUCER,
    NO_PRODUCER_ID,
    Epoch,
    Milliseconds,
    ProducerId,
    TopicPartition,
)


class AddPartitions(NamedTuple):
    """The partitions to add.  `transaction_version`: 2: an implicit add (AddPartitionsToTxn v4 and later); else 0."""

    producer_id: ProducerId
    producer_epoch: Epoch
    partitions: Sequence[TopicPartition]
    transaction_version: int


def add_partitions(
    transaction: TransactionMetadata, request: AddPartitions, now: Milliseconds, level: int
) -> Refusal | Unchanged | Transition:
    """Decide whether the partitions become part of the transaction.  `level`: the cluster's transaction.version."""
    if transaction.pending is not None:
        return Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
    current = transaction.current
    if request.producer_id != current.producer_id:
        return Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, _was_timed_out(transaction, request))
    if request.producer_epoch != current.producer_epoch:
        return Refusal(ErrorCode.PRODUCER_FENCED, _was_timed_out(transaction, request))
    state, known = transaction.state, transaction.partitions
    if transaction.is_prepared:
        return Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.keeps_prepared:
        return Refusal(ErrorCode.INVALID_TXN_STATE)
    is_open = state is State.ONGOING
    added = [partition for partition in request.partitions if partition not in known]
    if is_open and not added:
        return Unchanged(current.producer_id, current.producer_epoch)
    if request.transaction_version >= 2 and level < 1:
        began_before = is_open and transaction.client_transaction_version >= 2
        return Refusal(ErrorCode.TRANSACTION_ABORTABLE if began_before else ErrorCode.UNSUPPORTED_VERSION)
    return Transition(
        transaction._replace(
            previous_producer_id=transaction.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_EPOCH,
            state=State.ONGOING,
            pending=None,
            partitions={**known, **dict.fromkeys(added)} if is_open else dict.fromkeys(added),
            start_timestamp=transaction.start_timestamp if is_open else now,
            last_update_timestamp=now,
            client_transaction_version=request.transaction_version,
            claimed=NO_PRODUCER,
        )
    )


def _was_timed_out(transaction: TransactionMetadata, request: AddPartitions) -> bool:
    return transaction.was_timed_out(request.producer_id, request.producer_epoch)
