"""JoinGroup and SyncGroup responses, as a group gives them."""

from __future__ import annotations

from fencepost.coordinator.group.classic.group import ClassicGroup, Member
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import JoinGroupResponse, SyncGroupResponse
from fencepost.protocol.messages.join_group import JoinGroupResponseMember


def refuse_join(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """The JoinGroup response with this error."""
    return JoinGroupResponse(error_code=error, leader="", member_id=member_id, members=[])


def refuse_sync(error: ErrorCode) -> SyncGroupResponse:
    """The SyncGroup response with this error."""
    return SyncGroupResponse(error_code=error, assignment=b"")


def joined(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """The JoinGroup response for a member of the current generation; for its leader with all members in it."""
    assert group.protocol_name is not None, "a generation with members has a protocol"
    members = group.members.values() if group.leader_id == member_id else ()
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=[
            JoinGroupResponseMember(
                member_id=other.member_id,
                group_instance_id=other.group_instance_id,
                metadata=other.metadata(group.protocol_name),
            )
            for other in members
        ],
    )


def joined_without_rebalance(
    group: ClassicGroup, member_id: str, former_id: str, support_skipping_assignment: bool
) -> JoinGroupResponse:
    """The JoinGroup response for a static member that is back in its generation: its leader does not assign anew.

    Where the version supports it, it is told so; an older client believes the leader to be who it was before.
    """
    response = joined(group, member_id)
    if group.leader_id == member_id:
        response.skip_assignment = support_skipping_assignment
        if not support_skipping_assignment:
            response.leader, response.members = former_id, []
    return response


def assigned(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """The SyncGroup response for a member: its assignment in the current generation."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
