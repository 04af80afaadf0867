"""DeleteRecords (21): move the start of partitions forward; -1 means to the high watermark.

v2    flexible
"""

from __future__ import annotations

from functools import partial

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.metadata.topic_rules import INTERNAL
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.log.partition import Refused
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse
from fencepost.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsTopicResult,
)
from fencepost.protocol.steps import ITEM, Pace, Steps, each
from fencepost.protocol.types import Offset


@serves(DeleteRecordsRequest, in_turn=True)
@in_steps
def delete_records(request: DeleteRecordsRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace, topics = Pace(), []
    for topic in request.topics:
        yield from pace.spend(ITEM)
        done = yield from each(topic.partitions, partial(_delete, topic.name, context, node), pace)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=done))
    return Reply(DeleteRecordsResponse(topics=topics), node.storage.lsn)


def _delete(
    topic: str, context: RequestContext, node: Node, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    partition = node.storage.partition(topic, index)
    error, low_watermark = ErrorCode.NONE, -1
    if not context.may(Operation.DELETE, Resource.TOPIC, topic):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif partition is None:
        error = node.storage.refusal(topic, index)
    elif topic in INTERNAL:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif "delete" not in partition.settings.cleanup_policy:
        error = ErrorCode.POLICY_VIOLATION
    else:
        outcome = partition.delete_records(Offset(asked.offset))
        if isinstance(outcome, Refused):
            error = outcome.error
        else:
            low_watermark = partition.log_start_offset
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=error)
