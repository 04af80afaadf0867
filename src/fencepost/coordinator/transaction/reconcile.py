"""Find transactions that are open in a partition but that no transactional id knows of.

Such a transaction would hold the last stable offset for ever.  It can be there after a transactional id was forgotten,
or in a directory that was written without verification.  Asked once at start, when the whole journal is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fencepost.coordinator.transaction.state import State
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.types import ProducerId, ProducerIdAndEpoch, TopicPartition


def unknown(
    open_transactions: Mapping[TopicPartition, Sequence[ProducerIdAndEpoch]],
    transactions: Iterable[TransactionMetadata],
) -> dict[ProducerIdAndEpoch, list[TopicPartition]]:
    """The pairs that hold a transaction open where their transactional id does not know of one, and the partitions."""
    by_producer_id: dict[ProducerId, TransactionMetadata] = {
        transaction.producer_id: transaction
        for transaction in transactions
        if transaction.state is State.ONGOING or transaction.is_prepared
    }
    found: dict[ProducerIdAndEpoch, list[TopicPartition]] = {}
    for partition, producers in open_transactions.items():
        for producer in producers:
            transaction = by_producer_id.get(producer.producer_id)
            if transaction is None or partition not in transaction.partitions:
                found.setdefault(producer, []).append(partition)
    return found
