"""What a group was answered is so after a power loss that comes right after the answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.broker import asking

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from fencepost.protocol.messages.join_group import JoinGroupRequestProtocol
from fencepost.protocol.messages.leave_group import MemberIdentity
from fencepost.protocol.messages.sync_group import SyncGroupRequestAssignment
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import World

SEEDS = range(12)


async def ask(world: World, request: Any, version: int) -> Any:
    """The answer, when it may leave the node."""
    assert world.broker is not None
    return await asking.ask(world.broker, request, version)


async def join(world: World, member_id: str = "", instance: str | None = "i") -> Any:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"topics")],
    )
    return await ask(world, request, 9)


async def sync(world: World, member_id: str, generation: int) -> Any:
    given = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")]
    request = SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        group_instance_id="i",
        protocol_type="consumer",
        protocol_name="range",
        assignments=given,
    )
    return await ask(world, request, 5)


async def heartbeat(world: World, member_id: str, generation: int) -> Any:
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id, group_instance_id="i")
    return ErrorCode((await ask(world, request, 4)).error_code)


async def leave(world: World, member_id: str) -> Any:
    members = [MemberIdentity(member_id=member_id, group_instance_id="i")]
    return (await ask(world, LeaveGroupRequest(group_id="g", members=members), 5)).members[0]


async def begin(world: World) -> None:
    await world.start()
    assert world.broker is not None
    await world.broker.node.ensure_coordinator("__consumer_offsets")


async def lose_power(world: World) -> None:
    world.lose_power()
    await begin(world)


async def member_of_one(world: World) -> tuple[str, int]:
    """A group with one static member and its assignment: id and generation."""
    joined = await join(world)
    assert joined.error_code == ErrorCode.NONE
    assert (await sync(world, joined.member_id, joined.generation_id)).error_code == ErrorCode.NONE
    return joined.member_id, joined.generation_id


async def comes_back(world: World) -> None:
    """A static member is back, in a new process: the id that it is given is its id from then on."""
    former, _ = await member_of_one(world)
    back = await join(world)
    assert (back.error_code, back.member_id != former) == (ErrorCode.NONE, True)
    await lose_power(world)
    assert await heartbeat(world, back.member_id, back.generation_id) == ErrorCode.NONE
    assert await heartbeat(world, former, back.generation_id) == ErrorCode.FENCED_INSTANCE_ID


async def first_comes(world: World) -> None:
    """A group is there once somebody has been given an id for it."""
    given = await join(world, instance=None)
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    await lose_power(world)
    assert world.broker is not None
    assert not isinstance(world.broker.node.groups.known("g"), ErrorCode)


async def last_leaves(world: World) -> None:
    """Who has left is no member after a restart, and nobody waits for it."""
    member_id, generation = await member_of_one(world)
    assert (await leave(world, member_id)).error_code == ErrorCode.NONE
    await lose_power(world)
    assert await heartbeat(world, member_id, generation) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("story", [comes_back, first_comes, last_leaves])
def test_power_is_lost_right_after_the_answer(story: Callable[[World], Coroutine[Any, Any, None]], seed: int) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, seed)
        await begin(world)
        await story(world)
        await world.stop()

    run(main)
