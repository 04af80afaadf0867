"""WriteTxnMarkers (27): write the markers that end transactions; an admin may end a hanging one so.

v1    flexible
v2    the transaction version of each marker (KIP-1228)
"""

from __future__ import annotations

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.broker import Broker
from fencepost.broker.caller import Caller
from fencepost.broker.markers import LocalMarkers
from fencepost.broker.registry import Held, serves
from fencepost.coordinator.transaction.markers import Marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from fencepost.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
)
from fencepost.protocol.types import Epoch, ProducerId, TopicPartition


@serves(WriteTxnMarkersRequest)
def write_txn_markers(request: WriteTxnMarkersRequest, caller: Caller, broker: Broker) -> Held:
    allowed = any(
        caller.may(operation, Resource.CLUSTER, CLUSTER_NAME)
        for operation in (Operation.ALTER, Operation.CLUSTER_ACTION)
    )
    results = [_write(marker, broker, allowed=allowed) for marker in request.markers]
    return Held(WriteTxnMarkersResponse(markers=results), broker.storage.lsn)


def _write(asked: WritableTxnMarker, broker: Broker, *, allowed: bool) -> WritableTxnMarkerResult:
    partitions = [TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partition_indexes]
    if allowed:
        marker = Marker(
            ProducerId(asked.producer_id),
            Epoch(asked.producer_epoch),
            asked.coordinator_epoch,
            asked.transaction_result,
            asked.transaction_version,
        )
        errors = LocalMarkers(broker).write(marker, partitions)
    else:
        errors = dict.fromkeys(partitions, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=_told(errors[TopicPartition(topic.name, index)])
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )


def _told(error: ErrorCode) -> ErrorCode:
    """A sender names topics, so a deleted one is unknown to it by name."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is ErrorCode.UNKNOWN_TOPIC_ID else error
