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
from typing import NamedTuple, TypeAlias

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
from fencepost.protocol.types import NO_LSN, NO_TIMESTAMP, LeaderEpoch, Milliseconds, Offset, TopicPartition

_GROUP_NOT_FOUND_SINCE = 9
_TOPIC_IDS_SINCE = 10
_FOR_EVER = 2**63 - 1


_Place: TypeAlias = tuple[int, int]
"""Number of a topic in the request, and partition."""


class _Asked(NamedTuple):
    """The offsets of a request: the error of each that is not committed, else its partition and the offset."""

    errors: dict[_Place, ErrorCode]
    partitions: dict[_Place, TopicPartition]
    offsets: dict[TopicPartition, CommittedOffset]


@serves(OffsetCommitRequest, in_turn=True)
@in_steps
def offset_commit(request: OffsetCommitRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace = Pace()
    asked = yield from _check(request, context, node, pace)
    if pace.pauses:
        _refuse_deleted(asked, request, context, node)
    lsn = NO_LSN
    # Who commits nothing is still heard of, or begins the group.
    if asked.offsets or (not request.topics and context.may(Operation.READ, Resource.GROUP, request.group_id)):
        who = CommitFor(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
        )
        committed = node.groups.commit_offsets(who, asked.offsets)
        lsn = committed.lsn
        for place, at in asked.partitions.items():
            yield from pace.spend(1)
            asked.errors[place] = _error_for(committed.errors[at], context.version)
    topics = []
    for number, topic in enumerate(request.topics):
        yield from pace.spend(ITEM)
        parts = yield from each(topic.partitions, partial(_result, asked.errors, number), pace)
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=parts))
    return Reply(OffsetCommitResponse(topics=topics), lsn)


def _check(request: OffsetCommitRequest, context: RequestContext, node: Node, pace: Pace) -> Steps[_Asked]:
    """The offsets of a request that may be committed, and the error of each of the others."""
    asked = _Asked({}, {}, {})
    now = node.clock.now()
    kept_ms = request.retention_time_ms
    expires = NO_TIMESTAMP if kept_ms < 0 else Milliseconds(min(now + kept_ms, _FOR_EVER))
    group_allowed = context.may(Operation.READ, Resource.GROUP, request.group_id)
    for number, topic in enumerate(request.topics):
        yield from pace.spend(ITEM)
        name, unknown = _name(topic, context, node)
        for part in topic.partitions:
            yield from pace.spend(ITEM)
            place = number, part.partition_index
            if not group_allowed:
                asked.errors[place] = ErrorCode.GROUP_AUTHORIZATION_FAILED
            elif name and not context.may(Operation.READ, Resource.TOPIC, name):
                asked.errors[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not node.storage.exists(name, part.partition_index):
                asked.errors[place] = unknown
            else:
                asked.partitions[place] = at = TopicPartition(name, part.partition_index)
                offset, metadata = Offset(part.committed_offset), part.committed_metadata or ""
                asked.offsets[at] = CommittedOffset(
                    offset, LeaderEpoch(part.committed_leader_epoch), metadata, now, expires
                )
    return asked


def _refuse_deleted(asked: _Asked, request: OffsetCommitRequest, context: RequestContext, node: Node) -> None:
    """Leave out topics that were deleted since: their offsets would be those of the next ones of their names."""
    for place, at in list(asked.partitions.items()):
        name, unknown = _name(request.topics[place[0]], context, node)
        if name != at.topic or not node.storage.exists(*at):
            asked.errors[place] = unknown
            del asked.partitions[place]
            asked.offsets.pop(at, None)


def _result(
    errors: Mapping[_Place, ErrorCode], number: int, asked: OffsetCommitRequestPartition
) -> OffsetCommitResponsePartition:
    index = asked.partition_index
    return OffsetCommitResponsePartition(partition_index=index, error_code=errors[number, index])


def _error_for(error: ErrorCode, version: int) -> ErrorCode:
    if version < _GROUP_NOT_FOUND_SINCE and error is ErrorCode.GROUP_ID_NOT_FOUND:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _name(topic: OffsetCommitRequestTopic, context: RequestContext, node: Node) -> tuple[str, ErrorCode]:
    """The topic's name, empty where no topic has this id; and the error for a partition that is not there."""
    if context.version < _TOPIC_IDS_SINCE:
        return topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    known = node.topics.by_id.get(topic.topic_id)
    return ("", ErrorCode.UNKNOWN_TOPIC_ID) if known is None else (known.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
