"""OffsetFetch (9): read committed offsets of groups; all those of one group are told once.

v2    no topics means all; an error of the whole answer
v5    leader epochs
v6    flexible
v7    require_stable (KIP-447)
v8    several groups
v9    member epochs (KIP-848)
v10   topic ids
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.pacing import in_steps
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
from fencepost.protocol.steps import FIRST_STEP, ITEM, Pace, Steps, cost_of_id, each
from fencepost.protocol.types import ZERO_UUID, TopicPartition

_SEVERAL_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10
Answer = tuple[int, int, str, ErrorCode]
"""Offset, leader epoch, metadata, error."""


@serves(OffsetFetchRequest)
@in_steps
def offset_fetch(request: OffsetFetchRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace = Pace(FIRST_STEP)
    if context.version >= _SEVERAL_GROUPS_SINCE:
        groups, whole = [], set()
        for asked in request.groups:
            if asked.topics is None:
                if asked.group_id in whole:
                    continue
                whole.add(asked.group_id)
            groups.append((yield from _group(asked, request.require_stable, context, node, pace)))
            yield from pace.spend(ITEM + cost_of_id(asked.group_id))
        return Reply(OffsetFetchResponse(groups=groups), node.storage.lsn)
    response = yield from _one_group(request, context, node, pace)
    return Reply(response, node.storage.lsn)


def _fetch(
    group_id: str,
    wanted: Sequence[TopicPartition] | None,
    require_stable: bool,
    context: RequestContext,
    node: Node,
    pace: Pace,
) -> Steps[dict[str, dict[int, Answer]] | ErrorCode]:
    """Committed offsets of a group by topic and partition, all of them for None; or the error of the group."""
    if not context.may(Operation.DESCRIBE, Resource.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    may_describe = partial(context.may, Operation.DESCRIBE, Resource.TOPIC)
    allowed = None
    if wanted is not None:
        allowed = []
        for at in wanted:
            yield from pace.spend(1)
            if may_describe(at.topic):
                allowed.append(at)
    found = node.groups.fetch_offsets(group_id, allowed, require_stable)
    if isinstance(found, ErrorCode):
        return found
    by_topic: dict[str, dict[int, Answer]] = {}
    for at in found if wanted is None else wanted:
        yield from pace.spend(ITEM)
        if wanted is not None or may_describe(at.topic):
            answer = found.get(at, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            by_topic.setdefault(at.topic, {})[at.partition] = _answer(answer)
    return by_topic


def _answer(found: CommittedOffset | ErrorCode | None) -> Answer:
    if found is None:
        return -1, -1, "", ErrorCode.NONE
    if isinstance(found, ErrorCode):
        return -1, -1, "", found
    return found.offset, found.leader_epoch, found.metadata, ErrorCode.NONE


def _one_group(
    request: OffsetFetchRequest, context: RequestContext, node: Node, pace: Pace
) -> Steps[OffsetFetchResponse]:
    wanted = None
    if request.topics is not None:
        wanted = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    found = yield from _fetch(request.group_id, wanted, request.require_stable, context, node, pace)
    if isinstance(found, ErrorCode):
        if context.version >= 2 or wanted is None:
            return OffsetFetchResponse(error_code=found)
        by_topic: dict[str, dict[int, Answer]] = {}
        for at in wanted:
            yield from pace.spend(1)
            by_topic.setdefault(at.topic, {})[at.partition] = _answer(found)
        found = by_topic
    topics = []
    for name, partitions in found.items():
        yield from pace.spend(ITEM)
        parts = yield from each(partitions.items(), _partition_of_one, pace)
        topics.append(OffsetFetchResponseTopic(name=name, partitions=parts))
    return OffsetFetchResponse(topics=topics)


def _partition_of_one(of: tuple[int, Answer]) -> OffsetFetchResponsePartition:
    index, (offset, leader_epoch, metadata, error) = of
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        metadata=metadata,
        error_code=error,
    )


def _group(
    asked: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext, node: Node, pace: Pace
) -> Steps[OffsetFetchResponseGroup]:
    wanted: list[TopicPartition] | None = None
    unknown: list[OffsetFetchResponseTopics] = []
    if asked.topics is not None:
        wanted = []
        for topic in asked.topics:
            yield from pace.spend(ITEM)
            name = topic.name
            if context.version >= _TOPIC_IDS_SINCE:
                known = node.topics.by_id.get(topic.topic_id)
                if known is None:
                    unknown.append((yield from _unknown(topic, pace)))
                    continue
                name = known.name
            wanted += yield from each(topic.partition_indexes, partial(TopicPartition, name), pace)
    found = yield from _fetch(asked.group_id, wanted, require_stable, context, node, pace)
    if isinstance(found, ErrorCode):
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=found)
    topics = []
    for name, partitions in found.items():
        yield from pace.spend(ITEM)
        topic_id = node.topics.by_name[name].topic_id if name in node.topics.by_name else ZERO_UUID
        parts = yield from each(partitions.items(), _partition, pace)
        topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=parts))
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics + unknown)


def _unknown(topic: OffsetFetchRequestTopics, pace: Pace) -> Steps[OffsetFetchResponseTopics]:
    answer = _answer(ErrorCode.UNKNOWN_TOPIC_ID)
    partitions = yield from each(topic.partition_indexes, lambda index: _partition((index, answer)), pace)
    return OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions)


def _partition(of: tuple[int, Answer]) -> OffsetFetchResponsePartitions:
    index, (offset, leader_epoch, metadata, error) = of
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        metadata=metadata,
        error_code=error,
    )
