"""Is this partition part of the open transaction?  (AddPartitionsToTxn v4 and later with VerifyOnly, KIP-890 part 1.)

Asked before a write of an older client is let in.  What is pending does not matter (KAFKA-14904): a partition that is
being added is not in yet, and while markers are written the state says so.  Facts §3.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, ProducerId, TopicPartition


def verify(
    transaction: TransactionMetadata,
    producer_id: ProducerId,
    producer_epoch: Epoch,
    partitions: Sequence[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """The error for each partition; NONE only where it is part of the open transaction of this pair."""
    current = transaction.current
    if producer_id != current.producer_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer_epoch != current.producer_epoch:
        return dict.fromkeys(partitions, ErrorCode.PRODUCER_FENCED)
    if transaction.is_prepared:
        return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.keeps_prepared:
        # Its data was written with another pair, and no more may be.
        return dict.fromkeys(partitions, ErrorCode.TRANSACTION_ABORTABLE)
    known = transaction.partitions
    return {
        partition: ErrorCode.NONE if partition in known else ErrorCode.TRANSACTION_ABORTABLE for partition in partitions
    }
