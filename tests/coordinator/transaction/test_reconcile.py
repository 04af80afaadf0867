"""Of the transactions that partitions hold open those are unknown which no transactional id will end."""

from __future__ import annotations

import pytest

from fencepost.coordinator.transaction.reconcile import unknown
from fencepost.coordinator.transaction.state import State
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.types import Epoch, ProducerId, ProducerIdAndEpoch, TopicPartition

AT, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
#: In these the coordinator has yet to write markers.
ENDS_IT = {State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}


@pytest.mark.parametrize("partitions", [(), (AT,), (OTHER,), (AT, OTHER)], ids=["none", "it", "another", "both"])
@pytest.mark.parametrize("producer_id", [7, 8])
@pytest.mark.parametrize("state", State)
def test_only_who_will_end_it_knows_of_it(
    state: State, producer_id: int, partitions: tuple[TopicPartition, ...]
) -> None:
    transaction = TransactionMetadata("id", ProducerId(7), Epoch(3), state=state, partitions=dict.fromkeys(partitions))
    known = state in ENDS_IT and producer_id == 7 and AT in partitions
    pair = ProducerIdAndEpoch.of(producer_id, 3)
    assert unknown({AT: [pair]}, [transaction]) == ({} if known else {pair: [AT]})
