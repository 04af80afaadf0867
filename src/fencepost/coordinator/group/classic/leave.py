"""LeaveGroup: some members leave a classic group, and the others share what they had.

A member is named by its id; a static one may be named by its instance id alone, as an administrator does (KIP-345).
All that one request names leave at once.  (Apache Kafka's classicGroupLeaveToClassicGroup)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from fencepost.coordinator.group.classic.decision import CancelTimer, Change, Decision, decided, session
from fencepost.coordinator.group.classic.group import ClassicGroup, ClassicGroupState
from fencepost.coordinator.group.classic.rebalance import prepare_or_complete, remove_members
from fencepost.coordinator.group.settings import GroupSettings
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Milliseconds


class MemberIdentity(NamedTuple):
    """The ids of a member that leaves.  A member id of "" beside an instance id: whoever is this static member."""

    member_id: str
    group_instance_id: str | None


def leave(
    group: ClassicGroup, leaving: Sequence[MemberIdentity], settings: GroupSettings, now: Milliseconds
) -> Decision[list[ErrorCode]]:
    """Decide what a LeaveGroup does; the answer has an error for each.

    If nobody is left and the journal refuses that, those who left are told so: it knows them as members.
    """
    if group.state is ClassicGroupState.DEAD:
        return Decision(group, [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(leaving))
    gone: dict[str, None] = {}
    answers = [_leaves(group, each, gone) for each in leaving]
    if not gone:
        return Decision(group, answers)
    pending = [member_id for member_id in gone if member_id in group.pending_members]
    members = [group.members[member_id] for member_id in gone if member_id in group.members]
    change = Change(group.without_pending(pending), tuple(CancelTimer(session(member_id)) for member_id in pending))
    change = change.then(partial(remove_members, gone=members))
    change = change.then(partial(prepare_or_complete, settings=settings, now=now))
    return decided(change, answers, lambda refused: [error or refused for error in answers])


def _leaves(group: ClassicGroup, who: MemberIdentity, gone: dict[str, None]) -> ErrorCode:
    """The error for one who leaves; where there is none, its member id is among those `gone` then."""
    member_id, instance = who
    if instance is not None and not member_id:
        member_id = group.static_members.get(instance, "")
    if member_id in group.pending_members and member_id not in gone:
        gone[member_id] = None
        return ErrorCode.NONE
    if member_id in gone or (instance is not None and group.static_members.get(instance) in gone):
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.validate_member(member_id, instance, None)
    if not error:
        gone[member_id] = None
    return error
