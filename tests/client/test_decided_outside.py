"""Two-phase commit with something that is no part of Kafka: what that decided is what is read (KIP-939)."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.client.test_prepared import ALLOWED, taking_part
from tests.client.test_producer import shown, simulate

from fencepost.client import PreparedTxnState, Producer
from fencepost.simulation.world import PORT, World


class Killed(Exception):
    """A process is no more."""


@dataclass
class Deciding:
    """What decides: it outlives every process, and notes in one step what was decided and how to complete it."""

    committed: list[bytes] = field(default_factory=list)
    kept: str = ""

    def commits(self, value: bytes, prepared: PreparedTxnState) -> None:
        self.committed.append(value)
        self.kept = str(prepared)


@dataclass
class Application:
    """Lives again and again, and is killed between any two steps."""

    world: World
    chance: random.Random
    keeps: bool
    outside: Deciding = field(default_factory=Deciding)
    number: int = 0
    lives_on: bool = False

    def maybe(self, share: float) -> bool:
        return not self.lives_on and self.chance.random() < share

    async def step(self, work: Any) -> Any:
        """Something that may be the last that is done, or be broken off in its middle."""
        task = asyncio.ensure_future(work)
        if self.maybe(0.06):
            await asyncio.wait([task], timeout=self.chance.random() * 0.02)
            task.cancel()
            await asyncio.wait([task])
            raise Killed
        done = await task
        if self.maybe(0.04):
            raise Killed
        return done

    async def live(self) -> None:
        writer = taking_part(self.world)
        try:
            await self.recover(writer)
            for _ in range(0 if self.lives_on else self.chance.randrange(5)):
                await self.transact(writer)
        except Killed:
            pass
        finally:
            await writer.abandon()

    async def recover(self, writer: Producer) -> None:
        if self.keeps:
            await self.step(writer.init_transactions(keep_prepared=True))
            await self.step(writer.complete_transaction(self.outside.kept))
        else:
            await self.step(writer.complete_transaction(self.outside.kept))
            await self.step(writer.init_transactions())

    async def transact(self, writer: Producer) -> None:
        self.number += 1
        value = b"%d" % self.number
        await self.step(writer.begin_transaction())
        for partition in range(2):
            await self.step(writer.send("t", value, partition=partition))
        prepared = await self.step(writer.prepare_transaction())
        if self.maybe(0.3):
            await self.step(writer.abort_transaction())
            return
        self.outside.commits(value, prepared)
        if self.maybe(0.3):
            raise Killed
        await self.step(writer.commit_transaction())


@pytest.mark.parametrize("keeps", [False, True], ids=["complete, then take over", "take over, then complete"])
@pytest.mark.parametrize("seed", range(12))
def test_what_was_decided_outside_is_what_is_read_whoever_is_killed_when(seed: int, keeps: bool) -> None:
    async def scenario(world: World) -> None:
        chance = random.Random(seed)
        application = Application(world, chance, keeps)

        async def cut_connections() -> None:
            while True:
                await asyncio.sleep(random.Random(f"{seed}/{world.loop.time()}").random() * 0.3)
                world.network.break_connections(PORT)

        cutting = asyncio.ensure_future(cut_connections())
        for _ in range(25):
            await application.live()
        cutting.cancel()
        application.lives_on = True
        await application.live()
        read = await shown(world)
        assert sorted(read) == sorted(application.outside.committed * 2)
        assert application.number > 10

    simulate(scenario, **ALLOWED)
