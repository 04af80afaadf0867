"""Answers to JoinGroup and SyncGroup that are the same wherever they are given."""

from __future__ import annotations

from typing import Final

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import JoinGroupResponse, SyncGroupResponse

_SKIP_ASSIGNMENT_SINCE: Final = 9


def refuse_join(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """The answer to a JoinGroup that was not taken."""
    return JoinGroupResponse(error_code=error, leader="", member_id=member_id, members=[])


def refuse_sync(error: ErrorCode) -> SyncGroupResponse:
    """The answer to a SyncGroup that was not taken."""
    return SyncGroupResponse(error_code=error, assignment=b"")


def joined_without_rebalance(answer: JoinGroupResponse, former_id: str, version: int) -> JoinGroupResponse:
    """A static member is back and everybody keeps what they have: a leader is not to assign anew (KIP-345, KIP-814).

    From v9 on it is told so; an older client believes the leader to be who it was before.
    """
    if answer.leader == answer.member_id:
        answer.skip_assignment = version >= _SKIP_ASSIGNMENT_SINCE
        if not answer.skip_assignment:
            answer.leader, answer.members = former_id, []
    return answer
