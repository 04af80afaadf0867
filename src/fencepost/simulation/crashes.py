"""The broker crashes again and again under a transactional load; a history and the broken promises come out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from fencepost.simulation.checkers import check
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.workload import Outcomes, make_topics, produce, read_all
from fencepost.simulation.world import World


class Report(NamedTuple):
    """What came of a run."""

    history: list[str]
    faults: list[str]
    committed: int
    aborted: int
    unknown: int


def crash_again_and_again(
    seed: int,
    crashes: int,
    *,
    producers: int = 3,
    power_losses: float = 0.5,
    transaction_version: int = 2,
    settings: Mapping[str, object] | None = None,
) -> Report:
    """Crash so many times, by kill -9 or (with that probability) power loss.  The same seed gives the same history."""

    async def main(loop: VirtualLoop) -> Report:
        world = World(loop, seed, settings)
        outcomes, stop = Outcomes(), asyncio.Event()
        await world.start()
        await make_topics(world, transaction_version)
        tasks = [loop.create_task(produce(world, f"producer-{n}", outcomes, stop)) for n in range(producers)]
        for _ in range(crashes):
            await asyncio.sleep(world.random.expovariate(1 / 0.05))
            if world.random.random() < power_losses:
                world.lose_power()
            else:
                world.kill()
            await asyncio.sleep(world.random.uniform(0, 0.02))
            await world.start()
        await asyncio.sleep(0.5)
        stop.set()
        await asyncio.gather(*tasks)
        shown = await read_all(world)
        faults = check(outcomes, shown)
        await world.stop()
        return Report(world.history, faults, len(outcomes.committed), len(outcomes.aborted), len(outcomes.unknown))

    return run(main)
