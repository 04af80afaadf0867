"""Markers: the control records that tell every partition of a transaction how it ended.

The decision is durable in PREPARE_x; from there the markers are written until every partition has one, however often
that takes.  Nothing is dropped: a partition that cannot take its marker now is tried again with a growing delay, and so
is one that refuses it (KAFKA-19999 left such ids in PREPARE forever).  Only a partition that is known to be deleted, or
that can hold no marker, is not waited for.  Facts §5.2.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple, Protocol

from fencepost.coordinator.transaction.state import State
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, LeaderEpoch, ProducerId, TopicPartition


class Marker(NamedTuple):
    """The marker of one transaction.  `coordinator_epoch`: the leader epoch of the journal's partition."""

    producer_id: ProducerId
    producer_epoch: Epoch
    coordinator_epoch: LeaderEpoch
    commit: bool
    transaction_version: int


Results = dict[TopicPartition, ErrorCode]


class Markers(Protocol):
    """Writes markers to the leaders of partitions."""

    def write(self, marker: Marker, partitions: Sequence[TopicPartition]) -> Results | Awaitable[Results]:
        """The error code for the marker in each partition; an awaitable where a leader is not on this node.

        NONE: appended.  UNKNOWN_TOPIC_ID: the topic is known to be deleted, not merely unknown here yet.
        Writing the same marker again is harmless, and happens.
        """
        ...


#: Nothing is waited for any more after these: written, deleted, or a log that can hold no marker.
SETTLED: Final = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_VERSION,
)
#: A refusal, not an accident: tried again, but somebody should look.
REFUSED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)

FIRST_DELAY: Final = 20
LONGEST_DELAY: Final = 1000


def marker_of(prepared: TransactionMetadata, coordinator_epoch: LeaderEpoch) -> Marker:
    """The marker of a prepared transaction: its epoch is the one *after* PREPARE."""
    return Marker(
        prepared.producer_id,
        prepared.producer_epoch,
        coordinator_epoch,
        prepared.state is State.PREPARE_COMMIT,
        prepared.client_transaction_version,
    )
