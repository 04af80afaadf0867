"""Checks of offset commits and deletions for a classic group.  (Kafka's validateOffsetCommit, validateOffsetDelete)

An OffsetCommit without a generation is taken while the group is EMPTY: by a consumer that assigns partitions itself, or
an administrator.  A transactional one without any identity is taken always: the producer's own fencing guards it
(facts §7.4).  While the assignment is awaited a plain commit is refused: its sender may not own the partition any more.
"""

from __future__ import annotations

from fencepost.coordinator.group.classic.group import ClassicGroup, ClassicGroupState
from fencepost.protocol.consumer_protocol import CONSUMER
from fencepost.protocol.errors import ErrorCode


def validate_offset_commit(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int
) -> ErrorCode:
    """The error of an OffsetCommit; NONE if it is taken."""
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and group.state is ClassicGroupState.EMPTY:
        return ErrorCode.NONE
    error = group.validate_member(member_id, group_instance_id, generation_id)
    if error:
        return error
    awaited = group.state is ClassicGroupState.COMPLETING_REBALANCE
    return ErrorCode.REBALANCE_IN_PROGRESS if awaited else ErrorCode.NONE


def validate_transactional_offset_commit(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int
) -> ErrorCode:
    """The error of a TxnOffsetCommit; NONE if it is taken (facts §7.4).  An absent group is empty, of generation -1."""
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and group.state is ClassicGroupState.EMPTY:
        return ErrorCode.NONE
    if generation_id < 0 and not member_id and group_instance_id is None:
        return ErrorCode.NONE
    return group.validate_member(member_id, group_instance_id, generation_id)


def validate_offset_delete(group: ClassicGroup) -> ErrorCode:
    """The error of an OffsetDelete; NONE if it is taken.  A group that waits for pending members is not EMPTY."""
    if group.state is not ClassicGroupState.EMPTY and group.protocol_type != CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE
