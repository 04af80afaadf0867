"""DescribeProducers (61): producers that a partition knows, and their open transactions."""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeProducersRequest, DescribeProducersResponse
from fencepost.protocol.messages.describe_producers import PartitionResponse, ProducerState, TopicResponse
from fencepost.protocol.steps import FIRST_STEP, ITEM, Pace, Steps


@serves(DescribeProducersRequest)
@in_steps
def describe_producers(request: DescribeProducersRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace, topics = Pace(FIRST_STEP), []
    described: set[tuple[str, int]] = set()
    for topic in request.topics:
        yield from pace.spend(ITEM)
        partitions = []
        for index in topic.partition_indexes:
            if (topic.name, index) in described:
                yield from pace.spend(1)
                continue
            described.add((topic.name, index))
            yield from pace.spend(ITEM)
            partitions.append((yield from _describe(topic.name, index, context, node, pace)))
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return Reply(DescribeProducersResponse(topics=topics), node.storage.lsn)


def _describe(topic: str, index: int, context: RequestContext, node: Node, pace: Pace) -> Steps[PartitionResponse]:
    partition = node.storage.partition(topic, index)
    error = ErrorCode.NONE
    producers: list[ProducerState] = []
    if not context.may(Operation.READ, Resource.TOPIC, topic):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif partition is None:
        error = node.storage.refusal(topic, index)
    else:
        for found in partition.active_producers():
            producers.append(
                ProducerState(
                    producer_id=found.producer_id,
                    producer_epoch=found.producer_epoch,
                    last_sequence=found.last_sequence,
                    last_timestamp=found.last_timestamp,
                    coordinator_epoch=found.coordinator_epoch,
                    current_txn_start_offset=found.open_first_offset,
                )
            )
            if pace.is_used_up(ITEM):
                yield from pace.rest()
    return PartitionResponse(partition_index=index, error_code=error, active_producers=producers)
