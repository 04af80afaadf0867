"""DeleteRecords (21): move the start of partitions forward; -1 means to the high watermark.

v2    flexible
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.metadata.topic_rules import INTERNAL
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.log.partition import Refused
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse
from fencepost.protocol.messages.delete_records import DeleteRecordsPartitionResult, DeleteRecordsTopicResult


@serves(DeleteRecordsRequest)
def delete_records(request: DeleteRecordsRequest, context: RequestContext, node: Node) -> Reply:
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                _delete(topic.name, asked.partition_index, asked.offset, context, node) for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return Reply(DeleteRecordsResponse(topics=topics), node.storage.lsn)


def _delete(topic: str, index: int, before: int, context: RequestContext, node: Node) -> DeleteRecordsPartitionResult:
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
        outcome = partition.delete_records(before)
        if isinstance(outcome, Refused):
            error = outcome.error
        else:
            low_watermark = partition.log_start_offset
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=error)
