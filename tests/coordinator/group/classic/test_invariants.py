"""What holds of a classic group after any sequence of requests, timers, and refusals of its journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.coordinator.group.classic.decision import (
    REBALANCE,
    Answer,
    Await,
    CancelTimer,
    Decision,
    SetTimer,
    Timer,
    TimerKind,
    session,
)
from fencepost.coordinator.group.classic.group import Awaiting, ClassicGroup, ClassicGroupState
from fencepost.coordinator.group.classic.heartbeat import heartbeat
from fencepost.coordinator.group.classic.join import Join, join
from fencepost.coordinator.group.classic.leave import MemberIdentity, leave
from fencepost.coordinator.group.classic.rebalance import rebalance_timer_rang, session_timer_rang
from fencepost.coordinator.group.classic.sync import Sync, sync
from fencepost.coordinator.group.settings import GroupSettings
from fencepost.coordinator.group.shards import restore, stored_form
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import JoinGroupResponse, SyncGroupResponse
from fencepost.protocol.types import Milliseconds

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicGroupState
SETTINGS = GroupSettings(max_size=3)
NOW = Milliseconds(1)
A = TypeVar("A")


class Request(NamedTuple):
    """A JoinGroup or SyncGroup that waits."""

    number: int
    kind: Awaiting


class Table:
    """One group; what is due, who waits, and what the journal holds.  Carries decisions out, and looks after each."""

    def __init__(self) -> None:
        self.group = ClassicGroup("g")
        self.journal = self.group
        self.refuses = False
        #: The journal refused its newest record; Apache Kafka, too, goes on without one of a group that is left by all.
        self.is_behind = False
        self.timers: set[Timer] = set()
        self.waiting: dict[str, Request] = {}
        self.unanswered: set[int] = set()
        #: Member ids that clients have heard of, and static ones' instances.
        self.known: list[tuple[str, str | None]] = [("stranger", None)]
        self._requests = 0
        self._given = 0

    def carry_out(self, decision: Decision[A]) -> A:
        before = self.group
        if decision.if_refused is not None:
            self.is_behind = self.refuses
            if self.refuses:
                decision = decision.if_refused(ErrorCode.NOT_COORDINATOR)
                assert decision.if_refused is None
            else:
                self.journal = decision.group
        self.group = decision.group
        for effect in decision.effects:
            match effect:
                case SetTimer(timer, delay_ms):
                    assert delay_ms >= 0
                    self.timers.add(timer)
                case CancelTimer(timer):
                    self.timers.discard(timer)
                case Await(member_id, kind):
                    assert member_id not in self.waiting, "a member waits for one answer at a time"
                    self.waiting[member_id] = Request(self._requests, kind)
                    self.unanswered.add(self._requests)
                case Answer(member_id, response):
                    request = self.waiting.pop(member_id)
                    self.unanswered.remove(request.number)
                    expected = JoinGroupResponse if request.kind is Awaiting.JOIN else SyncGroupResponse
                    assert isinstance(response, expected)
                    self._answered(response, member_id)
        self._look(before)
        return decision.answer

    # Requests

    def join(self, member_id: str, instance: str | None, likes: Sequence[str], as_new: bool, old_client: bool) -> None:
        self._requests += 1
        self._given += 1
        request = Join(
            member_id="" if as_new else member_id,
            group_instance_id=instance,
            client_id="c",
            client_host="/h",
            session_timeout_ms=Milliseconds(10_000),
            rebalance_timeout_ms=Milliseconds(5_000 * len(likes)),
            protocol_type="consumer",
            protocols=tuple((each, b"") for each in likes),
            new_member_id=f"m{self._given}",
            require_known_member_id=not old_client,
            support_skipping_assignment=not old_client,
        )
        answer = self.carry_out(join(self.group, request, SETTINGS, NOW))
        for new in (self.group.members, self.group.pending_members):
            if request.new_member_id in new:
                self.known.append((request.new_member_id, instance))
        if answer is None:
            # It waits, or has got its answer through `Answer` already.
            return
        self._answered(answer, answer.member_id)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            assert answer.member_id in self.group.pending_members

    def sync(self, member_id: str, instance: str | None, generation_id: int) -> None:
        self._requests += 1
        given = {each: f"{each} in {generation_id}".encode() for each in self.group.members}
        request = Sync(
            member_id=member_id,
            group_instance_id=instance,
            generation_id=generation_id,
            protocol_type=None,
            protocol_name=None,
            assignments=given,
        )
        answer = self.carry_out(sync(self.group, request, SETTINGS, NOW))
        if answer is not None:
            self._answered(answer, member_id)

    def ring(self, timer: Timer) -> None:
        self.timers.remove(timer)
        if timer == REBALANCE:
            self.carry_out(rebalance_timer_rang(self.group, SETTINGS, NOW))
        else:
            self.carry_out(session_timer_rang(self.group, timer.member_id, SETTINGS, NOW))

    def everybody_joins(self, likes: Sequence[str]) -> None:
        for member_id in [*self.group.pending_members, *self.group.members]:
            member = self.group.members.get(member_id)
            if member is None or member.awaiting is None:
                self.join(member_id, None, likes, as_new=False, old_client=False)

    def everybody_syncs(self, leader_first: bool) -> None:
        for member_id in sorted(self.group.members, key=lambda each: (each == self.group.leader_id) != leader_first):
            self.sync(member_id, None, self.group.generation_id)

    def begin(self, instances: Sequence[str | None]) -> None:
        """A stable group with these members."""
        for instance in instances:
            self.join("", instance, LIKES[1], as_new=True, old_client=True)
        while self.group.state is PREPARING:
            self.ring(REBALANCE)
        self.everybody_syncs(leader_first=False)
        assert self.group.state is (STABLE if instances else EMPTY) and len(self.group.members) == len(instances)

    def restart(self) -> None:
        """Another coordinator, which knows what the journal says; whoever waited has no connection any more."""
        restored = restore("g", stored_form(self.journal))
        assert _stored(restored) == _stored(self.journal)
        assert (restored.state, restored.static_members) == (self.journal.state, self.journal.static_members)
        self.group = self.journal = restored
        self.timers = {session(member_id) for member_id in restored.members}
        self.waiting, self.unanswered = {}, set()
        self._look(restored)

    # What must hold

    def _answered(self, response: JoinGroupResponse | SyncGroupResponse, member_id: str) -> None:
        if response.error_code:
            return
        member = self.group.members[member_id]
        if isinstance(response, JoinGroupResponse):
            assert response.member_id == member_id
            assert response.generation_id == self.group.generation_id
            assert response.protocol_name in {name for name, _ in member.protocols}
            if self.group.state is STABLE:
                assert member_id in self.journal.members, "its id is in the journal before it hears of it"
        else:
            stored = self.journal.members[member_id]
            assert self.journal.generation_id == self.group.generation_id, "nobody hears of what is not in the journal"
            assert response.assignment == stored.assignment == member.assignment

    def _look(self, before: ClassicGroup) -> None:
        group = self.group
        assert group.generation_id >= before.generation_id, "a generation never goes back"
        assert group.state is not DEAD
        members = group.members
        assert all(key == member.member_id for key, member in members.items())
        assert not set(members) & set(group.pending_members), "a member is in one place"
        assert group.leader_id in members or (group.leader_id is None and not members)
        static = {m.group_instance_id: m.member_id for m in members.values() if m.group_instance_id is not None}
        assert group.static_members == static, "an instance is one member"
        assert len(members) + len(group.pending_members) <= SETTINGS.max_size
        if group.state in (STABLE, COMPLETING):
            assert members and group.protocol_name is not None
            assert group.protocol_name in set.intersection(*({n for n, _ in m.protocols} for m in members.values()))
        if group.state is EMPTY:
            assert not members
        allowed = {PREPARING: Awaiting.JOIN, COMPLETING: Awaiting.SYNC}.get(group.state)
        awaiting = {key: member.awaiting for key, member in members.items() if member.awaiting is not None}
        assert set(awaiting.values()) <= {allowed}
        assert {key: request.kind for key, request in self.waiting.items()} == awaiting
        expected = {session(key) for key in [*group.pending_members, *members] if key not in awaiting}
        if group.state in (PREPARING, COMPLETING) or not group.has_received_sync_from_all_members:
            expected.add(REBALANCE)
        assert self.timers == expected, "a timer for everything that must end, and for nothing that is gone"
        assert (group.initial_delay_left_ms is None) or group.state is PREPARING
        if group.state is STABLE:
            assert _stored(self.journal) == _stored(group), "a stable group is in the journal as it is"

    def end(self) -> None:
        """Nobody says anything any more: everybody who waits is answered, and then everybody is out."""
        self.refuses = False
        for _ in range(10):
            for timer in sorted(self.timers, key=lambda timer: (timer.kind is TimerKind.SESSION, timer.member_id)):
                if timer in self.timers:
                    self.ring(timer)
        assert not self.unanswered and not self.waiting, "every request is answered in the end"
        assert self.group.state is EMPTY and not self.timers and not self.group.pending_members
        if self.group.generation_id and not self.is_behind:
            assert (self.journal.state, self.journal.generation_id) == (EMPTY, self.group.generation_id)


def _stored(group: ClassicGroup) -> object:
    members = {key: (member.group_instance_id, member.assignment) for key, member in group.members.items()}
    return group.generation_id, group.protocol_name, group.leader_id, members


LIKES = (("range",), ("range", "sticky"), ("range", "sticky"), ("sticky", "range"), ("sticky",))
who = st.integers(0, 30)
instance = st.sampled_from((None, None, None, "i", "j"))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("join"), who, instance, st.integers(0, len(LIKES) - 1), st.booleans(), st.booleans()),
        st.tuples(st.just("rejoin"), who, st.integers(0, len(LIKES) - 1)),
        st.tuples(st.just("rejoin"), who, st.just(1)),
        st.tuples(st.just("sync"), who, st.sampled_from((0, 0, 0, 0, 1, -1))),
        st.tuples(st.just("returns"), st.sampled_from("ij"), st.sampled_from((1, 1, 4))),
        st.tuples(st.just("everybody joins"), st.just(1)),
        st.tuples(st.just("everybody joins"), st.just(1)),
        st.tuples(st.just("everybody syncs"), st.booleans()),
        st.tuples(st.just("everybody syncs"), st.just(False)),
        st.tuples(st.just("heartbeat"), who),
        st.tuples(st.just("leave"), st.lists(who, min_size=1, max_size=4), st.booleans()),
        st.tuples(st.just("ring"), who),
        st.tuples(st.just("phase ends")),
        st.tuples(st.just("restart")),
    ),
    max_size=20,
)
#: Instances of the members that the group begins with.
beginnings = st.sampled_from(((), (None,), ("i",), (None, None), (None, "i"), ("i", None), (None, None, "i")))


def newest(table: Table, index: int) -> tuple[str, str | None]:
    """Mostly one that was heard of last."""
    return table.known[-1 - index % len(table.known)] if index < 25 else table.known[0]


@settings(max_examples=500, deadline=None)
@given(beginnings, steps, st.integers(1, 6))
def test_whatever_happens_to_a_group_its_invariants_hold(
    beginning: tuple[str | None, ...], history: list[tuple[object, ...]], refused: int
) -> None:
    table = Table()
    table.begin(beginning)
    for number, step in enumerate(history):
        table.refuses = number % 6 == refused  # 6: never
        match step:
            case ("join", int(index), instance, int(likes), bool(as_new), bool(old_client)):
                assert instance is None or isinstance(instance, str)
                table.join(newest(table, index)[0], instance, LIKES[likes], as_new, old_client)
            case ("rejoin", int(index), int(likes)):
                table.join(*newest(table, index), LIKES[likes], as_new=False, old_client=False)
            case ("returns", str(instance), int(likes)):
                table.join("", instance, LIKES[likes], as_new=True, old_client=False)
            case ("everybody joins", int(likes)):
                table.everybody_joins(LIKES[likes])
            case ("everybody syncs", bool(leader_first)):
                table.everybody_syncs(leader_first)
            case ("sync", int(index), int(off)):
                table.sync(*newest(table, index), table.group.generation_id + off)
            case ("heartbeat", int(index)):
                member_id, of = newest(table, index)
                table.carry_out(heartbeat(table.group, member_id, of, table.group.generation_id))
            case ("leave", list(indexes), bool(by_instance)):
                identities = [MemberIdentity(*newest(table, index)) for index in indexes]
                if by_instance:
                    identities = [each._replace(member_id="") if each[1] else each for each in identities]
                table.carry_out(leave(table.group, identities, SETTINGS, NOW))
            case ("ring", int(index)):
                timers = sorted(table.timers, key=lambda timer: (timer.kind.value, timer.member_id))
                if timers:
                    table.ring(timers[index % len(timers)])
            case ("restart",):
                table.restart()
            case ("phase ends",):
                if REBALANCE in table.timers:
                    table.ring(REBALANCE)
    table.end()
