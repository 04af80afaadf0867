"""OffsetFetch (9): read committed offsets of groups.

v2    no topics means all; an error of the whole answer
v5    leader epochs
v6    flexible
v7    require_stable (KIP-447)
v8    several groups
v9    member epochs (KIP-848)
v10   topic ids
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.group import CommittedOffset
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import OffsetFetchRequest, OffsetFetchResponse
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from fencepost.protocol.types import ZERO_UUID, TopicPartition

_SEVERAL_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10
Answer = tuple[int, int, str, ErrorCode]
"""Offset, leader epoch, metadata, error."""


@serves(OffsetFetchRequest)
def offset_fetch(request: OffsetFetchRequest, context: RequestContext, node: Node) -> Reply:
    if context.version >= _SEVERAL_GROUPS_SINCE:
        groups = [_group(asked, request.require_stable, context, node) for asked in request.groups]
        return Reply(OffsetFetchResponse(groups=groups), node.storage.lsn)
    return Reply(_one_group(request, context, node), node.storage.lsn)


def _fetch(
    group_id: str,
    wanted: Sequence[TopicPartition] | None,
    require_stable: bool,
    context: RequestContext,
    node: Node,
) -> dict[str, dict[int, Answer]] | ErrorCode:
    """By topic and partition."""
    if not context.may(Operation.DESCRIBE, Resource.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    allowed = None
    if wanted is not None:
        allowed = [at for at in wanted if context.may(Operation.DESCRIBE, Resource.TOPIC, at.topic)]
    found = node.groups.fetch_offsets(group_id, allowed, require_stable)
    if isinstance(found, ErrorCode):
        return found
    answers: Mapping[TopicPartition, CommittedOffset | ErrorCode | None] = found
    if wanted is not None:
        answers = {at: found.get(at, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for at in wanted}
    by_topic: dict[str, dict[int, Answer]] = {}
    for at, answer in answers.items():
        if wanted is not None or context.may(Operation.DESCRIBE, Resource.TOPIC, at.topic):
            by_topic.setdefault(at.topic, {})[at.partition] = _answer(answer)
    return by_topic


def _answer(found: CommittedOffset | ErrorCode | None) -> Answer:
    if found is None:
        return -1, -1, "", ErrorCode.NONE
    if isinstance(found, ErrorCode):
        return -1, -1, "", found
    return found.offset, found.leader_epoch, found.metadata, ErrorCode.NONE


def _one_group(request: OffsetFetchRequest, context: RequestContext, node: Node) -> OffsetFetchResponse:
    wanted = None
    if request.topics is not None:
        wanted = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    found = _fetch(request.group_id, wanted, request.require_stable, context, node)
    if isinstance(found, ErrorCode):
        if context.version >= 2 or wanted is None:
            return OffsetFetchResponse(error_code=found)
        by_topic: dict[str, dict[int, Answer]] = {}
        for at in wanted:
            by_topic.setdefault(at.topic, {})[at.partition] = _answer(found)
        found = by_topic
    topics = [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    metadata=metadata,
                    error_code=error,
                )
                for index, (offset, leader_epoch, metadata, error) in partitions.items()
            ],
        )
        for name, partitions in found.items()
    ]
    return OffsetFetchResponse(topics=topics)


def _group(
    asked: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext, node: Node
) -> OffsetFetchResponseGroup:
    wanted: list[TopicPartition] | None = None
    unknown: list[OffsetFetchResponseTopics] = []
    if asked.topics is not None:
        wanted = []
        for topic in asked.topics:
            name = topic.name
            if context.version >= _TOPIC_IDS_SINCE:
                known = node.topics.by_id.get(topic.topic_id)
                if known is None:
                    unknown.append(_unknown(topic))
                    continue
                name = known.name
            wanted += [TopicPartition(name, index) for index in topic.partition_indexes]
    found = _fetch(asked.group_id, wanted, require_stable, context, node)
    if isinstance(found, ErrorCode):
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=found)
    topics = [
        OffsetFetchResponseTopics(
            name=name,
            topic_id=node.topics.by_name[name].topic_id if name in node.topics.by_name else ZERO_UUID,
            partitions=[_partition(index, answer) for index, answer in partitions.items()],
        )
        for name, partitions in found.items()
    ]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics + unknown)


def _unknown(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    answer = _answer(ErrorCode.UNKNOWN_TOPIC_ID)
    partitions = [_partition(index, answer) for index in topic.partition_indexes]
    return OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions)


def _partition(index: int, answer: Answer) -> OffsetFetchResponsePartitions:
    offset, leader_epoch, metadata, error = answer
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        metadata=metadata,
        error_code=error,
    )
