"""Static members, and what a restart of the coordinator knows of groups; on virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinator.group.group_doubles import A, World, group_of, now, virtual

from fencepost.coordinator.group import MemberIdentity
from fencepost.protocol.errors import ErrorCode

# Static members


@virtual
async def test_a_static_member_that_comes_back_keeps_its_place() -> None:
    world = World()
    first = await world.join(instance="i")
    assert first.error_code == ErrorCode.NONE, "its id need not be promised"
    await world.sync(first.member_id, 1, {first.member_id: b"mine"}, instance="i")
    back = await world.join(instance="i")
    assert (back.error_code, back.generation_id) == (ErrorCode.NONE, 1)
    assert back.member_id != first.member_id
    synced = await world.sync(back.member_id, 1, instance="i")
    assert (synced.error_code, bytes(synced.assignment)) == (ErrorCode.NONE, b"mine")
    assert world.heartbeat(first.member_id, 1, "i") == ErrorCode.FENCED_INSTANCE_ID
    assert (await world.join(first.member_id, instance="i")).error_code == ErrorCode.FENCED_INSTANCE_ID
    late = await world.sync(first.member_id, 1, instance="i")
    assert late.error_code == ErrorCode.FENCED_INSTANCE_ID
    who = (first.member_id, "i", 1)
    assert world.commit({A: 1}, who=who).errors == {A: ErrorCode.FENCED_INSTANCE_ID}
    assert world.commit_in_transaction((1, 0), {A: 1}, who=who).errors == {A: ErrorCode.FENCED_INSTANCE_ID}


@virtual
async def test_a_static_member_that_comes_back_says_anew_how_long_it_may_take() -> None:
    world = World()
    first = await world.join(instance="i", rebalance_ms=20_000)
    await world.sync(first.member_id, 1, {}, instance="i")
    back = await world.join(instance="i", rebalance_ms=40_000, session_ms=15_000)
    world.restart()
    (member,) = group_of(world).members.values()
    assert member.member_id == back.member_id
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (40_000, 15_000)


@virtual
async def test_a_static_member_that_changes_the_protocol_makes_everybody_join_again() -> None:
    world = World()
    first = await world.join(instance="i", protocols={"range": b"", "roundrobin": b""})
    await world.sync(first.member_id, 1, {}, instance="i")
    back = await world.join(instance="i", protocols={"range": b"other topics"})
    assert back.generation_id == 1, "what else it wants is for the next generation"
    back = await world.join(instance="i", protocols={"roundrobin": b"", "range": b""})
    assert back.generation_id == 2


@virtual
async def test_a_static_member_is_out_when_its_session_ends() -> None:
    world = World()
    first = await world.join(instance="i")
    await world.sync(first.member_id, 1, {}, instance="i")
    await asyncio.sleep(10.1)
    assert world.state() == "Empty"


@virtual
async def test_a_static_member_is_waited_for_through_a_rebalance() -> None:
    world = World()
    first = await world.join(instance="i", session_ms=60_000)
    await world.sync(first.member_id, 1, {}, instance="i")
    other = await world.join_as_new(session_ms=60_000)
    assert now() == pytest.approx(20)
    assert (other.generation_id, other.leader) == (2, other.member_id)
    assert sorted(group_of(world).members) == sorted([first.member_id, other.member_id])


@virtual
async def test_an_admin_removes_a_static_member_by_its_name() -> None:
    world = World()
    await world.join(instance="i")
    assert world.leave(("", "j")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.leave(("x", "i")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert world.leave(("", "i")) == [ErrorCode.NONE]
    assert group_of(world).members == {}


# Restart


@virtual
async def test_a_restart_knows_groups_members_and_offsets() -> None:
    world = World()
    generation, members = await world.stable(2)
    world.commit({A: 7}, who=(members[0], None, generation))
    world.restart()
    assert world.state() == "Stable"
    assert group_of(world).leader_id == members[0]
    assert world.committed_offset(A) == 7
    for number, member in enumerate(members):
        assert world.heartbeat(member, generation) == ErrorCode.NONE
        assert bytes((await world.sync(member, generation)).assignment) == b"%d" % number
    assert world.commit({A: 8}, who=(members[0], None, generation - 1)).errors == {A: ErrorCode.ILLEGAL_GENERATION}


@virtual
async def test_after_a_restart_everybody_has_a_session_to_show_up() -> None:
    world = World()
    generation, (leader, follower) = await world.stable(2, session_ms=10_000)
    await asyncio.sleep(9)
    world.restart()
    await asyncio.sleep(9)
    assert world.heartbeat(leader, generation) == ErrorCode.NONE
    await asyncio.sleep(2)
    assert world.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    again = await world.join(leader)
    assert [each.member_id for each in again.members] == [leader]
    assert follower not in group_of(world).members


@virtual
async def test_a_restart_knows_a_static_member_under_its_newest_id() -> None:
    world = World()
    first = await world.join(instance="i")
    await world.sync(first.member_id, 1, {first.member_id: b"mine"}, instance="i")
    back = await world.join(instance="i")
    world.restart()
    assert world.heartbeat(back.member_id, 1, "i") == ErrorCode.NONE
    assert world.heartbeat(first.member_id, 1, "i") == ErrorCode.FENCED_INSTANCE_ID


@virtual
async def test_generations_go_on_after_a_restart_of_an_empty_group() -> None:
    world = World()
    generation, (member,) = await world.stable()
    world.leave((member, None))
    world.restart()
    assert world.state() == "Empty"
    following, _ = await world.stable()
    assert following > generation


@virtual
async def test_nothing_rings_after_the_end() -> None:
    world = World()
    await world.stable(2)
    world.coordinator.close()
    await asyncio.sleep(100)
    assert world.state() == "Stable"


@virtual
async def test_static_members_that_are_all_away_are_waited_for_until_their_sessions_end() -> None:
    world = World()
    first = await world.join(instance="i", session_ms=60_000)
    second = asyncio.create_task(world.join(instance="j", session_ms=60_000))
    await asyncio.sleep(0)
    assert (await world.join(first.member_id, instance="i", session_ms=60_000)).generation_id == 2
    leader, other = first.member_id, (await second).member_id
    await asyncio.gather(
        world.sync(leader, 2, {leader: b"1", other: b"2"}, instance="i"), world.sync(other, 2, instance="j")
    )
    assert world.leave(("", "j")) == [ErrorCode.NONE]
    await asyncio.sleep(30)
    assert list(group_of(world).members) == [leader], "the time for a rebalance is over, its session is not"
    await asyncio.sleep(31)
    assert world.state() == "Empty"


# A journal that takes nothing


@virtual
async def test_a_static_member_that_cannot_be_written_down_is_not_given_an_id() -> None:
    world = World()
    first = await world.join(instance="i", protocols={"range": b"as before"})
    await world.sync(first.member_id, 1, {first.member_id: b"mine"}, instance="i")
    world.journal.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    back = await world.join(instance="i", protocols={"range": b"anew"}, session_ms=20_000)
    assert (back.error_code, back.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    assert world.heartbeat(first.member_id, 1, "i") == ErrorCode.NONE, "nothing has changed"
    (member,) = group_of(world).members.values()
    assert (member.protocols, member.session_timeout_ms) == ((("range", b"as before"),), 10_000)
    assert group_of(world).leader_id == first.member_id
    world.journal.refuse = None
    back = await world.join(instance="i")
    assert back.error_code == ErrorCode.NONE
    assert world.heartbeat(first.member_id, 1, "i") == ErrorCode.FENCED_INSTANCE_ID


@virtual
async def test_a_group_that_cannot_be_written_down_is_not_there() -> None:
    world = World()
    world.journal.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    for instance in (None, "i"):
        assert (await world.join(instance=instance)).error_code == ErrorCode.NOT_COORDINATOR
    assert world.state() == "GROUP_ID_NOT_FOUND"
    world.journal.refuse = None
    assert (await world.join(instance="i")).error_code == ErrorCode.NONE


@virtual
async def test_who_leaves_last_is_told_if_that_could_not_be_written_down() -> None:
    world = World()
    first = await world.join(instance="i")
    await world.sync(first.member_id, 1, {}, instance="i")
    world.journal.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.leave((first.member_id, "i"), ("stranger", None)) == [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


@virtual
async def test_every_answer_names_the_newest_record() -> None:
    """So nothing leaves the node that a power loss could take back."""
    world = World()
    joined = await world.join(instance="i")
    await world.sync(joined.member_id, 1, {}, instance="i")
    before = world.lsn
    await world.join(instance="i")
    assert world.lsn > before, "the new id is in the journal"
    (member_id,) = group_of(world).members
    left = world.coordinator.leave_group("g", [MemberIdentity(member_id, "i")])
    assert left.lsn == world.lsn > before + 1
