"""The broker crashes again and again under a transactional load; a history and the broken promises come out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.client import Admin
from fencepost.simulation.checkers.transactions import check
from fencepost.simulation.disk import PowerCut
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.processes import Process, ProcessLoop
from fencepost.simulation.readers import read_all
from fencepost.simulation.waiting import all_of
from fencepost.simulation.workload import Outcomes, make_topics, start_producer
from fencepost.simulation.world import ADDRESS, World


class Report(NamedTuple):
    """The result of a run: its history, broken promises in sentences, and how many transactions had which outcome."""

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
    levels: Sequence[int] = (),
    settings: Mapping[str, object] | None = None,
) -> Report:
    """Crash so many times, by kill -9 or (with that probability) power loss.  The same seed gives the same history.

    `levels`: those of transaction.version that are finalized in between, now and then.
    """

    async def main(loop: VirtualLoop) -> Report:
        world = World(loop, seed, settings)
        outcomes, stop = Outcomes(), asyncio.Event()
        await world.start()
        await make_topics(world, transaction_version)
        tasks = [start_producer(Process(world, f"producer-{n}"), outcomes, stop) for n in range(producers)]
        for _ in range(crashes):
            await asyncio.sleep(world.random.expovariate(1 / 0.05))
            await world.crash(power_losses)
            if levels and world.random.random() < 0.5:
                await finalize(world, world.random.choice(levels))
        await asyncio.sleep(0.5)
        stop.set()
        await all_of(*tasks)
        shown = await read_all(world)
        faults = check(outcomes, shown)
        await world.stop()
        return Report(world.history, faults, len(outcomes.committed), len(outcomes.aborted), len(outcomes.unknown))

    return run(main, ProcessLoop)


async def finalize(world: World, level: int) -> None:
    """Finalize this level of transaction.version while clients work."""
    async with Admin(ADDRESS, runtime=world.runtime(f"admin-{world.loop.time()}")) as admin:
        await admin.update_feature("transaction.version", level)
    world.note(f"transaction.version {level}")


def crash_at_write(
    operation: int, *, power_loss: bool, transaction_version: int = 2, seed: int = 1, transactions: int = 4
) -> Report | None:
    """Crash at the n-th operation that changes the disk under a few transactions; None if there are not so many.

    By kill -9, or by power loss: then what was not synced is lost in parts.
    """

    async def main(loop: VirtualLoop) -> Report | None:
        world = World(loop, seed)
        loop.set_exception_handler(ignore_power_cut)
        outcomes, stop = Outcomes(), asyncio.Event()
        await world.start()
        await make_topics(world, transaction_version)
        world.disk.cut_power_after(operation)
        task = start_producer(Process(world, "producer"), outcomes, stop)
        while not world.disk.off and len(outcomes.committed) + len(outcomes.aborted) < transactions:  # noqa: ASYNC110
            await asyncio.sleep(0.0005)
        reached = world.disk.off
        if reached:
            (world.lose_power if power_loss else world.kill)()
            await world.start()
        world.disk.cut_power_after(10**9)
        await asyncio.sleep(0.1)
        stop.set()
        await task
        faults = check(outcomes, await read_all(world))
        await world.stop()
        counts = (len(outcomes.committed), len(outcomes.aborted), len(outcomes.unknown))
        return Report(world.history, faults, *counts) if reached else None

    return run(main, ProcessLoop)


def ignore_power_cut(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Exception handler of the loop: ignores PowerCut, which ends what the broker was doing."""
    if not isinstance(context.get("exception"), PowerCut):
        loop.default_exception_handler(context)
