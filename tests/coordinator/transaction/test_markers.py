"""What becomes of a marker in a partition: written, not waited for any more, refused, or tried again."""

from __future__ import annotations

from typing import Final

import pytest

from fencepost.coordinator.transaction.markers import Marker
from fencepost.coordinator.transaction.shards import Completion
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, ProducerId, TopicPartition

AT, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
MARKER = Marker(ProducerId(7), Epoch(1), LeaderEpoch(0), True, 2)
#: Written; of a deleted topic; in a log that can hold no marker.
DONE: Final = {
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_VERSION,
}
TOLD: Final = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}


@pytest.mark.parametrize("error", ErrorCode)
def test_whatever_is_answered_a_partition_is_waited_for_until_it_has_the_marker(error: ErrorCode) -> None:
    completion = Completion(MARKER, [AT, OTHER])
    refused = completion.settle({AT: error})
    assert list(completion.waiting) == ([OTHER] if error in DONE else [AT, OTHER])
    assert refused == ([(AT, error)] if error in TOLD else [])


def test_a_clock_that_was_set_back_delays_nothing() -> None:
    completion = Completion(MARKER, [AT])
    completion.postpone(Milliseconds(10_000))
    assert not completion.is_due(Milliseconds(10_001))
    assert completion.is_due(completion.due)
    assert completion.is_due(Milliseconds(9_999))
    completion.in_flight = True
    assert not completion.is_due(Milliseconds(9_999)), "its answer is waited for"
