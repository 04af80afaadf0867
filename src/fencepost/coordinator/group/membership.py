"""The members of classic groups: carries out what the decisions of `classic` say, with timers and waiting requests.

For every request the group is looked up and decided; what the decision says is appended to the journal, held in memory,
and answered: all in one step of the event loop, so that nothing is ever between a decision and its record.  Memory is
therefore ahead of the disk, and every answer names the lsn that must be durable before it may leave the process,
refusals included.  JoinGroup and SyncGroup may wait for the others; everything else is answered at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from fencepost.coordinator.group import journal
from fencepost.coordinator.group.answers import Answered
from fencepost.coordinator.group.classic.decision import (
    REBALANCE,
    Answer,
    Await,
    CancelTimer,
    Decision,
    Effect,
    SetTimer,
    Timer,
    session,
)
from fencepost.coordinator.group.classic.group import ClassicGroup
from fencepost.coordinator.group.classic.heartbeat import heard_of, heartbeat
from fencepost.coordinator.group.classic.join import Join, check, check_first, join
from fencepost.coordinator.group.classic.leave import MemberIdentity, leave
from fencepost.coordinator.group.classic.rebalance import rebalance_timer_rang, session_timer_rang, watch
from fencepost.coordinator.group.classic.responses import refuse_join, refuse_sync
from fencepost.coordinator.group.classic.sync import Sync, sync
from fencepost.coordinator.group.member_ids import new_member_id
from fencepost.coordinator.group.settings import GroupSettings
from fencepost.coordinator.group.shards import GroupCoordinatorShard, can_be_stored, stored_form
from fencepost.coordinator.group.timers import Timers
from fencepost.log.partition import Appended
from fencepost.node_log import get_logger, shown
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse
from fencepost.protocol.types import Milliseconds
from fencepost.runtime import Clock

logger = get_logger(__name__)

_REBALANCE_TIMEOUT_SINCE = 1
_MEMBER_ID_FIRST_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9

Response: TypeAlias = JoinGroupResponse | SyncGroupResponse
Waiter: TypeAlias = "asyncio.Future[Answered[Response]]"
A = TypeVar("A")
R = TypeVar("R", JoinGroupResponse, SyncGroupResponse)


class _GroupTimer(NamedTuple):
    """A timer of one group, where that lives."""

    shard: GroupCoordinatorShard
    group_id: str
    timer: Timer


class Membership:
    """Decides and carries out JoinGroup, SyncGroup, Heartbeat, LeaveGroup and the timers of groups."""

    def __init__(self, settings: GroupSettings, clock: Clock, generator: random.Random) -> None:
        self._settings = settings
        self._clock = clock
        self._random = generator
        self._timers: Timers[_GroupTimer] = Timers(self._rang)
        #: (group id, member id) -> where the request of this member that waits gets its answer
        self._waiting: dict[tuple[str, str], Waiter] = {}

    # Requests

    async def join(
        self, shard: GroupCoordinatorShard, request: JoinGroupRequest, client_id: str, client_host: str, version: int
    ) -> Answered[JoinGroupResponse]:
        """JoinGroup; answered when the generation begins, if it is to wait for that."""
        asked = self._as_join(request, client_id, client_host, version)
        error = check(asked, self._settings)
        group = shard.groups.get(request.group_id)
        if group is None and not error:
            group = ClassicGroup(request.group_id, state_timestamp=self._clock.now())
            error = check_first(group, asked) or self._store(shard, group)
        if error or group is None:
            return Answered(refuse_join(error, request.member_id), shard.lsn)
        decision = join(group, asked, self._settings, self._clock.now())
        return await self._answered(shard, decision, JoinGroupResponse)

    def _as_join(self, request: JoinGroupRequest, client_id: str, client_host: str, version: int) -> Join:
        session_ms, rebalance_ms = request.session_timeout_ms, request.rebalance_timeout_ms
        prefix = request.group_instance_id or client_id
        return Join(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            client_id=client_id,
            client_host=client_host,
            session_timeout_ms=Milliseconds(session_ms),
            rebalance_timeout_ms=Milliseconds(rebalance_ms if version >= _REBALANCE_TIMEOUT_SINCE else session_ms),
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
            new_member_id="" if request.member_id else new_member_id(prefix, self._random),
            require_known_member_id=version >= _MEMBER_ID_FIRST_SINCE,
            support_skipping_assignment=version >= _SKIP_ASSIGNMENT_SINCE,
        )

    async def sync(self, shard: GroupCoordinatorShard, request: SyncGroupRequest) -> Answered[SyncGroupResponse]:
        """SyncGroup; answered when the leader has handed in the assignment."""
        group = shard.groups.get(request.group_id)
        if group is None:
            return Answered(refuse_sync(ErrorCode.UNKNOWN_MEMBER_ID), shard.lsn)
        asked = Sync(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_id=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
        )
        return await self._answered(shard, sync(group, asked, self._settings, self._clock.now()), SyncGroupResponse)

    def heartbeat(
        self,
        shard: GroupCoordinatorShard,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
    ) -> Answered[ErrorCode]:
        """Answer Heartbeat, and begin the member's session again."""
        group = shard.groups.get(group_id)
        if group is None:
            return Answered(ErrorCode.UNKNOWN_MEMBER_ID, shard.lsn)
        return self._carry_out(shard, heartbeat(group, member_id, group_instance_id, generation_id))

    def heard_of(self, shard: GroupCoordinatorShard, group: ClassicGroup, member_id: str) -> None:
        """Begin the session of a member again that commits offsets, and so is alive."""
        self._apply(shard, group, heard_of(group, member_id))

    def leave(
        self, shard: GroupCoordinatorShard, group_id: str, leaving: Sequence[MemberIdentity]
    ) -> Answered[list[ErrorCode]]:
        """Answer LeaveGroup: an error for each that is to leave."""
        group = shard.groups.get(group_id)
        if group is None:
            return Answered([ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving), shard.lsn)
        return self._carry_out(shard, leave(group, leaving, self._settings, self._clock.now()))

    # Groups come and go

    def loaded(self, shard: GroupCoordinatorShard) -> None:
        """Begin the sessions of all members of groups that were read from the journal: they have so long to show up."""
        for group in shard.groups.values():
            for member in group.members.values():
                self._apply(shard, group, (watch(member),))

    def forget(self, shard: GroupCoordinatorShard, group_id: str) -> None:
        """Forget a group, which has no members: its tombstone is in the journal."""
        group = shard.groups.pop(group_id)
        assert not group.members, "only a group without members is removed"
        self._apply(shard, group, tuple(CancelTimer(session(member_id)) for member_id in group.pending_members))

    def close(self) -> None:
        """Let no timer ring any more."""
        self._timers.close()

    # Carrying out

    def _store(self, shard: GroupCoordinatorShard, group: ClassicGroup) -> ErrorCode:
        """Append the group as it is and hold it; the error if the journal did not take it, and then nothing changed."""
        outcome: Appended | ErrorCode = journal.APPEND_ERRORS[ErrorCode.RECORD_LIST_TOO_LARGE]
        if can_be_stored(group):
            now = self._clock.now()
            outcome = shard.append([journal.group_entry(group.group_id, stored_form(group), now)], now)
        if isinstance(outcome, ErrorCode):
            logger.warning(
                "a group could not be written group_id=%s generation=%d state=%s error=%s",
                shown(group.group_id),
                group.generation_id,
                group.state.value,
                outcome.name,
            )
            return outcome
        shard.groups[group.group_id] = group
        return ErrorCode.NONE

    def _carry_out(
        self, shard: GroupCoordinatorShard, decision: Decision[A], waiter: Waiter | None = None
    ) -> Answered[A]:
        """Do what a decision says; `waiter`: where its request gets its answer if it is to wait."""
        if decision.if_refused is not None:
            error = self._store(shard, decision.group)
            if error:
                decision = decision.if_refused(error)
                assert decision.if_refused is None, "what is decided without the journal needs no record"
        shard.groups[decision.group.group_id] = decision.group
        self._apply(shard, decision.group, decision.effects, waiter)
        return Answered(decision.answer, shard.lsn)

    def _apply(
        self, shard: GroupCoordinatorShard, group: ClassicGroup, effects: Sequence[Effect], waiter: Waiter | None = None
    ) -> None:
        for effect in effects:
            match effect:
                case SetTimer(timer, delay_ms):
                    self._timers.set(_GroupTimer(shard, group.group_id, timer), delay_ms)
                case CancelTimer(timer):
                    self._timers.cancel(_GroupTimer(shard, group.group_id, timer))
                case Await(member_id):
                    assert waiter is not None and (group.group_id, member_id) not in self._waiting
                    self._waiting[group.group_id, member_id] = waiter
                case Answer(member_id, response):
                    waiting = self._waiting.pop((group.group_id, member_id))
                    if not waiting.done():  # else its connection is gone
                        waiting.set_result(Answered(response, shard.lsn))

    async def _answered(self, shard: GroupCoordinatorShard, decision: Decision[R | None], kind: type[R]) -> Answered[R]:
        """Carry a decision out, and wait for the answer to its request if it is to wait."""
        waiter: Waiter | None = None if decision.answer is not None else asyncio.get_running_loop().create_future()
        answered: Answered[R | None] | Answered[Response] = self._carry_out(shard, decision, waiter)
        if waiter is not None:
            answered = await waiter
        answer, lsn = answered
        assert isinstance(answer, kind), "a member waits for one answer at a time"
        return Answered(answer, lsn)

    def _rang(self, which: _GroupTimer) -> None:
        shard, group_id, timer = which
        group, settings, now = shard.groups[group_id], self._settings, self._clock.now()
        if timer == REBALANCE:
            decision = rebalance_timer_rang(group, settings, now)
        else:
            decision = session_timer_rang(group, timer.member_id, settings, now)
        self._carry_out(shard, decision)
