"""DescribeLogDirs (35): the data directory, its volume, and how many bytes the segments of each partition have.

v1    the first version that Apache Kafka still serves
v2    flexible
v3    an error of the whole answer; before, who may not ask is told of no directory
v4    total and usable bytes of the volume
v5    cordoned directories: there are none

There is one directory and one copy of each partition: no lag, and no future log.  A partition that is not there, or
offline, is left out, as are topics without any: Apache Kafka tells only of partitions whose logs are open.
"""

from __future__ import annotations

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.log.partition import Partition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from fencepost.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from fencepost.protocol.steps import ITEM, Pace, Steps, in_order


@serves(DescribeLogDirsRequest)
@in_steps
def describe_log_dirs(request: DescribeLogDirsRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    if not context.may(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return independent(DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[]))
    pace = Pace()
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for topic, index in (yield from _wanted(request.topics, node, pace)):
        yield from pace.spend(ITEM)  # others may delete it meanwhile
        partition = node.storage.partition(topic, index)
        if partition is not None:
            topics.setdefault(topic, []).append(_described(partition))
    return Reply(DescribeLogDirsResponse(results=[_directory(topics, node)]), node.storage.lsn)


def _wanted(asked: list[DescribableLogDirTopic] | None, node: Node, pace: Pace) -> Steps[list[tuple[str, int]]]:
    if asked is None:
        return [(partition.topic, partition.index) for partition in node.storage.partitions()]
    return (yield from in_order({(topic.topic, index) for topic in asked for index in topic.partitions}, pace))


def _described(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index,
        partition_size=sum(segment.size for segment in partition.segments),
        offset_lag=0,
        is_future_key=False,
    )


def _directory(topics: dict[str, list[DescribeLogDirsPartition]], node: Node) -> DescribeLogDirsResult:
    directory = DescribeLogDirsResult(error_code=ErrorCode.NONE, log_dir=str(node.storage.path.absolute()), topics=[])
    try:
        room = node.storage.space.room()
    except OSError:
        directory.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return directory
    if room is not None:
        directory.total_bytes, directory.usable_bytes = room.total, room.free
    directory.topics = [DescribeLogDirsTopic(name=name, partitions=found) for name, found in topics.items()]
    return directory
