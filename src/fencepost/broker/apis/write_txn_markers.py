"""WriteTxnMarkers (27): write the markers that end transactions; an admin may end a hanging one so.

v1    flexible
v2    the transaction version of each marker (KIP-1228)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.network.pacing import in_steps
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
from fencepost.protocol.steps import ITEM, Pace, Steps, each
from fencepost.protocol.types import Epoch, LeaderEpoch, ProducerId, TopicPartition

_AT_ONCE: Final = 100
"""Partitions that a marker is written to in one step."""

Errors = dict[str, dict[int, ErrorCode]]
"""Topic -> partition -> what became of the marker."""


@serves(WriteTxnMarkersRequest, in_turn=True)
@in_steps
def write_txn_markers(request: WriteTxnMarkersRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace = Pace()
    allowed = any(
        context.may(operation, Resource.CLUSTER, CLUSTER_NAME)
        for operation in (Operation.ALTER, Operation.CLUSTER_ACTION)
    )
    by_producer: dict[ProducerId, Errors] = {}
    for marker in request.markers:
        # One result per producer id, which is all that a sender tells markers by.
        errors = by_producer.setdefault(ProducerId(marker.producer_id), {})
        for at, error in (yield from _write(marker, node, pace, allowed=allowed)).items():
            errors.setdefault(at.topic, {})[at.partition] = _error_code(error)
            yield from pace.spend(1)
    results = []
    for producer_id, errors in by_producer.items():
        if errors:
            results.append((yield from _result(producer_id, errors, pace)))
    return Reply(WriteTxnMarkersResponse(markers=results), node.storage.lsn)


def _write(
    asked: WritableTxnMarker, node: Node, pace: Pace, *, allowed: bool
) -> Steps[Mapping[TopicPartition, ErrorCode]]:
    yield from pace.spend(2 * ITEM)
    partitions = []
    for topic in asked.topics:
        for index in topic.partition_indexes:
            yield from pace.spend(4)
            partitions.append(TopicPartition(topic.name, index))
    if not allowed:
        return dict.fromkeys(partitions, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    marker = Marker(
        ProducerId(asked.producer_id),
        Epoch(asked.producer_epoch),
        LeaderEpoch(asked.coordinator_epoch),
        asked.transaction_result,
        asked.transaction_version,
    )
    written: dict[TopicPartition, ErrorCode] = {}
    once = list(dict.fromkeys(partitions))
    for first in range(0, len(once), _AT_ONCE):
        some = once[first : first + _AT_ONCE]
        written |= node.local_markers.write(marker, some)
        yield from pace.spend(len(some) * ITEM)
    return written


def _result(producer_id: ProducerId, errors: Errors, pace: Pace) -> Steps[WritableTxnMarkerResult]:
    topics = []
    for topic, partitions in errors.items():
        yield from pace.spend(ITEM)
        parts = yield from each(partitions.items(), _partition_result, pace)
        topics.append(WritableTxnMarkerTopicResult(name=topic, partitions=parts))
    return WritableTxnMarkerResult(producer_id=producer_id, topics=topics)


def _partition_result(of: tuple[int, ErrorCode]) -> WritableTxnMarkerPartitionResult:
    return WritableTxnMarkerPartitionResult(partition_index=of[0], error_code=of[1])


def _error_code(error: ErrorCode) -> ErrorCode:
    """The code that the sender is told, which names topics: UNKNOWN_TOPIC_OR_PARTITION for UNKNOWN_TOPIC_ID."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is ErrorCode.UNKNOWN_TOPIC_ID else error
