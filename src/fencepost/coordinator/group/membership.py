"""Membership of classic groups: join, sync, heartbeat, leave, and the timers behind them.

JoinGroup and SyncGroup wait for the others; everything else answers at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from fencepost.coordinator.group import journal
from fencepost.coordinator.group.answers import joined_without_rebalance, refuse_join, refuse_sync
from fencepost.coordinator.group.group import Group, GroupState, Member
from fencepost.coordinator.group.home import Home, stored_form
from fencepost.coordinator.group.member_ids import has_room, new_member_id
from fencepost.coordinator.group.settings import GroupSettings
from fencepost.coordinator.group.timers import Timers
from fencepost.log.partition import Appended
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from fencepost.protocol.messages.join_group import JoinGroupResponseMember
from fencepost.runtime import Clock

_MEMBER_ID_FIRST_SINCE = 4

Joining = asyncio.Future[JoinGroupResponse]


class Membership:
    """See the module."""

    def __init__(self, settings: GroupSettings, clock: Clock, generator: random.Random) -> None:
        self._settings = settings
        self._clock = clock
        self._random = generator
        self._timers = Timers()

    # Joining

    async def join(
        self, home: Home, request: JoinGroupRequest, client_id: str, client_host: str, version: int
    ) -> tuple[JoinGroupResponse, int]:
        """Become a member; answered when the generation begins: the answer and the lsn it depends on."""
        found = self._join(home, request, client_id, client_host, version)
        return found if isinstance(found, JoinGroupResponse) else await found, home.lsn

    def _join(
        self, home: Home, request: JoinGroupRequest, client_id: str, client_host: str, version: int
    ) -> Joining | JoinGroupResponse:
        settings = self._settings
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            return refuse_join(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        if not request.member_id and not has_room(request.group_instance_id or client_id):
            return refuse_join(ErrorCode.UNKNOWN_SERVER_ERROR)
        group = home.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                return refuse_join(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            group = Group(request.group_id, state_timestamp=self._clock.now())
        protocols = [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]
        if not group.accepts(request.protocol_type, protocols):
            return refuse_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if request.group_id not in home.groups:
            error = self._store(home, group)
            if error:
                return refuse_join(error, request.member_id)
            home.groups[request.group_id] = group
        return self._enter(home, group, request, client_id, client_host, version, protocols)

    def _store(self, home: Home, group: Group) -> ErrorCode:
        """Write the group as it is; the error if the journal did not take it."""
        outcome = home.append([journal.group_entry(group.group_id, stored_form(group), self._clock.now())])
        return ErrorCode.NONE if isinstance(outcome, Appended) else outcome

    def _enter(
        self,
        home: Home,
        group: Group,
        request: JoinGroupRequest,
        client_id: str,
        client_host: str,
        version: int,
        protocols: list[tuple[str, bytes]],
    ) -> Joining | JoinGroupResponse:
        """Where the answer comes when the generation begins, or the answer where it need not be waited for."""
        instance = request.group_instance_id
        rebalance_timeout = request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms
        if not request.member_id and instance in group.static_members:
            return self._static_member_returned(home, group, request, protocols, version)
        if not request.member_id or request.member_id in group.promised:
            full = len(group.members) + (0 if request.member_id else len(group.promised)) >= self._settings.max_size
            if full:
                return refuse_join(ErrorCode.GROUP_MAX_SIZE_REACHED, request.member_id)
            if not request.member_id and instance is None and version >= _MEMBER_ID_FIRST_SINCE:
                return self._promise(home, group, client_id, request.session_timeout_ms)
            member_id = request.member_id or new_member_id(instance or client_id, self._random)
            self._break_promise(group, member_id)
            member = Member(
                member_id, instance, client_id, client_host, request.session_timeout_ms, rebalance_timeout, protocols
            )
            group.protocol_type = request.protocol_type
            group.add(member)
            group.new_member_joined = True
            return self._rebalance_with(home, group, member)
        error = group.check_member(request.member_id, instance, None)
        if error:
            return refuse_join(error, request.member_id)
        member = group.members[request.member_id]
        changed = member.protocols != protocols
        member.protocols, member.rebalance_timeout_ms = protocols, rebalance_timeout
        member.session_timeout_ms = request.session_timeout_ms
        rejoins = group.state is GroupState.COMPLETING_REBALANCE or (
            group.state is GroupState.STABLE and member.member_id != group.leader
        )
        if rejoins and not changed:
            self._watch(home, group, member)
            return self._joined(group, member)
        return self._rebalance_with(home, group, member)

    def _static_member_returned(
        self, home: Home, group: Group, request: JoinGroupRequest, protocols: list[tuple[str, bytes]], version: int
    ) -> Joining | JoinGroupResponse:
        """It restarted within its session: it keeps its place and assignment, its old id is fenced."""
        assert request.group_instance_id is not None
        member = group.members[group.static_members[request.group_instance_id]]
        _answer(member, "joining", refuse_join(ErrorCode.FENCED_INSTANCE_ID))
        _answer(member, "syncing", (refuse_sync(ErrorCode.FENCED_INSTANCE_ID), 0))
        former_id, former_protocols, former_timeout_ms = member.member_id, member.protocols, member.session_timeout_ms
        group.rename(member, new_member_id(request.group_instance_id, self._random))
        member.protocols, member.session_timeout_ms = protocols, request.session_timeout_ms
        if group.state is GroupState.STABLE and group.elect_protocol() == group.protocol:
            error = self._store(home, group)
            if error:
                group.rename(member, former_id)
                member.protocols, member.session_timeout_ms = former_protocols, former_timeout_ms
                return refuse_join(error, request.member_id)
            self._watch(home, group, member)
            return joined_without_rebalance(self._joined(group, member), former_id, version)
        return self._rebalance_with(home, group, member)

    def _promise(self, home: Home, group: Group, client_id: str, session_timeout_ms: int) -> JoinGroupResponse:
        """Give out a member id, to be used in a second JoinGroup (KIP-394)."""
        member_id = new_member_id(client_id, self._random)

        def forget() -> None:
            group.promised.pop(member_id, None)
            self._check_joined(home, group)

        group.promised[member_id] = self._timers.later(session_timeout_ms, forget)
        return refuse_join(ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _break_promise(self, group: Group, member_id: str) -> None:
        self._timers.cancel(group.promised.pop(member_id, None))

    # Rebalancing

    def _rebalance_with(self, home: Home, group: Group, member: Member) -> Joining:
        """Have the member wait for the next generation, and see to it that there is one: it may begin at once."""
        _answer(member, "joining", refuse_join(ErrorCode.UNKNOWN_MEMBER_ID))
        waiter: Joining = asyncio.get_running_loop().create_future()
        member.joining = waiter
        self._unwatch(member)
        self._prepare(home, group)
        self._check_joined(home, group)
        return waiter

    def _prepare(self, home: Home, group: Group) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            return
        first = group.state is GroupState.EMPTY
        for member in group.members.values():
            if group.state is GroupState.COMPLETING_REBALANCE:
                member.assignment = b""
            _answer(member, "syncing", (refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS), 0))
        group.become(GroupState.PREPARING_REBALANCE, self._clock.now())
        self._timers.cancel(group.rebalance)
        if first:
            delay = self._settings.initial_rebalance_delay_ms
            self._delay(home, group, max(group.rebalance_timeout_ms - delay, 0), delay)
        else:
            group.rebalance = self._timers.later(group.rebalance_timeout_ms, lambda: self._complete(home, group))

    def _delay(self, home: Home, group: Group, remaining: int, delay: int) -> None:
        """The first generation of a group waits for more members, for as long as they keep coming."""
        group.new_member_joined = False
        group.gathers = True

        def rang() -> None:
            if group.new_member_joined and remaining > 0:
                following = min(delay, remaining)
                self._delay(home, group, remaining - following, following)
            else:
                group.gathers = False
                self._complete(home, group)

        group.rebalance = self._timers.later(delay, rang)

    def _check_joined(self, home: Home, group: Group) -> ErrorCode:
        waits = group.state is GroupState.PREPARING_REBALANCE and not group.gathers
        return self._complete(home, group) if waits and group.everybody_joined else ErrorCode.NONE

    def _complete(self, home: Home, group: Group) -> ErrorCode:
        """Begin the generation with those who have joined; who has not is out.

        The error if nobody is left and the journal did not take that: it knows those who were members until then.
        """
        self._timers.cancel(group.rebalance)
        group.rebalance = None
        for member in list(group.members.values()):
            if member.joining is None and member.group_instance_id is None:
                self._unwatch(member)
                group.remove(member)
        now = self._clock.now()
        if not group.members:
            group.generation += 1
            group.protocol = group.leader = None
            group.find_subscriptions()
            group.become(GroupState.EMPTY, now)
            return self._store(home, group)
        if all(member.joining is None for member in group.members.values()):
            # Only static members, and none of them is back: they have until their sessions end.
            group.rebalance = self._timers.later(group.rebalance_timeout_ms, lambda: self._complete(home, group))
            return ErrorCode.NONE
        if group.leader is None or group.members[group.leader].joining is None:
            group.leader = next(key for key, member in group.members.items() if member.joining is not None)
        group.begin_generation(now)
        for member in group.members.values():
            self._watch(home, group, member)
            _answer(member, "joining", self._joined(group, member))
        group.rebalance = self._timers.later(group.rebalance_timeout_ms, lambda: self._drop_silent(home, group))
        return ErrorCode.NONE

    def _drop_silent(self, home: Home, group: Group) -> None:
        """Whoever has joined and does not ask for its assignment holds up nobody any longer."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in [member for member in group.members.values() if member.syncing is None]:
                self._lose(home, group, member)

    def _joined(self, group: Group, member: Member) -> JoinGroupResponse:
        assert group.protocol is not None
        leads = group.leader == member.member_id
        return JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=group.leader or "",
            member_id=member.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=other.member_id,
                    group_instance_id=other.group_instance_id,
                    metadata=other.metadata(group.protocol),
                )
                for other in group.members.values()
            ]
            if leads
            else [],
        )

    # Assigning

    async def sync(self, home: Home, request: SyncGroupRequest) -> tuple[SyncGroupResponse, int]:
        """Hand in (the leader) or wait for the assignment; the answer and the lsn it depends on."""
        group = home.groups.get(request.group_id)
        if group is None:
            return refuse_sync(ErrorCode.UNKNOWN_MEMBER_ID), 0
        error = group.check_member(request.member_id, request.group_instance_id, request.generation_id)
        if not error and (
            request.protocol_type not in (None, group.protocol_type)
            or request.protocol_name not in (None, group.protocol)
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error:
            return refuse_sync(error), 0
        member = group.members[request.member_id]
        self._watch(home, group, member)
        if group.state is GroupState.STABLE:
            return self._assigned(group, member), home.lsn
        if group.state is not GroupState.COMPLETING_REBALANCE:
            return refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS), 0
        _answer(member, "syncing", (refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS), 0))
        waiter = member.syncing = asyncio.get_running_loop().create_future()
        if request.member_id == group.leader:
            given = {assignment.member_id: bytes(assignment.assignment) for assignment in request.assignments}
            self._assign(home, group, given)
        answer: tuple[SyncGroupResponse, int] = await waiter
        return answer

    def _assign(self, home: Home, group: Group, given: dict[str, bytes]) -> None:
        """Store the leader's assignment, and answer everybody who waits for it."""
        for member in group.members.values():
            member.assignment = given.get(member.member_id, b"")
        now = self._clock.now()
        outcome = home.append([journal.group_entry(group.group_id, stored_form(group), now)])
        if isinstance(outcome, Appended):
            self._timers.cancel(group.rebalance)
            group.become(GroupState.STABLE, now)
            for member in group.members.values():
                _answer(member, "syncing", (self._assigned(group, member), outcome.lsn))
            return
        for member in group.members.values():
            member.assignment = b""
            _answer(member, "syncing", (refuse_sync(outcome), 0))
        self._prepare(home, group)

    def _assigned(self, group: Group, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            assignment=member.assignment,
        )

    # Staying and leaving

    def heartbeat(
        self, home: Home, group_id: str, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        group = home.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(member_id, group_instance_id, generation)
        if error:
            return error
        self._watch(home, group, group.members[member_id])
        preparing = group.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def committed(self, home: Home, group_id: str, member_id: str) -> None:
        """A member that commits is alive."""
        group = home.groups.get(group_id)
        if group is not None and member_id in group.members:
            self._watch(home, group, group.members[member_id])

    def leave(self, home: Home, group_id: str, who: Sequence[tuple[str, str | None]]) -> tuple[list[ErrorCode], int]:
        """Members leave, by ids or (static ones, by an admin) instance ids; their errors, and the lsn of all this."""
        group = home.groups.get(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(who), 0
        errors = [self._remove(group, member_id, instance) for member_id, instance in who]
        failed = self._go_on_without(home, group) if ErrorCode.NONE in errors else ErrorCode.NONE
        return [error or failed for error in errors], home.lsn

    def _remove(self, group: Group, member_id: str, group_instance_id: str | None) -> ErrorCode:
        if group_instance_id is not None and not member_id:
            member_id = group.static_members.get(group_instance_id, "")
        if member_id in group.promised:
            self._break_promise(group, member_id)
            return ErrorCode.NONE
        error = group.check_member(member_id, group_instance_id, None)
        if not error:
            self._drop(group, group.members[member_id])
        return error

    def _drop(self, group: Group, member: Member) -> None:
        self._unwatch(member)
        _answer(member, "joining", refuse_join(ErrorCode.UNKNOWN_MEMBER_ID))
        _answer(member, "syncing", (refuse_sync(ErrorCode.UNKNOWN_MEMBER_ID), 0))
        group.remove(member)

    def _go_on_without(self, home: Home, group: Group) -> ErrorCode:
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare(home, group)
        return self._check_joined(home, group)

    def _lose(self, home: Home, group: Group, member: Member) -> None:
        """A member is gone: the others share what it had."""
        self._drop(group, member)
        self._go_on_without(home, group)

    def restored(self, home: Home) -> None:
        """After a load every member has a session's time to show up."""
        for group in home.groups.values():
            for member in group.members.values():
                self._watch(home, group, member)

    # Timers

    def _watch(self, home: Home, group: Group, member: Member) -> None:
        self._unwatch(member)
        member.session = self._timers.later(member.session_timeout_ms, lambda: self._expired(home, group, member))

    def _expired(self, home: Home, group: Group, member: Member) -> None:
        if member.joining is None and group.members.get(member.member_id) is member:
            self._lose(home, group, member)

    def _unwatch(self, member: Member) -> None:
        self._timers.cancel(member.session)
        member.session = None

    def forget(self, group: Group) -> None:
        """The group is removed."""
        for promise in group.promised.values():
            self._timers.cancel(promise)
        self._timers.cancel(group.rebalance)

    def close(self) -> None:
        """No timer rings any more."""
        self._timers.close()


def _answer(member: Member, what: str, answer: Any) -> None:
    """Answer the request of a member that waits, if there is one and its connection is still there."""
    waiter: asyncio.Future[Any] | None = getattr(member, what)
    if waiter is not None:
        setattr(member, what, None)
        if not waiter.done():
            waiter.set_result(answer)
