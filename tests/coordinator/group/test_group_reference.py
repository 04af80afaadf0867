"""The reference pages about groups are current, and the coordinator answers what every cell of them says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scripts.group_reference import FOLDER, NOTHING, PAGES, SITUATIONS, TABLES, Who, is_possible, told
from tests.coordinator.group.group_doubles import A, World, settled, virtual

from fencepost.coordinator.group.classic.group import ClassicGroup
from fencepost.protocol.errors import ErrorCode


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_are_current(name: str) -> None:
    assert (FOLDER / name).read_text() == PAGES[name](), "run python scripts/group_reference.py"


def test_nothing_is_on_a_page_that_could_not_happen() -> None:
    """Nor is a caller there for nothing."""
    for _, callers in TABLES.values():
        for who in callers.values():
            assert any(is_possible(situation, who) for situation in SITUATIONS)


async def ask(world: World, name: str, who: Who) -> Any:
    """The answer to this request, over everything that the coordinator does for it; None: it waits."""
    if name == "JoinGroup":
        version = 9 if who.require_known_member_id else 3
        protocols = dict(who.protocols)
        asked = world.join(who.member_id, instance=who.group_instance_id, protocols=protocols, version=version)
    elif name == "SyncGroup":
        asked = world.sync(who.member_id, who.generation_id, {}, instance=who.group_instance_id)  # type: ignore[assignment]
    elif name == "Heartbeat":
        return world.heartbeat(who.member_id, who.generation_id, who.group_instance_id)
    elif name == "LeaveGroup":
        return world.leave((who.member_id, who.group_instance_id))[0]
    elif name == "OffsetCommit":
        return world.commit({A: 1}, who=who[:3]).errors[A]
    else:
        return world.commit_in_transaction((1, 0), {A: 1}, who=who[:3]).errors[A]
    task = asyncio.create_task(asked)
    await settled()
    if task.done():
        return task.result()
    task.cancel()
    return None


def state_of(world: World) -> ClassicGroup:
    found = world.coordinator.known("g")
    return ClassicGroup("g") if isinstance(found, ErrorCode) else found


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("name", TABLES)
@virtual
async def test_the_coordinator_answers_what_the_table_says(name: str, situation: str) -> None:
    cell, callers = TABLES[name]
    before = SITUATIONS[situation]
    for column, who in callers.items():
        if is_possible(situation, who):
            world = World(initial_rebalance_delay_ms=3000)
            if before is not None:
                world.put(before)
            answer = await ask(world, name, who)
            assert told(before, answer, state_of(world)) == cell(before, who) != NOTHING, column
            world.coordinator.close()
