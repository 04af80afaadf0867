"""From one generation to the next: preparing a rebalance, completing the join phase, and their timers.

The rules, in prose:

* Whoever joins anew, joins with other protocols, leaves or is lost starts a rebalance: PREPARING_REBALANCE.  Those who
  wait for an assignment are told so at once; the others hear of it by their next Heartbeat, and join again.
* The join phase is complete when every member waits in JoinGroup and no member id is given out that has not joined; or
  when the longest rebalance time-out of all members is over.  Dynamic members that have not joined are out then; static
  ones stay until their sessions end, but without any other the phase goes on.
* The first generation of an empty group waits for more members, group.initial.rebalance.delay.ms each time somebody new
  came, and not longer than a rebalance time-out in all: the initial delayed join.
* With members: COMPLETING_REBALANCE, everybody is answered.  Without any: EMPTY, and that is written to the journal.
* Members that have not asked for their assignment when a rebalance time-out is over are out, and it begins again: also
  where the leader has handed it in, and the group is STABLE.

A member has a session timer exactly while it does not wait for an answer: who waits needs not say that it is alive.
(Apache Kafka's prepareRebalance, completeClassicGroupJoin, tryCompleteInitialRebalanceElseSchedule, expirePendingSync)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from fencepost.coordinator.group.classic.decision import (
    REBALANCE,
    Answer,
    CancelTimer,
    Change,
    Decision,
    Effect,
    SetTimer,
    decided,
    session,
)
from fencepost.coordinator.group.classic.group import Awaiting, ClassicGroup, ClassicGroupState, Member
from fencepost.coordinator.group.classic.responses import joined, refuse_join, refuse_sync
from fencepost.coordinator.group.settings import GroupSettings
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, Milliseconds

LEAST_WAIT_MS: Final = Milliseconds(100)
"""How often, at most, is looked again for static members of a group that says to wait for nobody."""


def watch(member: Member) -> SetTimer:
    """The effect that begins the session of a member again, which was heard of."""
    return SetTimer(session(member.member_id), member.session_timeout_ms)


def answers_waiting(members: Iterable[Member], error: ErrorCode) -> tuple[Effect, ...]:
    """The effects that answer the waiting requests of these members with an error."""
    return tuple(
        Answer(member.member_id, refuse_join(error) if member.awaiting is Awaiting.JOIN else refuse_sync(error))
        for member in members
        if member.awaiting is not None
    )


def remove_members(group: ClassicGroup, gone: Sequence[Member]) -> Change:
    """Remove these members; what they wait for is answered UNKNOWN_MEMBER_ID."""
    if not gone:
        return Change(group)
    effects = [effect for member in gone for effect in _farewell(member)]
    return Change(group.without_members(gone), tuple(effects))


def _farewell(member: Member) -> tuple[Effect, ...]:
    return CancelTimer(session(member.member_id)), *answers_waiting((member,), ErrorCode.UNKNOWN_MEMBER_ID)


def prepare_rebalance(group: ClassicGroup, settings: GroupSettings, now: Milliseconds) -> Change:
    """Begin a rebalance: every member must join again.  No change while one is prepared already."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return Change(group)
    effects: list[Effect] = []
    prepared = group
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        # Whatever assignment they have is of a generation that everybody has left.
        waiting = [member for member in group.members.values() if member.awaiting is not None]
        effects += answers_waiting(waiting, ErrorCode.REBALANCE_IN_PROGRESS)
        effects += [watch(member) for member in waiting]
        prepared = group.with_members(
            member._replace(assignment=b"", awaiting=None) for member in group.members.values()
        )
    prepared = prepared.become(ClassicGroupState.PREPARING_REBALANCE, now)
    if group.state is ClassicGroupState.EMPTY:
        delay = Milliseconds(settings.initial_rebalance_delay_ms)
        left = Milliseconds(max(group.rebalance_timeout_ms - delay, 0))
        effects.append(SetTimer(REBALANCE, delay))
        return Change(prepared._replace(initial_delay_left_ms=left, new_member_added=False), tuple(effects))
    return Change(prepared, (*effects, SetTimer(REBALANCE, group.rebalance_timeout_ms)))


def maybe_complete_join(group: ClassicGroup, now: Milliseconds) -> Change:
    """Begin the generation if nobody is waited for any more; else no change."""
    waits = group.state is ClassicGroupState.PREPARING_REBALANCE and group.initial_delay_left_ms is None
    return complete_join(group, now) if waits and group.has_all_members_joined else Change(group)


def prepare_or_complete(group: ClassicGroup, settings: GroupSettings, now: Milliseconds) -> Change:
    """Rebalance after members are gone; a join phase may be complete without them."""
    change = Change(group)
    if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
        change = prepare_rebalance(group, settings, now)
    return change.then(partial(maybe_complete_join, now=now))


def complete_join(group: ClassicGroup, now: Milliseconds) -> Change:
    """Begin the generation with those who have joined; a dynamic member that has not is out."""
    group = group._replace(initial_delay_left_ms=None)
    late = [member for member in group.members.values() if member.awaiting is None and member.group_instance_id is None]
    return remove_members(group, late).then(partial(_begin_generation, now=now))


def _begin_generation(group: ClassicGroup, now: Milliseconds) -> Change:
    if not group.members:
        return _become_empty(group, now)
    if all(member.awaiting is None for member in group.members.values()):
        # Only static members, and none of them is back: they have until their sessions end.
        return Change(group, (SetTimer(REBALANCE, max(group.rebalance_timeout_ms, LEAST_WAIT_MS)),))
    if group.leader_id is None or group.members[group.leader_id].awaiting is None:
        leader_id = next(key for key, member in group.members.items() if member.awaiting is not None)
        group = group._replace(leader_id=leader_id)
    group = group._replace(generation_id=Epoch(group.generation_id + 1), protocol_name=group.select_protocol())
    group = group.with_subscribed_topics().become(ClassicGroupState.COMPLETING_REBALANCE, now)
    effects: list[Effect] = [SetTimer(REBALANCE, group.rebalance_timeout_ms)]
    for member in group.members.values():
        effects.append(watch(member))
        if member.awaiting is not None:
            effects.append(Answer(member.member_id, joined(group, member.member_id)))
    begun = group.with_members(member._replace(awaiting=None, pending_sync=True) for member in group.members.values())
    return Change(begun, tuple(effects))


def _become_empty(group: ClassicGroup, now: Milliseconds) -> Change:
    empty = group._replace(generation_id=Epoch(group.generation_id + 1), protocol_name=None, leader_id=None)
    empty = empty.with_subscribed_topics().become(ClassicGroupState.EMPTY, now)
    return Change(empty, (CancelTimer(REBALANCE),), is_stored=True)


# Timers


def rebalance_timer_rang(group: ClassicGroup, settings: GroupSettings, now: Milliseconds) -> Decision[None]:
    """The initial delay, the join phase or the sync phase has taken as long as it may."""
    step = _RANG.get(group.state)
    return decided(Change(group) if step is None else step(group, settings, now), None, lambda _: None)


def _join_phase_over(group: ClassicGroup, settings: GroupSettings, now: Milliseconds) -> Change:
    left = group.initial_delay_left_ms
    if left and group.new_member_added:
        delay = min(settings.initial_rebalance_delay_ms, left)
        extended = group._replace(initial_delay_left_ms=Milliseconds(left - delay), new_member_added=False)
        return Change(extended, (SetTimer(REBALANCE, Milliseconds(delay)),))
    return complete_join(group, now)


def _sync_phase_over(group: ClassicGroup, settings: GroupSettings, now: Milliseconds) -> Change:
    """End a sync phase: whoever has joined and does not ask for its assignment holds up nobody any longer."""
    silent = [member for member in group.members.values() if member.pending_sync]
    change = remove_members(group, silent)
    return change.then(partial(prepare_or_complete, settings=settings, now=now)) if silent else change


_RANG: Final[dict[ClassicGroupState, Callable[[ClassicGroup, GroupSettings, Milliseconds], Change]]] = {
    ClassicGroupState.PREPARING_REBALANCE: _join_phase_over,
    ClassicGroupState.COMPLETING_REBALANCE: _sync_phase_over,
    ClassicGroupState.STABLE: _sync_phase_over,
}


def session_timer_rang(
    group: ClassicGroup, member_id: str, settings: GroupSettings, now: Milliseconds
) -> Decision[None]:
    """A member was not heard of for its session time-out, or a member id that was given out was not used."""
    if member_id in group.pending_members:
        change = maybe_complete_join(group.without_pending((member_id,)), now)
    else:
        member = group.members[member_id]
        assert member.awaiting is None, "who waits for an answer has no session timer"
        change = remove_members(group, (member,)).then(partial(prepare_or_complete, settings=settings, now=now))
    return decided(change, None, lambda _: None)
