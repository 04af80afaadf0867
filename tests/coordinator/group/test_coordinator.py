"""What answers about committed offsets depend on, and what becomes of members over a restart."""

from __future__ import annotations

import asyncio

from tests.coordinator.group.group_doubles import A, B, World, virtual

from fencepost.protocol.errors import ErrorCode


@virtual
async def test_who_is_refused_a_commit_is_told_so_when_the_group_is_durable() -> None:
    """Else a power loss could take back the generation because of which it was."""
    world = World()
    generation, (member,) = await world.stable()
    for who, error in (
        (("nobody", None, generation), ErrorCode.UNKNOWN_MEMBER_ID),
        ((member, None, generation + 1), ErrorCode.ILLEGAL_GENERATION),
    ):
        for refused in (world.commit({A: 1}, who=who), world.commit_in_transaction((1, 0), {A: 1}, who=who)):
            assert (dict(refused.errors), refused.lsn) == ({A: error}, world.lsn)
    assert world.lsn > 0


def test_what_is_answered_after_a_marker_depends_on_it() -> None:
    world = World()
    world.commit_in_transaction((1, 0), {A: 1})
    before = world.lsn
    world.end((1, 1), commit=True)
    answer = world.coordinator.delete_offsets("g", [B])
    assert answer.answer == {B: ErrorCode.NONE}
    assert answer.lsn == world.lsn > before


@virtual
async def test_members_that_do_not_come_back_after_a_restart_are_out_after_their_session() -> None:
    world = World()
    generation, (stays, _) = await world.stable(2, session_ms=10_000)
    world.restart()
    await asyncio.sleep(6)
    assert world.heartbeat(stays, generation) == ErrorCode.NONE
    await asyncio.sleep(6)
    assert world.state() == "PreparingRebalance", "without the other one"
    await asyncio.sleep(6)
    assert world.state() == "Empty"
