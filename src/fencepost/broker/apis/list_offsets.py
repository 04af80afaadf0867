"""ListOffsets (2): find offsets by time, or the ends of a partition.

v1    one offset per partition
v2    isolation level
v4    leader epochs
v6    flexible
v7    -3: the record with the largest timestamp
v8    -4: the first offset kept locally
v9    -5: the last offset kept remotely
v10   a time-out
v11   -6: the first offset not yet kept remotely
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.log.damage import FileDamaged
from fencepost.log.partition import Partition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from fencepost.protocol.messages.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from fencepost.protocol.steps import FIRST_STEP, ITEM, Pace, Steps, each
from fencepost.protocol.types import Isolation, Milliseconds, Offset

#: timestamp that means something else than a time -> the version since which it does
_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
#: Above every version.
_NEVER = math.inf
_CONSUMER = -1


@serves(ListOffsetsRequest)
@in_steps
def list_offsets(request: ListOffsetsRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace = Pace(FIRST_STEP, node.unfolding)
    seen, hidden = list[ListOffsetsTopic](), set[str]()
    for topic in request.topics:
        yield from pace.spend(ITEM)
        if context.may(Operation.DESCRIBE, Resource.TOPIC, topic.name):
            seen.append(topic)
        else:
            hidden.add(topic.name)
    # Which fails the whole request in Apache Kafka, before anything is looked up.
    fails = request.isolation_level not in (0, 1)
    # Whoever is not a consumer reads without isolation.
    committed = request.isolation_level == 1 and request.replica_id == _CONSUMER
    isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    named = yield from _by_name([] if fails else seen, pace)
    topics = []
    for topic in request.topics:
        if fails or topic.name in hidden:
            error = ErrorCode.UNKNOWN_SERVER_ERROR if fails else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topics.append((yield from _refused_as_named(topic, error, pace)))
        elif partitions := named.pop(topic.name, None):
            answers = []
            for wanted, times in partitions.values():
                yield from pace.spend(ITEM)
                answers.append((yield from _answer(topic.name, wanted, times, isolation, context.version, node, pace)))
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return independent(ListOffsetsResponse(topics=topics))


_Named = dict[str, dict[int, tuple[ListOffsetsPartition, int]]]
"""Topic -> partition -> what is asked of it, and how often it is named."""


def _by_name(topics: Sequence[ListOffsetsTopic], pace: Pace) -> Steps[_Named]:
    """Each partition once, wherever it is named; as in Apache Kafka a topic without any is not spoken of."""
    named: _Named = {}
    for topic in topics:
        for wanted in topic.partitions:
            if pace.is_used_up(1):
                yield from pace.rest()
            partitions = named.setdefault(topic.name, {})
            _, times = partitions.get(wanted.partition_index, (wanted, 0))
            partitions[wanted.partition_index] = wanted, times + 1
    return named


def _refused_as_named(topic: ListOffsetsTopic, error: ErrorCode, pace: Pace) -> Steps[ListOffsetsTopicResponse]:
    """The same error for all partitions of a topic, for each as often as it is named."""
    refused = yield from each(topic.partitions, lambda wanted: _refused(wanted, error), pace)
    return ListOffsetsTopicResponse(name=topic.name, partitions=refused)


def _answer(
    topic: str, wanted: ListOffsetsPartition, times: int, isolation: Isolation, version: int, node: Node, pace: Pace
) -> Steps[ListOffsetsPartitionResponse]:
    partition = node.storage.partition(topic, wanted.partition_index)
    if times > 1:
        return _refused(wanted, ErrorCode.INVALID_REQUEST)
    if wanted.timestamp < 0 and version < _SINCE.get(wanted.timestamp, _NEVER):
        return _refused(wanted, ErrorCode.UNSUPPORTED_VERSION)
    if partition is None:
        return _refused(wanted, node.storage.refusal(topic, wanted.partition_index))
    if wanted.current_leader_epoch not in (-1, partition.leader_epoch):
        older = wanted.current_leader_epoch < partition.leader_epoch
        return _refused(wanted, ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)
    try:
        return (yield from _while_it_is_there(_find(wanted, partition, isolation, pace), wanted, partition, node))
    except FileDamaged as damaged:
        return _refused(wanted, partition.refusal(damaged).error)


def _while_it_is_there(
    steps: Steps[ListOffsetsPartitionResponse], wanted: ListOffsetsPartition, partition: Partition, node: Node
) -> Steps[ListOffsetsPartitionResponse]:
    """Do `steps` while their partition is there: one that is deleted between two of them has its files closed."""
    failure = None
    try:
        pause = next(steps)
        while True:
            failure, result = None, None
            try:
                result = yield pause
            except Exception as error:
                failure = error
            if node.storage.partition(partition.topic, partition.index) is not partition:
                return _refused(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            pause = steps.send(result) if failure is None else steps.throw(failure)
    except StopIteration as done:
        return cast(ListOffsetsPartitionResponse, done.value)
    finally:
        failure = None  # it refers to this frame, and to what was unfolded where it comes from


def _find(
    wanted: ListOffsetsPartition, partition: Partition, isolation: Isolation, pace: Pace
) -> Steps[ListOffsetsPartitionResponse]:
    """The answer for one partition: for the timestamp asked for, in milliseconds, or for -1 to -6 (facts §8.3)."""
    match wanted.timestamp:
        case -1:
            return _offset(wanted, partition, partition.bound(isolation))
        case -2 | -4:
            return _offset(wanted, partition, partition.log_start_offset)
        case -5 | -6:
            return _nothing(wanted)
        case -3:
            found = yield from partition.reader.max_timestamp_offset(isolation, pace)
        case timestamp:
            found = yield from partition.reader.offset_for_timestamp(Milliseconds(timestamp), isolation, pace)
    if found is None:
        return _nothing(wanted)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=max(found.leader_epoch, 0),
    )


def _offset(wanted: ListOffsetsPartition, partition: Partition, offset: Offset) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=-1,
        offset=offset,
        leader_epoch=partition.leader_epoch,
    )


def _nothing(wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, error_code=ErrorCode.NONE, timestamp=-1, offset=-1
    )


def _refused(wanted: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, error_code=error, timestamp=-1, offset=-1
    )
