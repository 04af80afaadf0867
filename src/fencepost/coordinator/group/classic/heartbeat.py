"""Heartbeat: stay a member of a classic group, and hear of a rebalance.  (Apache Kafka's classicGroupHeartbeat)"""

from __future__ import annotations

from typing import Final

from fencepost.coordinator.group.classic.decision import Decision, Effect
from fencepost.coordinator.group.classic.group import ClassicGroup, ClassicGroupState
from fencepost.coordinator.group.classic.rebalance import watch
from fencepost.protocol.errors import ErrorCode

#: state -> what a member of this generation is told.  In an EMPTY group there is none.
OUTCOMES: Final[dict[ClassicGroupState, ErrorCode]] = {
    ClassicGroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    ClassicGroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    ClassicGroupState.COMPLETING_REBALANCE: ErrorCode.NONE,
    ClassicGroupState.STABLE: ErrorCode.NONE,
    ClassicGroupState.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def heartbeat(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int
) -> Decision[ErrorCode]:
    """Decide the error code for a Heartbeat; without an error the member's session begins again."""
    if group.state is ClassicGroupState.DEAD:
        return Decision(group, OUTCOMES[group.state])
    error = group.validate_member(member_id, group_instance_id, generation_id)
    if error:
        return Decision(group, error)
    return Decision(group, OUTCOMES[group.state], heard_of(group, member_id))


def heard_of(group: ClassicGroup, member_id: str) -> tuple[Effect, ...]:
    """The effects that begin the session of this member again; none if it is no member, or waits for an answer."""
    member = group.members.get(member_id)
    return () if member is None or member.awaiting is not None else (watch(member),)
