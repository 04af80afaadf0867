"""Who leaves a group, and when it is empty, may begin again, or may be deleted."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinator.group.group_doubles import A, B, World, group_of, settled, virtual

from fencepost.protocol.codec import encode_stored
from fencepost.protocol.consumer_protocol import ConsumerProtocolSubscription
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.steps import Pace, finish

SUBSCRIBED = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


@virtual
async def test_whoever_leaves_is_gone_at_once_and_the_others_share() -> None:
    world = World()
    generation, (leader, follower) = await world.stable(2)
    assert world.leave((leader, None)) == [ErrorCode.NONE]
    assert world.heartbeat(follower, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    again = await world.join(follower)
    assert (again.leader, len(again.members)) == (follower, 1)
    assert world.leave((follower, None)) == [ErrorCode.NONE]
    assert world.state() == "Empty"
    assert world.leave((follower, None)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.leave((follower, None), group="h") == [ErrorCode.UNKNOWN_MEMBER_ID]


@virtual
async def test_an_empty_group_can_begin_again() -> None:
    world = World()
    generation, (member,) = await world.stable()
    world.leave((member, None))
    following, _ = await world.stable(2)
    assert following > generation


@virtual
async def test_a_group_is_deleted_only_when_nobody_is_in_it() -> None:
    world = World()
    _, (member,) = await world.stable()
    world.commit({A: 1}, "h")
    assert world.delete_group() == ErrorCode.NON_EMPTY_GROUP
    assert world.delete_offsets(A) == {A: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    world.leave((member, None))
    assert world.delete_group() == ErrorCode.NONE
    assert world.state() == "GROUP_ID_NOT_FOUND"
    assert [group.group_id for group in finish(world.coordinator.groups_in_steps(Pace()))] == ["h"]
    world.restart()
    assert world.state() == "GROUP_ID_NOT_FOUND"


@virtual
async def test_an_id_that_was_given_out_rings_nowhere_when_its_group_is_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    given = await world.join()
    assert world.delete_group() == ErrorCode.NONE
    await world.join()  # a group of the same name
    await asyncio.sleep(9)
    assert (await world.join(given.member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    await asyncio.sleep(30)
    assert caplog.records == []


@virtual
async def test_after_a_restart_it_is_known_what_members_read() -> None:
    world = World()
    reads_a = encode_stored(ConsumerProtocolSubscription(topics=[A.topic]), 1)
    generation, (member,) = await world.stable(protocols={"range": reads_a})
    world.commit({A: 1, B: 2}, who=(member, None, generation))
    world.restart()
    assert world.delete_offsets(A, B) == {A: SUBSCRIBED, B: ErrorCode.NONE}


@virtual
async def test_a_static_member_that_is_named_twice_leaves_once() -> None:
    world = World()
    joined = await world.join(instance="i")
    named = [("", "i"), ("another", "i"), ("", "i"), (joined.member_id, "i"), (joined.member_id, None)]
    assert world.leave(*named) == [ErrorCode.NONE] + [ErrorCode.UNKNOWN_MEMBER_ID] * 4


@virtual
async def test_who_was_promised_an_id_may_leave_before_it_joins() -> None:
    world = World()
    _, (member,) = await world.stable()
    promised = await world.join()
    waiting = asyncio.create_task(world.join(member, protocols={"range": b"other topics"}))
    await settled()
    assert not waiting.done()
    assert world.leave((promised.member_id, None)) == [ErrorCode.NONE]
    assert (await waiting).generation_id == 2
    assert (await world.join(promised.member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@virtual
async def test_who_leaves_while_it_waits_is_told_so() -> None:
    world = World(initial_rebalance_delay_ms=3000)
    member = (await world.join()).member_id
    waiting = asyncio.create_task(world.join(member))
    await settled()
    assert world.leave((member, None)) == [ErrorCode.NONE]
    assert (await waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    await asyncio.sleep(3.1)
    assert world.state() == "Empty"


@virtual
async def test_who_leaves_before_it_joins_makes_the_others_join_again() -> None:
    world = World()
    _, (member,) = await world.stable()
    promised = await world.join()
    assert world.leave((promised.member_id, None)) == [ErrorCode.NONE]
    assert world.state() == "PreparingRebalance"
    assert (await world.join(member)).generation_id == 2


@virtual
async def test_those_who_leave_together_leave_at_once() -> None:
    world = World()
    _, (first, second) = await world.stable(2)
    waiting = asyncio.create_task(world.join(first, protocols={"range": b"other topics"}))
    await settled()
    errors = world.leave((second, None), (first, None), ("stranger", None))
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert (await waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.state() == "Empty"


@virtual
async def test_offsets_of_topics_that_nobody_reads_may_be_deleted() -> None:
    world = World()
    wanted = encode_stored(ConsumerProtocolSubscription(topics=[A.topic]), 3)
    generation, (member,) = await world.stable(protocols={"range": wanted})
    other = A._replace(topic="other")
    world.commit({A: 1, other: 2}, who=(member, None, generation))
    assert world.delete_offsets(A, other) == {A: SUBSCRIBED, other: ErrorCode.NONE}
    assert (world.committed_offset(A), world.committed_offset(other)) == (1, None)
    world.restart()
    assert world.delete_offsets(A) == {A: SUBSCRIBED}
    assert world.leave((member, None)) == [ErrorCode.NONE]
    assert world.delete_offsets(A) == {A: ErrorCode.NONE}


@virtual
async def test_no_offsets_of_members_that_are_no_consumers_are_deleted() -> None:
    world = World()
    _, (member,) = await world.stable(protocol_type="connect")
    assert world.delete_offsets(A) == ErrorCode.NON_EMPTY_GROUP
    world.leave((member, None))
    assert world.delete_offsets(A) == {A: ErrorCode.NONE}


@virtual
async def test_a_group_that_waits_for_a_promised_member_is_not_empty() -> None:
    world = World()
    _, (member,) = await world.stable(protocol_type="connect")
    await world.join(protocol_type="connect")
    world.leave((member, None))
    assert not group_of(world).members
    assert world.delete_offsets(A) == ErrorCode.NON_EMPTY_GROUP
    assert world.delete_group() == ErrorCode.NON_EMPTY_GROUP


@virtual
async def test_a_group_that_was_deleted_waits_for_nobody_who_was_to_come(caplog: pytest.LogCaptureFixture) -> None:
    """Its timer would find no group, and be tried again and again."""
    world = World()
    await world.join()
    assert world.delete_group() == ErrorCode.NONE
    await asyncio.sleep(600)
    assert [record.message for record in caplog.records if record.exc_info] == []


@virtual
async def test_nobody_is_out_once_the_coordinator_is_closed() -> None:
    """A node that ends takes nobody out: members go on with the one that comes after it."""
    world = World()
    await world.stable()
    world.coordinator.close()
    before = world.journal.end
    await asyncio.sleep(60)
    assert (world.journal.end, world.state()) == (before, "Stable")
