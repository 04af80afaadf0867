"""JoinGroup: become a member of a classic group, or stay one in the next generation.

The rules, in prose:

* Who has no member id is new.  From v4 on a dynamic member is only given an id, and joins with that (KIP-394); it is
  a pending member until then, and the group waits for it.
* A static member that comes without its member id has restarted: it is given a new id, its old one is fenced (KIP-345).
  In a STABLE group whose protocol stays the same nobody else hears of that; the new id is written to the journal.
* A member that joins again starts a rebalance if it has other protocols than before, or leads a STABLE group (so it
  asks to assign anew).  Otherwise its answer got lost, and it is answered as it was.

(Apache Kafka's classicGroupJoinNewMember, classicGroupJoinExistingMember,
updateStaticMemberThenRebalanceOrCompleteJoin)
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from fencepost.coordinator.group.classic.decision import (
    Await,
    CancelTimer,
    Change,
    Decision,
    Effect,
    SetTimer,
    session,
)
from fencepost.coordinator.group.classic.group import Awaiting, ClassicGroup, ClassicGroupState, Member, Protocols
from fencepost.coordinator.group.classic.rebalance import (
    answers_waiting,
    maybe_complete_join,
    prepare_rebalance,
    watch,
)
from fencepost.coordinator.group.classic.responses import joined, joined_without_rebalance, refuse_join
from fencepost.coordinator.group.member_ids import has_room
from fencepost.coordinator.group.settings import GroupSettings
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import JoinGroupResponse
from fencepost.protocol.types import Milliseconds

MOST_PROTOCOLS: Final = 100
"""Protocols of one member.  What is common to a group is looked for at each join; clients have five or so."""


class Join(NamedTuple):
    """A JoinGroup request."""

    #: "": it has none yet.
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: Milliseconds
    rebalance_timeout_ms: Milliseconds
    protocol_type: str
    protocols: Protocols
    #: The id that the member is given if it needs one; nobody has it.
    new_member_id: str
    #: From v4 on: a dynamic member gets its id first (KIP-394).
    require_known_member_id: bool = True
    #: From v9 on: a leader can be told not to assign (KIP-814).
    support_skipping_assignment: bool = True


class Joiner(Enum):
    """The kinds of joiners, told by their ids and protocols."""

    WITHOUT_ID = "a dynamic member without an id, v4 and later"
    NEW = "a static member that is new, or a dynamic one without an id below v4"
    PENDING = "a pending member"
    RETURNING = "a static member without its id"
    RETURNING_OTHERWISE = "a static member without its id, whose protocols change the group's"
    UNCHANGED = "a member, with the protocols that it had"
    LEADER = "the leader, with the protocols that it had"
    CHANGED = "a member, with other protocols"


class Outcome(Enum):
    """The outcomes of an accepted JoinGroup; any other is refused with an error code."""

    GIVE_ID = "MEMBER_ID_REQUIRED: it is a pending member"
    ADD = "is added, a rebalance begins, and it waits"
    REPLACE = "gets a new id, a rebalance begins, and it waits"
    KEEP = "gets a new id, and is answered at once: nobody joins again"
    REJOIN = "a rebalance begins, and it waits"
    REPEAT = "is answered at once, as it was"


_UNKNOWN, _AWAY = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE
_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = ClassicGroupState

#: state -> who joins -> what happens.  In an EMPTY group nobody is a member.
OUTCOMES: Final[dict[ClassicGroupState, dict[Joiner, Outcome | ErrorCode]]] = {
    _EMPTY: dict.fromkeys(Joiner, _UNKNOWN)
    | {Joiner.WITHOUT_ID: Outcome.GIVE_ID, Joiner.NEW: Outcome.ADD, Joiner.PENDING: Outcome.ADD},
    _PREPARING: {
        Joiner.WITHOUT_ID: Outcome.GIVE_ID,
        Joiner.NEW: Outcome.ADD,
        Joiner.PENDING: Outcome.ADD,
        Joiner.RETURNING: Outcome.REPLACE,
        Joiner.RETURNING_OTHERWISE: Outcome.REPLACE,
        Joiner.UNCHANGED: Outcome.REJOIN,
        Joiner.LEADER: Outcome.REJOIN,
        Joiner.CHANGED: Outcome.REJOIN,
    },
    _COMPLETING: {
        Joiner.WITHOUT_ID: Outcome.GIVE_ID,
        Joiner.NEW: Outcome.ADD,
        Joiner.PENDING: Outcome.ADD,
        Joiner.RETURNING: Outcome.REPLACE,
        Joiner.RETURNING_OTHERWISE: Outcome.REPLACE,
        Joiner.UNCHANGED: Outcome.REPEAT,
        Joiner.LEADER: Outcome.REPEAT,
        Joiner.CHANGED: Outcome.REJOIN,
    },
    _STABLE: {
        Joiner.WITHOUT_ID: Outcome.GIVE_ID,
        Joiner.NEW: Outcome.ADD,
        Joiner.PENDING: Outcome.ADD,
        Joiner.RETURNING: Outcome.KEEP,
        Joiner.RETURNING_OTHERWISE: Outcome.REPLACE,
        Joiner.UNCHANGED: Outcome.REPEAT,
        Joiner.LEADER: Outcome.REJOIN,
        Joiner.CHANGED: Outcome.REJOIN,
    },
    _DEAD: dict.fromkeys(Joiner, _AWAY),
}

JoinDecision = Decision[JoinGroupResponse | None]


def join(group: ClassicGroup, request: Join, settings: GroupSettings, now: Milliseconds) -> JoinDecision:
    """Decide what a JoinGroup does; the answer is None where it waits for the others."""
    if not group.supports_protocols(request.protocol_type, request.protocols):
        return Decision(group, refuse_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    joiner = relation(group, request)
    outcome = joiner if isinstance(joiner, ErrorCode) else OUTCOMES[group.state][joiner]
    if isinstance(outcome, ErrorCode):
        return Decision(group, refuse_join(outcome, request.member_id))
    if joiner in (Joiner.WITHOUT_ID, Joiner.NEW, Joiner.PENDING) and is_full(group, joiner is Joiner.PENDING, settings):
        return Decision(group, refuse_join(ErrorCode.GROUP_MAX_SIZE_REACHED, request.member_id))
    if outcome is Outcome.GIVE_ID:
        return _give_id(group, request)
    if outcome is Outcome.ADD:
        return _add(group, request, settings, now)
    if outcome in (Outcome.REPLACE, Outcome.KEEP):
        return _replace(group, request, outcome is Outcome.KEEP, settings, now)
    member = _updated(group.members[request.member_id], request)
    if outcome is Outcome.REPEAT:
        kept = group.with_members((member,))
        heard = () if member.awaiting is not None else (watch(member),)
        return Decision(kept, joined(kept, member.member_id), heard)
    return _rebalance_with(group, member, settings, now)


def check(request: Join, settings: GroupSettings) -> ErrorCode:
    """The error of a JoinGroup whatever the group; NONE: it makes sense.  As in Apache Kafka its id may be too long."""
    if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if not request.member_id and not has_room(request.group_instance_id or request.client_id):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if len(request.protocols) > MOST_PROTOCOLS:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def check_first(group: ClassicGroup, request: Join) -> ErrorCode:
    """The error of a JoinGroup that would begin this group, which nobody knows yet; NONE if it may."""
    if request.member_id:
        return ErrorCode.UNKNOWN_MEMBER_ID
    fits = group.supports_protocols(request.protocol_type, request.protocols)
    return ErrorCode.NONE if fits else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def relation(group: ClassicGroup, request: Join) -> Joiner | ErrorCode:
    """Who joins, as its ids and protocols tell; or the error."""
    instance = request.group_instance_id
    if not request.member_id:
        if instance in group.static_members:
            return _returning(group, request)
        return Joiner.WITHOUT_ID if instance is None and request.require_known_member_id else Joiner.NEW
    if request.member_id in group.pending_members:
        # Ids are given out to dynamic members only.
        return Joiner.PENDING if instance is None else ErrorCode.UNKNOWN_SERVER_ERROR
    error = group.validate_member(request.member_id, instance, None)
    if error:
        return error
    if group.members[request.member_id].protocols != request.protocols:
        return Joiner.CHANGED
    return Joiner.LEADER if group.leader_id == request.member_id else Joiner.UNCHANGED


def _returning(group: ClassicGroup, request: Join) -> Joiner:
    assert request.group_instance_id is not None
    member = group.members[group.static_members[request.group_instance_id]]
    with_it = group.with_members((member._replace(protocols=request.protocols),))
    keeps = with_it.select_protocol() == group.protocol_name
    return Joiner.RETURNING if keeps else Joiner.RETURNING_OTHERWISE


def is_full(group: ClassicGroup, is_pending: bool, settings: GroupSettings) -> bool:
    """Whether nobody new may join (group.max.size); `is_pending`: the joiner is one of the pending members."""
    return len(group.members) + (0 if is_pending else len(group.pending_members)) >= settings.max_size


def _updated(member: Member, request: Join) -> Member:
    return member._replace(
        protocols=request.protocols,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
    )


def _give_id(group: ClassicGroup, request: Join) -> JoinDecision:
    """Refuse a JoinGroup with MEMBER_ID_REQUIRED and an id, which must join within the session time-out."""
    member_id = request.new_member_id
    timer = SetTimer(session(member_id), request.session_timeout_ms)
    return Decision(group.with_pending(member_id), refuse_join(ErrorCode.MEMBER_ID_REQUIRED, member_id), (timer,))


def _add(group: ClassicGroup, request: Join, settings: GroupSettings, now: Milliseconds) -> JoinDecision:
    member = Member(
        member_id=request.member_id or request.new_member_id,
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
    )
    if member.member_id in group.pending_members:
        group = group.without_pending((member.member_id,))
    group = group._replace(protocol_type=request.protocol_type, new_member_added=True)
    return _rebalance_with(group, member, settings, now)


def _replace(
    group: ClassicGroup, request: Join, keeps_generation: bool, settings: GroupSettings, now: Milliseconds
) -> JoinDecision:
    """Give a restarted static member a new id: it keeps its place and assignment, its old id is fenced."""
    assert request.group_instance_id is not None
    former = group.members[group.static_members[request.group_instance_id]]
    effects: tuple[Effect, ...] = (
        CancelTimer(session(former.member_id)),
        *answers_waiting((former,), ErrorCode.FENCED_INSTANCE_ID),
    )
    member = _updated(former, request)._replace(member_id=request.new_member_id, awaiting=None)
    replaced = group.with_static_member_replaced(former, member.member_id).with_members((member,))
    if not keeps_generation:
        following = _rebalance_with(replaced, member, settings, now)
        return following._replace(effects=effects + following.effects)
    response = joined_without_rebalance(
        replaced, member.member_id, former.member_id, request.support_skipping_assignment
    )
    return Decision(
        replaced,
        response,
        (*effects, watch(member)),
        # It could not be written down: nothing has changed.
        if_refused=lambda error: Decision(group, refuse_join(error, request.member_id)),
    )


def _rebalance_with(group: ClassicGroup, member: Member, settings: GroupSettings, now: Milliseconds) -> JoinDecision:
    """Have the member wait for the next generation, and see to it that there is one: it may begin at once."""
    change = Change(group)
    if group.state is not ClassicGroupState.PREPARING_REBALANCE:
        change = prepare_rebalance(group.with_members((member,)), settings, now)
        member = change.group.members[member.member_id]
    change = change.then(partial(_await, member=member)).then(partial(maybe_complete_join, now=now))
    assert not change.is_stored, "a group with a member is not stored before its assignment"
    return Decision(change.group, None, change.effects)


def _await(group: ClassicGroup, member: Member) -> Change:
    """Have a member wait in JoinGroup; an earlier request of it that waits is answered UNKNOWN_MEMBER_ID."""
    effects = (
        *answers_waiting((member,), ErrorCode.UNKNOWN_MEMBER_ID),
        CancelTimer(session(member.member_id)),
        Await(member.member_id, Awaiting.JOIN),
    )
    return Change(group.with_members((member._replace(awaiting=Awaiting.JOIN),)), effects)
