"""OffsetCommit (8): commit offsets of a group.

v2    retention time
v5    retention time is gone
v6    leader epochs
v7    static members
v8    flexible
v9    member epochs (KIP-848); GROUP_ID_NOT_FOUND may be answered
v10   topic ids
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.group import CommitFor, CommittedOffset
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import OffsetCommitRequest, OffsetCommitResponse
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fencepost.protocol.steps import ITEM, Pace, Steps, each
from fencepost.protocol.types import Offset, TopicPartition

_GROUP_NOT_FOUND_SINCE = 9
_TOPIC_IDS_SINCE = 10
_FOR_EVER = 2**63 - 1


@serves(OffsetCommitRequest, in_turn=True)
@in_steps
def offset_commit(request: OffsetCommitRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace = Pace()
    errors: dict[tuple[int, int], ErrorCode] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    places: dict[tuple[int, int], TopicPartition] = {}
    now = node.clock.now()
    expires = min(now + request.retention_time_ms, _FOR_EVER) if request.retention_time_ms >= 0 else -1
    group_allowed = context.may(Operation.READ, Resource.GROUP, request.group_id)
    for number, topic in enumerate(request.topics):
        yield from pace.spend(ITEM)
        name, unknown = _name(topic, context, node)
        for asked in topic.partitions:
            yield from pace.spend(ITEM)
            place = number, asked.partition_index
            if not group_allowed:
                errors[place] = ErrorCode.GROUP_AUTHORIZATION_FAILED
            elif name and not context.may(Operation.READ, Resource.TOPIC, name):
                errors[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not node.storage.exists(name, asked.partition_index):
                errors[place] = unknown
            else:
                at = TopicPartition(name, asked.partition_index)
                places[place] = at
                offsets[at] = CommittedOffset(
                    Offset(asked.committed_offset),
                    asked.committed_leader_epoch,
                    asked.committed_metadata or "",
                    now,
                    expires,
                )
    if pace.pauses:
        # A topic may have been deleted since: its positions would be those of the next one of its name.
        for place, at in list(places.items()):
            name, unknown = _name(request.topics[place[0]], context, node)
            if name != at.topic or not node.storage.exists(*at):
                errors[place] = unknown
                del places[place]
                offsets.pop(at, None)
    lsn = 0
    if offsets or not request.topics:
        who = CommitFor(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
        )
        committed = node.groups.commit_offsets(who, offsets)
        lsn = committed.lsn
        for place, at in places.items():
            yield from pace.spend(1)
            errors[place] = _error_for(committed.errors[at], context.version)
    topics = []
    for number, topic in enumerate(request.topics):
        yield from pace.spend(ITEM)
        parts = yield from each(topic.partitions, partial(_result, errors, number), pace)
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=parts))
    return Reply(OffsetCommitResponse(topics=topics), lsn)


def _result(
    errors: Mapping[tuple[int, int], ErrorCode], number: int, asked: OffsetCommitRequestPartition
) -> OffsetCommitResponsePartition:
    index = asked.partition_index
    return OffsetCommitResponsePartition(partition_index=index, error_code=errors[number, index])


def _error_for(error: ErrorCode, version: int) -> ErrorCode:
    if version < _GROUP_NOT_FOUND_SINCE and error is ErrorCode.GROUP_ID_NOT_FOUND:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _name(topic: OffsetCommitRequestTopic, context: RequestContext, node: Node) -> tuple[str, ErrorCode]:
    """The topic's name, and what is said if there is no such topic."""
    if context.version < _TOPIC_IDS_SINCE:
        return topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    known = node.topics.by_id.get(topic.topic_id)
    return ("", ErrorCode.UNKNOWN_TOPIC_ID) if known is None else (known.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
