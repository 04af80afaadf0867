"""What tests of groups and offsets say over the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.broker.wire import Client, find_coordinator

from fencepost.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.messages.join_group import JoinGroupRequestProtocol
from fencepost.protocol.messages.leave_group import MemberIdentity
from fencepost.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from fencepost.protocol.messages.sync_group import SyncGroupRequestAssignment
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.types import ZERO_UUID


class Who(NamedTuple):
    """A member, as it names itself in a commit."""

    member_id: str = ""
    generation: int = -1
    instance: str | None = None


NOBODY = Who()


def find_group(client: Client, group: str = "g") -> None:
    find_coordinator(client, group, 0)


def _topic_id(client: Client, topic: str) -> Any:
    known = client.broker.node.topics.by_name.get(topic)
    return ZERO_UUID if known is None else known.topic_id


def txn_commit_request(
    client: Client,
    transactional_id: str,
    pair: tuple[int, int],
    topics: Sequence[str],
    *offsets: int,
    group: str = "g",
    who: Who = NOBODY,
    metadata: str = "",
) -> TxnOffsetCommitRequest:
    """Of partitions from 0 on of each topic."""
    partitions = [
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
        )
        for index, offset in enumerate(offsets)
    ]
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=pair[0],
        producer_epoch=pair[1],
        generation_id=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance,
        topics=[
            TxnOffsetCommitRequestTopic(name=topic, topic_id=_topic_id(client, topic), partitions=partitions)
            for topic in topics
        ],
    )


def txn_commit(
    client: Client,
    transactional_id: str,
    pair: tuple[int, int],
    topic: str,
    *offsets: int,
    group: str = "g",
    who: Who = NOBODY,
    metadata: str = "",
    version: int = 6,
) -> list[int]:
    """TxnOffsetCommit of partitions from 0 on; their errors."""
    request = txn_commit_request(
        client, transactional_id, pair, [topic], *offsets, group=group, who=who, metadata=metadata
    )
    answer = client.ask(request, version)
    return [each.error_code for each in answer.topics[0].partitions]


def commit(
    client: Client,
    topic: str,
    *offsets: int,
    group: str = "g",
    who: Who = NOBODY,
    metadata: str = "",
    version: int = 10,
) -> list[int]:
    """OffsetCommit of partitions from 0 on; their errors."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
        for index, offset in enumerate(offsets)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance,
        topics=[OffsetCommitRequestTopic(name=topic, topic_id=_topic_id(client, topic), partitions=partitions)],
    )
    answer = client.ask(request, version)
    return [each.error_code for each in answer.topics[0].partitions]


def committed_offset(
    client: Client, topic: str, partition: int = 0, *, group: str = "g", stable: bool = False
) -> tuple[int, int]:
    """The offset and error of OffsetFetch."""
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
    asked = OffsetFetchRequestGroup(group_id=group, topics=[wanted])
    (found,) = client.ask(OffsetFetchRequest(groups=[asked], require_stable=stable), 9).groups
    assert found.error_code == 0, found
    each = found.topics[0].partitions[0]
    return each.committed_offset, each.error_code


def join_request(
    member_id: str = "",
    *,
    group: str = "g",
    instance: str | None = None,
    protocols: tuple[str, ...] = ("range",),
    session_ms: int = 30_000,
    rebalance_ms: int = 30_000,
    protocol_type: str = "consumer",
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=f"{name}!".encode()) for name in protocols],
    )


def join(client: Client, member_id: str = "", *, version: int = 9, **how: Any) -> JoinGroupResponse:
    """Join, with a second request where a member id is given out first (79)."""
    answer: JoinGroupResponse = client.ask(join_request(member_id, **how), version)
    if answer.error_code == 79:
        answer = client.ask(join_request(answer.member_id, **how), version)
    return answer


def sync_request(joined: JoinGroupResponse, given: dict[str, bytes], *, group: str = "g") -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type=joined.protocol_type or "consumer",
        protocol_name=joined.protocol_name,
        assignments=[SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in given.items()],
    )


def alone(client: Client, *, group: str = "g", instance: str | None = None) -> Who:
    """The only member of a stable group."""
    find_group(client, group)
    joined = join(client, group=group, instance=instance)
    assert joined.error_code == 0, joined
    synced = client.ask(sync_request(joined, {joined.member_id: b"all"}, group=group))
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return Who(joined.member_id, joined.generation_id, instance)


def heartbeat(client: Client, who: Who, *, group: str = "g", version: int = 4) -> int:
    request = HeartbeatRequest(
        group_id=group, generation_id=who.generation, member_id=who.member_id, group_instance_id=who.instance
    )
    return int(client.ask(request, version).error_code)


def leave(client: Client, *members: Who, group: str = "g", version: int = 5) -> LeaveGroupResponse:
    request = LeaveGroupRequest(
        group_id=group,
        member_id=members[0].member_id,
        members=[MemberIdentity(member_id=who.member_id, group_instance_id=who.instance) for who in members],
    )
    answer: LeaveGroupResponse = client.ask(request, version)
    return answer
