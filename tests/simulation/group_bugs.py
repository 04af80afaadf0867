"""Bugs that one would really make in a consumer, its membership and the group coordinator: each breaks the real code.

`BUGS`: name -> what breaks the code, and the plan of a run in which that shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pytest
from tests.simulation.narrow_worlds import World, groups

from fencepost.client import assignors, fetcher, group_offsets, positions
from fencepost.client.assignment import Assignment
from fencepost.client.commits import Commits
from fencepost.client.fetcher import Fetcher
from fencepost.client.followed import Followed
from fencepost.client.group import Group
from fencepost.client.group_offsets import GroupOffsets
from fencepost.client.group_requests import GroupRequests
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.coordinator.group import coordinator, membership, shards
from fencepost.coordinator.group.classic import group as classic_group
from fencepost.coordinator.group.classic import heartbeat, leave, responses, sync
from fencepost.coordinator.group.classic.decision import Change, decided
from fencepost.coordinator.group.coordinator import GroupCoordinator
from fencepost.coordinator.group.offsets import Offsets
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import OffsetFetchRequest
from fencepost.protocol.messages.list_offsets import LATEST
from fencepost.protocol.types import NO_PRODUCER, TopicPartition
from fencepost.simulation.group_load import Group as Members
from fencepost.simulation.inhabitants.groups import AUDIT, LEDGER

Patch = pytest.MonkeyPatch


class Bug(NamedTuple):
    """What is broken, and a plan by which that is found."""

    plant: Callable[[Patch], None]
    plan: World
    seed: int
    """The first one that is tried."""


BUGS: dict[str, Bug] = {}
MEMBERS = groups(incidents=6, transformers=())
LOOPS = groups(incidents=6, groups=())
LONGER_LOOPS = groups(incidents=20, groups=())
TOPICS_CHANGE = groups(incidents=6, transformers=(), topics_change=0.8)
CRASHES = groups(incidents=6, crashes=0.5)
MANY = groups(incidents=3, groups=tuple(LEDGER._replace(name=name) for name in "abcd"), transformers=())
ONE_BY_ONE = groups(incidents=6, groups=(AUDIT,), transformers=())


def bug(plan: World, seed: int = 0) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def keep(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        BUGS[plant.__name__.replace("_", " ")] = Bug(plant, plan, seed)
        return plant

    return keep


# Positions


@bug(LOOPS, seed=2)
def seeking_keeps_what_was_fetched(patch: Patch) -> None:
    def seek(self: Followed, position: int) -> None:
        self._position = self.chunk = position

    patch.setattr(Followed, "seek", seek)


@bug(LOOPS, seed=2)
def an_answer_from_before_a_seek_is_taken_for_one_after_it(patch: Patch) -> None:
    def aged(self: Fetcher, answer: Any, asked: dict[TopicPartition, tuple[Followed, Any]]) -> None:
        now = {at: (partition, partition.wanted) for at, (partition, _) in asked.items()}
        take_answer(self, answer, now)

    take_answer = Fetcher._take_answer
    patch.setattr(Fetcher, "_take_answer", aged)


@bug(TOPICS_CHANGE)
def a_position_that_is_gone_is_set_to_the_end(patch: Patch) -> None:
    list_offsets = positions.list_offsets

    async def latest(cluster: Any, partitions: Any, _: int, isolation: Any) -> Any:
        return await list_offsets(cluster, partitions, LATEST, isolation)

    patch.setattr(positions, "list_offsets", latest)


@bug(MEMBERS)
def the_offset_of_the_last_record_is_committed(patch: Patch) -> None:
    positions = Commits.next_offsets
    patch.setattr(
        Commits,
        "next_offsets",
        lambda self: {at: OffsetAndMetadata(max(n.offset - 1, 0)) for at, n in positions(self).items()},
    )


@bug(MEMBERS)
def what_is_fetched_is_committed(patch: Patch) -> None:
    def chunks(self: Commits) -> dict[TopicPartition, OffsetAndMetadata]:
        return {at: OffsetAndMetadata(followed.chunk) for at, followed in self._fetcher.followed.items()}

    patch.setattr(Commits, "next_offsets", chunks)


@bug(MEMBERS)
def what_is_worked_on_is_committed(patch: Patch) -> None:
    async def all_of_it(self: Commits) -> None:
        positions = self.next_offsets()
        if positions:
            await self.commit(positions)

    patch.setattr(Commits, "commit_done", all_of_it)


@bug(ONE_BY_ONE)
def iterating_does_not_look_whether_a_partition_is_paused(patch: Patch) -> None:
    take_one = Fetcher.take_one

    def heedless(self: Fetcher, *rest: Any) -> Any:
        paused = [partition for partition in self.followed.values() if partition.paused]
        for partition in paused:
            partition.paused = False
        try:
            return take_one(self, *rest)
        finally:
            for partition in paused:
                partition.paused = True

    patch.setattr(Fetcher, "take_one", heedless)


@bug(TOPICS_CHANGE, seed=1)
def new_partitions_are_not_looked_for(patch: Patch) -> None:
    patch.setattr(Assignment, "_new_partitions", lambda _: {})


@bug(TOPICS_CHANGE, seed=6)
def a_topic_made_anew_is_not_noticed(patch: Patch) -> None:
    patch.setattr(fetcher, "_have_ids", lambda _: False)
    patch.setattr(fetcher, "_differ", lambda *_: False)
    commit, begin = GroupOffsets.commit, GroupOffsets.begin
    patch.setattr(GroupOffsets, "commit", lambda self, offsets, _, *more: commit(self, offsets, {}, *more))
    patch.setattr(GroupOffsets, "begin", lambda self, offsets, _, *more: begin(self, offsets, {}, *more))


@bug(LOOPS, seed=1)
def positions_are_read_while_a_transaction_may_change_them(patch: Patch) -> None:
    def hasty(**how: Any) -> OffsetFetchRequest:
        return OffsetFetchRequest(**{**how, "require_stable": False})

    hasty.__schema__ = OffsetFetchRequest.__schema__  # type: ignore[attr-defined]
    patch.setattr(group_offsets, "OffsetFetchRequest", hasty)


# Membership


@bug(MEMBERS)
def the_partitions_of_the_last_generation_are_kept(patch: Patch) -> None:
    follow = Fetcher.follow

    def keeping(self: Fetcher, positions: Mapping[TopicPartition, int], ids: Mapping[str, Any]) -> None:
        before = dict(self.followed)
        follow(self, positions, ids)
        self.followed = {**before, **self.followed}

    patch.setattr(Fetcher, "follow", keeping)
    patch.setattr(Fetcher, "drop", lambda *_: None)


@bug(MEMBERS)
def the_positions_of_the_last_generation_are_kept(patch: Patch) -> None:
    follow, drop, known = Fetcher.follow, Fetcher.drop, dict[int, dict[TopicPartition, int]]()

    def keeping(self: Fetcher, positions: Mapping[TopicPartition, int], ids: Mapping[str, Any]) -> None:
        mine = known.setdefault(id(self), {})
        follow(self, {at: mine.get(at, position) for at, position in positions.items()}, ids)

    def remembering(self: Fetcher, partitions: Iterable[TopicPartition]) -> None:
        mine = known.setdefault(id(self), {})
        mine |= {at: partition.position for at, partition in self.followed.items()}
        drop(self, partitions)

    patch.setattr(Fetcher, "follow", keeping)
    patch.setattr(Fetcher, "drop", remembering)


@bug(MEMBERS)
def the_answers_to_heartbeats_are_ignored(patch: Patch) -> None:
    ask = GroupRequests.ask

    async def deaf(self: GroupRequests, request: Any, *how: Any, **more: Any) -> Any:
        answer = await ask(self, request, *how, **more)
        if type(request).__name__ == "HeartbeatRequest":
            answer.error_code = ErrorCode.NONE
        return answer

    patch.setattr(GroupRequests, "ask", deaf)


@bug(MEMBERS)
def shares_overlap(patch: Patch) -> None:
    assign = assignors.assign_ranges

    def overlapping(members_of: Any, counts: Mapping[str, int]) -> Any:
        given = assign(members_of, counts)
        members = [member for member in given if given[member]]
        if len(members) == 3:
            given[members[2]].append(given[members[1]][-1])
        return given

    patch.setitem(vars(assignors)["ASSIGNORS"], assignors.RANGE, overlapping)


@bug(MEMBERS)
def a_share_is_forgotten(patch: Patch) -> None:
    assign = assignors.assign_ranges

    def forgetful(subscriptions: Any, counts: Mapping[str, int]) -> Any:
        given = assign(subscriptions, counts)
        for member in list(given)[1:]:
            given[member] = given[member][:-1]
        return given

    patch.setitem(vars(assignors)["ASSIGNORS"], assignors.RANGE, forgetful)


@bug(LONGER_LOOPS)
def the_generation_is_not_handed_along(patch: Patch) -> None:
    patch.setattr(Group, "metadata", lambda self: ConsumerGroupMetadata(self.group_id))
    patch.setattr(
        "fencepost.simulation.group_load.Member.membership",
        lambda self: _true_membership(self._group, self.consumer._group._followed),
    )


def _true_membership(members: Members, found: ConsumerGroupMetadata) -> Any:
    from fencepost.simulation.group_notes import Membership

    return Membership(members.name, found.generation_id, found.group_instance_id or found.member_id, found.member_id)


@bug(ONE_BY_ONE, seed=10)
def a_fenced_member_takes_its_place_back(patch: Patch) -> None:
    def take_back(self: Group, error: ErrorCode) -> None:
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self._member_id, self.must_join = "", True

    patch.setattr(Group, "check_fenced", take_back)


# The coordinator


@bug(MEMBERS)
def commits_of_any_generation_are_taken(patch: Patch) -> None:
    patch.setattr(coordinator, "validate_offset_commit", lambda *_: ErrorCode.NONE)


@bug(LONGER_LOOPS, seed=1)
def transactional_commits_of_any_generation_are_taken(patch: Patch) -> None:
    patch.setattr(coordinator, "validate_transactional_offset_commit", lambda *_: ErrorCode.NONE)


@bug(LOOPS)
def offsets_of_an_open_transaction_are_visible(patch: Patch) -> None:
    def at_once(self: Offsets, _: Any, name: str, at: Any, committed: Any, record_offset: Any) -> None:
        self.put(name, at, committed, record_offset)

    patch.setattr(Offsets, "put_pending", at_once)


@bug(LOOPS)
def offsets_of_an_aborted_transaction_are_committed(patch: Patch) -> None:
    complete = Offsets.complete
    patch.setattr(Offsets, "complete", lambda self, producer_id, _: complete(self, producer_id, True))


@bug(LOOPS, seed=1)
def an_open_transaction_holds_nobody_up(patch: Patch) -> None:
    patch.setattr(Offsets, "is_unstable", lambda *_: False)
    patch.setattr(Offsets, "unstable", lambda *_: [])


@bug(CRASHES)
def committed_offsets_are_not_read_at_the_start(patch: Patch) -> None:
    take_offset = shards.GroupCoordinatorShard.take_offset

    def forgetful(self: Any, record: Any, producer_id: Any) -> None:
        if producer_id >= 0:
            take_offset(self, record, producer_id)

    patch.setattr(shards.GroupCoordinatorShard, "take_offset", forgetful)


@bug(CRASHES, seed=1)
def transactional_offsets_are_not_pending_after_the_start(patch: Patch) -> None:
    take_offset = shards.GroupCoordinatorShard.take_offset
    patch.setattr(
        shards.GroupCoordinatorShard,
        "take_offset",
        lambda self, record, _: take_offset(self, record, NO_PRODUCER.producer_id),
    )


@bug(MEMBERS)
def the_join_phase_ends_with_the_first_who_joins(patch: Patch) -> None:
    patch.setattr(classic_group.ClassicGroup, "has_all_members_joined", True)


@bug(MEMBERS)
def a_heartbeat_does_not_keep_the_session(patch: Patch) -> None:
    patch.setattr(heartbeat, "heard_of", lambda *_: ())


@bug(MEMBERS)
def nobody_is_ever_taken_for_dead(patch: Patch) -> None:
    patch.setattr(membership, "session_timer_rang", lambda group, *_: decided(Change(group), None, lambda _: None))


@bug(MANY, seed=1)
def a_member_that_leaves_leaves_its_partitions_alone(patch: Patch) -> None:
    patch.setattr(leave, "prepare_or_complete", lambda group, **_: Change(group))


@bug(MEMBERS)
def everybody_is_told_the_share_of_the_leader(patch: Patch) -> None:
    assigned = responses.assigned

    def the_same(known: Any, member: Any) -> Any:
        return assigned(known, known.members.get(known.leader_id, member))

    patch.setattr(sync, "assigned", the_same)


@bug(MEMBERS)
def a_rebalance_does_not_wait_for_those_who_work(patch: Patch) -> None:
    timeout = vars(classic_group.ClassicGroup)["rebalance_timeout_ms"].fget
    patch.setattr(classic_group.ClassicGroup, "rebalance_timeout_ms", property(lambda self: timeout(self) // 100))


@bug(MEMBERS)
def offsets_expire_while_there_are_members(patch: Patch) -> None:
    expired = GroupCoordinator._expired

    def hasty(self: GroupCoordinator, shard: Any, group_id: str, now: Any) -> Any:
        known = shard.groups.get(group_id)
        if known is not None:
            shard.groups[group_id] = known._replace(state=classic_group.ClassicGroupState.EMPTY, protocol_type=None)
        try:
            found = expired(self, shard, group_id, now + 59_500)
        finally:
            if known is not None:
                shard.groups[group_id] = known
        return None if found is None else found._replace(with_group=False)

    patch.setattr(GroupCoordinator, "_expired", hasty)
