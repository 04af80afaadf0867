"""WriteTxnMarkers (27): write the markers that end transactions; an admin may end a hanging one so.

v1    flexible
v2    the transaction version of each marker (KIP-1228)
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
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

Errors = dict[str, dict[int, ErrorCode]]
"""Topic -> partition -> what became of the marker."""


@serves(WriteTxnMarkersRequest)
def write_txn_markers(request: WriteTxnMarkersRequest, context: RequestContext, node: Node) -> Reply:
    allowed = any(
        context.may(operation, Resource.CLUSTER, CLUSTER_NAME)
        for operation in (Operation.ALTER, Operation.CLUSTER_ACTION)
    )
    by_producer: dict[int, Errors] = {}
    for marker in request.markers:
        for at, error in _write(marker, node, allowed=allowed).items():
            # One result per producer id, which is all that a sender tells markers by.
            by_producer.setdefault(marker.producer_id, {}).setdefault(at.topic, {})[at.partition] = _error_code(error)
    results = [_result(producer_id, errors) for producer_id, errors in by_producer.items()]
    return Reply(WriteTxnMarkersResponse(markers=results), node.storage.lsn)


def _write(asked: WritableTxnMarker, node: Node, *, allowed: bool) -> Mapping[TopicPartition, ErrorCode]:
    partitions = [TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partition_indexes]
    if not allowed:
        return dict.fromkeys(partitions, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    marker = Marker(
        ProducerId(asked.producer_id),
        Epoch(asked.producer_epoch),
        asked.coordinator_epoch,
        asked.transaction_result,
        asked.transaction_version,
    )
    return node.local_markers.write(marker, list(dict.fromkeys(partitions)))


def _result(producer_id: int, errors: Errors) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                    for index, error in partitions.items()
                ],
            )
            for topic, partitions in errors.items()
        ],
    )


def _error_code(error: ErrorCode) -> ErrorCode:
    """A sender names topics, so a deleted one is unknown to it by name."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is ErrorCode.UNKNOWN_TOPIC_ID else error
