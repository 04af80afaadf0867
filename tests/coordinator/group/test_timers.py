"""Timers ring once, or not at all; one whose ringing fails rings again, and its group goes on."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.coordinator.group.group_doubles import World, group_of, virtual

from fencepost.coordinator.group import membership
from fencepost.coordinator.group.classic.rebalance import session_timer_rang
from fencepost.coordinator.group.timers import Timers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Milliseconds


class Bell:
    """Notes which timers ring, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.rang: list[str] = []
        self.failures = failures
        self.timers: Timers[str] = Timers(self.ring)

    def ring(self, key: str) -> None:
        self.rang.append(key)
        if self.failures:
            self.failures -= 1
            raise LookupError(key)


@virtual
async def test_a_timer_rings_once_unless_it_is_cancelled_set_again_or_closed() -> None:
    bell = Bell()
    for key in "abcd":
        bell.timers.set(key, Milliseconds(1000))
    bell.timers.cancel("a")
    bell.timers.cancel("nobody")
    bell.timers.set("b", Milliseconds(3000))
    await asyncio.sleep(2)
    assert bell.rang == ["c", "d"]
    await asyncio.sleep(2)
    assert bell.rang == ["c", "d", "b"]
    bell.timers.set("a", Milliseconds(1000))
    bell.timers.close()
    bell.timers.close()
    await asyncio.sleep(1000)
    assert bell.rang == ["c", "d", "b"]


@virtual
async def test_a_timer_that_fails_rings_again_and_not_for_ever() -> None:
    for failures, rings in ((1, 2), (9, 10), (10, 10), (1000, 10)):
        bell = Bell(failures)
        bell.timers.set("a", Milliseconds(1000))
        await asyncio.sleep(1000)
        assert len(bell.rang) == rings
        assert bool(bell.timers._failures) == (failures >= rings), "those that succeeded are forgotten"
        if failures < 1000:
            bell.failures = 0
        bell.timers.set("a", Milliseconds(1000))
        await asyncio.sleep(1000)
        assert len(bell.rang) == rings + (1 if failures < 1000 else 10), "set again it begins anew"


@virtual
async def test_one_that_is_set_anew_before_its_ringing_fails_rings_when_that_says() -> None:
    bell = Bell()

    def ring(key: str) -> None:
        bell.ring(key)
        if len(bell.rang) == 1:
            bell.timers.set(key, Milliseconds(5000))
            raise LookupError(key)

    bell.timers = Timers(ring)
    bell.timers.set("a", Milliseconds(1000))
    await asyncio.sleep(5)
    assert bell.rang == ["a"]
    await asyncio.sleep(1000)
    assert bell.rang == ["a", "a"]


@virtual
async def test_what_failed_does_not_ring_again_when_it_is_cancelled_or_closed() -> None:
    for closes in (True, False):
        bell = Bell(1)
        bell.timers.set("a", Milliseconds(1000))
        await asyncio.sleep(1.05)
        bell.timers.close() if closes else bell.timers.cancel("a")
        await asyncio.sleep(1000)
        assert bell.rang == ["a"]


@virtual
async def test_a_group_goes_on_when_what_its_timer_brings_has_failed() -> None:
    world = World()
    _, (lost, left) = await world.stable(2, session_ms=10_000, rebalance_ms=5_000)
    decide, failures = session_timer_rang, 3

    def failing(*given: object) -> object:
        nonlocal failures
        if failures:
            failures -= 1
            raise LookupError("a defect")
        return decide(*given)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(membership, "session_timer_rang", failing)
        logging.getLogger("fencepost.coordinator.group.timers").setLevel(logging.CRITICAL)
        for _ in range(4):
            await asyncio.sleep(4)
            group = group_of(world)
            error = world.heartbeat(left, group.generation_id)
        assert failures == 0
        assert lost not in group_of(world).members
        assert error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        again = await world.join(left)
        assert again.error_code == ErrorCode.NONE and again.generation_id == group.generation_id + 1
