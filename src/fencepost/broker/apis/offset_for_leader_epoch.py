"""OffsetForLeaderEpoch (23): where a leader epoch ended.

v3    replica id
v4    flexible
"""

from __future__ import annotations

from functools import partial

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from fencepost.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from fencepost.protocol.steps import ITEM, Pace, Steps, each
from fencepost.protocol.types import LeaderEpoch


@serves(OffsetForLeaderEpochRequest, in_turn=True)
@in_steps
def offset_for_leader_epoch(request: OffsetForLeaderEpochRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace, topics = Pace(), []
    for topic in request.topics:
        yield from pace.spend(ITEM)
        found = yield from each(topic.partitions, partial(_one, topic.topic, context, node), pace)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=found))
    return Reply(OffsetForLeaderEpochResponse(topics=topics), node.storage.lsn)


def _one(topic: str, context: RequestContext, node: Node, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = node.storage.partition(topic, wanted.partition)
    error, epoch, offset = ErrorCode.NONE, -1, -1
    if not context.may(Operation.DESCRIBE, Resource.TOPIC, topic):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif partition is None:
        error = node.storage.refusal(topic, wanted.partition)
    elif wanted.current_leader_epoch not in (-1, partition.leader_epoch):
        older = wanted.current_leader_epoch < partition.leader_epoch
        error = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
    else:
        epoch, offset = partition.end_offset_for_epoch(LeaderEpoch(wanted.leader_epoch))
    return EpochEndOffset(error_code=error, partition=wanted.partition, leader_epoch=epoch, end_offset=offset)
