"""A transactional load while calls between coordinators and leaders, or clients and broker, go wrong.

They are lost, late and repeated.  In between the broker crashes, or coordinators move to another election; transactions
time out, instances take over from each other.  A history and the broken promises come out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from fencepost.protocol.types import TRANSACTION_STATE, LeaderEpoch
from fencepost.simulation.call_faults import Call, CallFault, FaultyCalls
from fencepost.simulation.checkers.transactions import check
from fencepost.simulation.checkers.transactions.misplaced import misplaced
from fencepost.simulation.checkers.transactions.surprised import surprised
from fencepost.simulation.crashes import finalize
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.processes import Process, ProcessLoop
from fencepost.simulation.readers import read_all, read_positions, unfinished
from fencepost.simulation.request_faults import RequestFault, RequestFaults
from fencepost.simulation.waiting import all_of
from fencepost.simulation.workload import Load, Outcomes, make_topics, start_producer
from fencepost.simulation.world import World

#: Little of everything.
EVERYTHING: Final[Mapping[CallFault, float]] = {
    CallFault.LOST: 0.02,
    CallFault.ANSWER_LOST: 0.02,
    CallFault.LATE: 0.02,
    CallFault.ANSWER_LATE: 0.02,
    CallFault.REPEATED: 0.05,
}
EVERY_REQUEST_FAULT: Final[Mapping[RequestFault, float]] = dict.fromkeys(RequestFault, 0.02)
#: Impatient, so that what is late is met by what comes after it.
LOAD: Final = Load(
    positions=0.3, takeovers=0.05, transaction_timeout_ms=1500, request_timeout_ms=400, delivery_timeout_ms=700
)
#: Time-outs are looked for often, since much is late.
SETTINGS: Final[Mapping[str, object]] = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}


class Plan(NamedTuple):
    """The faults, incidents and load of a run.  Shares and probabilities are from 0 to 1."""

    call_faults: Mapping[CallFault, float] = {}
    calls: tuple[Call, ...] = tuple(Call)
    request_faults: Mapping[RequestFault, float] = {}
    apis: tuple[int, ...] | None = None
    crashes: float = 0
    """The probability that the broker crashes at an incident; else nothing happens, or coordinators move."""
    moves: float = 0
    changes: float = 0
    """The probability that transaction.version is changed at an incident, to any level."""
    incidents: int = 20
    level: int = 2
    producers: int = 3
    load: Load = LOAD


class Report(NamedTuple):
    """The result of a run: its history, the broken promises in sentences, and what producers were told."""

    history: list[str]
    faults: list[str]
    outcomes: Outcomes


def disturb(seed: int, plan: Plan) -> Report:
    """Run the load; the same seed gives the same history.  Coordinators move only in a run without crashes."""
    assert not (plan.crashes and plan.moves), "an election is not remembered over a restart"

    async def main(loop: VirtualLoop) -> Report:
        world = World(loop, seed, SETTINGS)
        if plan.call_faults:
            world.faulty_calls = FaultyCalls(world, plan.call_faults, plan.calls)
        outcomes, stop = Outcomes(), asyncio.Event()
        await world.start()
        await make_topics(world, plan.level)
        if plan.request_faults:
            chance = world.chance("request faults")
            world.network.request_faults = RequestFaults(chance, world.note, plan.request_faults, plan.apis)
        names = [f"producer-{n}" for n in range(plan.producers)]
        tasks = [start_producer(Process(world, name), outcomes, stop, plan.load) for name in names]
        for _ in range(plan.incidents):
            await asyncio.sleep(world.random.expovariate(1 / 0.1))
            await _incident(world, plan)
        await asyncio.sleep(0.5)
        stop.set()
        await all_of(*tasks)
        world.network.request_faults = None
        shown = await read_all(world)
        faults = check(outcomes, shown) + surprised(outcomes)
        faults += misplaced(outcomes, shown, await read_positions(world, names))
        faults += await unfinished(world)
        await world.stop()
        return Report(world.history, faults, outcomes)

    return run(main, ProcessLoop)


async def _incident(world: World, plan: Plan) -> None:
    dice = world.random.random()
    if dice < plan.crashes:
        await world.crash()
    elif dice < plan.crashes + plan.moves:
        await move_coordinator(world, world.random.randrange(3))
    elif dice < plan.crashes + plan.moves + plan.changes:
        await finalize(world, world.random.randrange(3))


async def move_coordinator(world: World, index: int) -> None:
    """Have a partition of the coordinators' journal elected anew; for a moment nobody answers for its ids."""
    assert world.broker is not None
    journal = world.broker.node.storage.partition(TRANSACTION_STATE, index)
    if journal is None:
        return
    journal.leader_epoch = LeaderEpoch(journal.leader_epoch + 1)
    world.note(f"coordinator {index} moves, epoch {journal.leader_epoch}")
    world.broker.node.transactions.resign(index)
    await asyncio.sleep(world.random.uniform(0, 0.02))
    world.broker.node.transactions.load(index)
