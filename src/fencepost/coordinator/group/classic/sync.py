"""SyncGroup: hand in the assignment of a generation (its leader), and receive one's own part of it.

The leader's assignment is written to the journal before anybody is told of it; where the journal refuses it everybody
is told why, and a new rebalance begins.  Who comes later is answered at once; who does not come within a rebalance
time-out is out (`rebalance`).  (Apache Kafka's classicGroupSyncToClassicGroup)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from fencepost.coordinator.group.classic.decision import (
    REBALANCE,
    Answer,
    Await,
    CancelTimer,
    Change,
    Decision,
    Effect,
    session,
)
from fencepost.coordinator.group.classic.group import Awaiting, ClassicGroup, ClassicGroupState, Member
from fencepost.coordinator.group.classic.rebalance import answers_waiting, prepare_rebalance, watch
from fencepost.coordinator.group.classic.responses import assigned, refuse_sync
from fencepost.coordinator.group.settings import GroupSettings
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import SyncGroupResponse
from fencepost.protocol.types import Milliseconds


class Sync(NamedTuple):
    """A SyncGroup request.  None as a type or name: the client's version does not say."""

    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    #: member id -> assignment; counts only if it is the leader's.
    assignments: Mapping[str, bytes]


class Outcome(Enum):
    """The outcomes of an accepted SyncGroup; any other is refused with an error code."""

    AWAIT = "waits for the leader's; the leader's own is written to the journal, and everybody is answered"
    ANSWER = "is answered with its assignment"


#: state -> what happens to a member of this generation.  In an EMPTY group there is none.
OUTCOMES: Final[dict[ClassicGroupState, Outcome | ErrorCode]] = {
    ClassicGroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    ClassicGroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    ClassicGroupState.COMPLETING_REBALANCE: Outcome.AWAIT,
    ClassicGroupState.STABLE: Outcome.ANSWER,
    ClassicGroupState.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

SyncDecision = Decision[SyncGroupResponse | None]


def sync(group: ClassicGroup, request: Sync, settings: GroupSettings, now: Milliseconds) -> SyncDecision:
    """Decide what a SyncGroup does; the answer is None where it waits for the leader's."""
    error = validate(group, request)
    if error:
        return Decision(group, refuse_sync(error))
    outcome, member = OUTCOMES[group.state], group.members[request.member_id]
    heard: tuple[Effect, ...] = () if member.awaiting is not None else (watch(member),)
    if isinstance(outcome, ErrorCode):
        return Decision(group, refuse_sync(outcome), heard)
    if outcome is Outcome.ANSWER:
        return _answer(group, member, heard)
    if group.leader_id == member.member_id:
        return _assign(group, request, settings, now)
    effects = (
        *answers_waiting((member,), ErrorCode.REBALANCE_IN_PROGRESS),  # a repeated request takes over
        CancelTimer(session(member.member_id)),
        Await(member.member_id, Awaiting.SYNC),
    )
    waits = member._replace(awaiting=Awaiting.SYNC, pending_sync=False)
    return Decision(group.with_members((waits,)), None, effects)


def _answer(group: ClassicGroup, member: Member, heard: tuple[Effect, ...]) -> SyncDecision:
    """Answer a member when the leader was faster; with the last that asks for its assignment the sync phase is over."""
    if member.pending_sync:
        group = group.with_members((member._replace(pending_sync=False),))
        heard += _sync_phase_done(group)
    return Decision(group, assigned(group, member), heard)


def _sync_phase_done(group: ClassicGroup) -> tuple[Effect, ...]:
    return (CancelTimer(REBALANCE),) if group.has_received_sync_from_all_members else ()


def validate(group: ClassicGroup, request: Sync) -> ErrorCode:
    """The error of a SyncGroup: of no member, another generation or another protocol; NONE if there is none."""
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.validate_member(request.member_id, request.group_instance_id, request.generation_id)
    if error:
        return error
    same_type = request.protocol_type in (None, group.protocol_type)
    same_name = request.protocol_name in (None, group.protocol_name)
    return ErrorCode.NONE if same_type and same_name else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def _assign(group: ClassicGroup, request: Sync, settings: GroupSettings, now: Milliseconds) -> SyncDecision:
    """Store the leader's assignment, and answer everybody who waits for it; who is not named gets an empty one."""
    given = request.assignments
    members = [member._replace(assignment=given.get(key, b""), awaiting=None) for key, member in group.members.items()]
    stable = group.with_members(members).become(ClassicGroupState.STABLE, now)
    leader = stable.members[request.member_id]._replace(pending_sync=False)
    stable = stable.with_members((leader,))
    effects: list[Effect] = [*_sync_phase_done(stable), watch(leader)]
    for member in group.members.values():
        if member.awaiting is not None:
            others = stable.members[member.member_id]
            effects += [watch(others), Answer(member.member_id, assigned(stable, others))]
    refused = partial(_not_stored, group, request, settings=settings, now=now)
    return Decision(stable, assigned(stable, leader), tuple(effects), refused)


def _not_stored(
    group: ClassicGroup, request: Sync, error: ErrorCode, settings: GroupSettings, now: Milliseconds
) -> SyncDecision:
    """Answer everybody with the journal's error, which refused the assignment, and begin a rebalance."""
    waiting = [member for member in group.members.values() if member.awaiting is not None]
    effects = (watch(group.members[request.member_id]), *answers_waiting(waiting, error), *map(watch, waiting))
    answered = group.with_members(member._replace(awaiting=None) for member in waiting)
    change = Change(answered, effects).then(partial(prepare_rebalance, settings=settings, now=now))
    return Decision(change.group, refuse_sync(error), change.effects)
