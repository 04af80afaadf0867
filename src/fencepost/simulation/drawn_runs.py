"""A run of everything, drawn from one seed: what the node is set to, who works with it, and what goes wrong.

Each run has few kinds of trouble, and much of them: what needs two kinds at once, often, is met by some seed, while a
run that has a little of everything meets it never (swarm testing, Groce et al. 2012).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from enum import Enum
from random import Random
from typing import Any, Final, NamedTuple

from fencepost.client import Admin
from fencepost.client.errors import BrokerError
from fencepost.protocol.errors import ErrorCode
from fencepost.simulation import any_request, disk, reach, small_limits
from fencepost.simulation.call_faults import Call, CallFault, FaultyCalls
from fencepost.simulation.cast import Stage, Window, begin, kind
from fencepost.simulation.checkers import check, check_part, misplaced, surprised
from fencepost.simulation.crashes import finalize, ignore_power_cut
from fencepost.simulation.disk import PowerCut
from fencepost.simulation.faulty_runs import move_coordinator, unfinished
from fencepost.simulation.happenings import happenings
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.request_faults import RequestFault, RequestFaults
from fencepost.simulation.script import Prompter, Script
from fencepost.simulation.workload import EARLY, Load, Outcomes, make_topics, read_all, read_positions
from fencepost.simulation.world import ADDRESS, PORT, Violation, World

#: Seconds of virtual time in which everybody has ended when nothing goes wrong any more.
PATIENCE: Final = 300
_HOUR: Final = 3_600_000
"""Milliseconds."""


class Trouble(Enum):
    """What may happen to a node between two moments."""

    KILLED = "killed"
    POWER_LOST = "power lost"
    STOPPED = "stopped"
    DIES_AT_A_WRITE = "dies at a write"
    DIES_WHILE_IT_STARTS = "dies while it starts"
    CONNECTIONS_CUT = "connections cut"
    COORDINATOR_MOVES = "coordinator moves"
    LEVEL_CHANGES = "level changes"
    CLOCK_JUMPS = "clock jumps"
    TOPIC_MADE_ANEW = "a topic is made anew"


#: Trouble that the election of a coordinator is not remembered over.
_ENDS: Final = frozenset(
    {
        Trouble.KILLED,
        Trouble.POWER_LOST,
        Trouble.STOPPED,
        Trouble.DIES_AT_A_WRITE,
        Trouble.DIES_WHILE_IT_STARTS,
    }
)


class Circumstances(NamedTuple):
    """What a seed decides before anything happens."""

    settings: Mapping[str, object] = {}
    log: Mapping[str, Any] = {}
    """Settings of every log that no user could set so low."""
    limits: Mapping[str, int] = {}
    slowest_sync: float = 0.002
    """Seconds."""
    level: int = 2
    """Of transaction.version, at the beginning."""
    producers: int = 0
    idempotent: int = 0
    pipelined: int = 0
    askers: int = 0
    readers: int = 0
    load: Load = Load()
    troubles: Sequence[Trouble] = ()
    between: float = 0.1
    """Seconds from one trouble to the next, on average."""
    request_faults: Mapping[RequestFault, float] = {}
    apis: tuple[int, ...] | None = None
    call_faults: Mapping[CallFault, float] = {}

    @property
    def clients(self) -> dict[str, Window]:
        """Everybody who works, by name, all the time."""
        counts = {
            "producer": self.producers,
            "single": self.idempotent,
            "pipelined": self.pipelined,
            "asker": self.askers,
            "reader": self.readers,
        }
        return {f"{kind}-{n}": Window() for kind, count in counts.items() for n in range(count)}


class Plan(NamedTuple):
    """All that a run follows from."""

    seed: int
    """Decides whatever is said nowhere else."""
    seconds: float
    """How long they work, in virtual time."""
    circumstances: Circumstances
    clients: Mapping[str, Window]
    script: Script | None = None
    """None: it is drawn while the run goes on."""


class Report(NamedTuple):
    """What came of a run."""

    plan: Plan
    """With everything that was drawn: it gives the same history."""
    history: list[str]
    faults: list[str]
    outcomes: Outcomes
    reached: Counter[str]

    @property
    def digest(self) -> str:
        """The same for the same history."""
        return hashlib.sha256("\n".join(self.history).encode()).hexdigest()


def draw(seed: int, troubles: Iterable[Trouble] | None = None) -> Circumstances:
    """The circumstances of a seed; with these kinds of trouble, where they are given."""
    chance = Random(f"{seed}/circumstances")
    drawn = _troubles(chance) if troubles is None else list(troubles)
    level = chance.choice((2, 2, 2, 1, 0))
    call_faults = _some(chance, CallFault, (0.01, 0.05, 0.2)) if chance.random() < 0.4 else {}
    if level < 2 or Trouble.LEVEL_CHANGES in drawn:
        # Below level 2 a marker that is repeated late may end the next transaction: only bumped epochs prevent that.
        call_faults.pop(CallFault.REPEATED, None)
    request_faults = _some(chance, RequestFault, (0.01, 0.05, 0.1)) if chance.random() < 0.6 else {}
    limits = small_limits.draw(chance)
    if RequestFault.HELD_BACK in request_faults or RequestFault.LATE in request_faults:
        # What is late would come when its sequences are in use again.
        limits.pop("largest sequence", None)
    settings = _settings(chance)
    return Circumstances(
        settings=settings,
        log=_log(chance),
        limits=limits,
        slowest_sync=chance.choice((0.0005, 0.002, 0.002, 0.02, 0.2)),
        level=level,
        producers=chance.randint(1, 4),
        idempotent=chance.choice((0, 1, 2)),
        # Their records have the time when they were made, which a clock set back would have refused.
        pipelined=chance.choice((0, 0, 1, 2)) if settings["log.message.timestamp.after.max.ms"] != _HOUR else 0,
        askers=chance.choice((0, 0, 1, 3)),
        readers=chance.choice((0, 1, 2)),
        load=Load(
            positions=chance.choice((0, 0.3, 0.8)),
            takeovers=chance.choice((0, 0.05, 0.2)),
            transaction_timeout_ms=chance.choice((300, 1500, 60_000)),
            request_timeout_ms=chance.choice((400, 2000)),
            delivery_timeout_ms=chance.choice((700, 5000)),
        ),
        troubles=drawn,
        between=chance.choice((0.03, 0.1, 0.5)),
        request_faults=request_faults,
        apis=chance.choice((None, None, (0,), (22, 24, 25, 26, 28))),
        call_faults=call_faults,
    )


def _some(chance: Random, kinds: Any, shares: Sequence[float]) -> dict[Any, float]:
    chosen = [kind for kind in kinds if chance.random() < 0.4] or [chance.choice(list(kinds))]
    return {kind: chance.choice(shares) for kind in chosen}


def _troubles(chance: Random) -> list[Trouble]:
    drawn = [kind for kind in Trouble if chance.random() < 0.25]
    if any(kind in _ENDS for kind in drawn):
        drawn = [kind for kind in drawn if kind is not Trouble.COORDINATOR_MOVES]
    return drawn


def _settings(chance: Random) -> dict[str, object]:
    return {
        "transaction.state.log.num.partitions": chance.choice((1, 3)),
        "offsets.topic.num.partitions": chance.choice((1, 3)),
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 50,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": chance.choice((20, 100, 1000)),
        "transaction.remove.expired.transaction.cleanup.interval.ms": chance.choice((200, 3_600_000)),
        "transactional.id.expiration.ms": chance.choice((1000, 20_000, 604_800_000)),
        "log.retention.check.interval.ms": chance.choice((100, 300_000)),
        "log.cleaner.backoff.ms": chance.choice((20, 15_000)),
        "log.record.check.max.records": chance.choice((0, 16, 2147483647)),
        "log.message.timestamp.after.max.ms": chance.choice((_HOUR, 2**63 - 1, 2**63 - 1)),
    }


def _log(chance: Random) -> dict[str, Any]:
    return {
        "segment_bytes": chance.choice((2000, 10_000, 1 << 20)),
        "checkpoint_bytes": chance.choice((400, 3000, 30_000, 1 << 20)),
        "index_interval_bytes": chance.choice((0, 200, 4096)),
        "file_delete_delay_ms": chance.choice((0, 50, 60_000)),
    }


def simulate(seed: int, seconds: float = 3, troubles: Iterable[Trouble] | None = None) -> Report:
    """Run everything for so many seconds of virtual time.  The same seed gives the same history."""
    return carry_out(plan_of(seed, seconds, troubles))


def plan_of(seed: int, seconds: float, troubles: Iterable[Trouble] | None = None) -> Plan:
    """The plan of a seed: what is drawn before anything happens."""
    circumstances = draw(seed, troubles)
    return Plan(seed, seconds, circumstances, circumstances.clients)


def is_sound(plan: Plan) -> bool:
    """Whether a part of a plan is one that might be drawn.

    Clients that send at the times of their own clock need one that is never too far ahead for the node.
    """
    timestamps = plan.circumstances.settings.get("log.message.timestamp.after.max.ms", _HOUR)
    return timestamps != _HOUR or not any(kind(name) == "pipelined" for name in plan.clients)


def carry_out(plan: Plan, watch: Callable[[World], object] | None = None) -> Report:
    """Run a plan.  The same plan gives the same history.  `watch`: is given the world before anything happens."""
    former = disk.SLOWEST_SYNC
    disk.SLOWEST_SYNC = plan.circumstances.slowest_sync
    history: list[str] = []
    outcomes = Outcomes()
    prompter = Prompter(plan.script)
    try:
        with small_limits.lowered(plan.circumstances.limits), reach.counted() as reached:
            faults = run(lambda loop: _main(loop, plan, prompter, history, outcomes, watch))
    except Exception as error:
        faults = [f"the run ended with {type(error).__name__}: {error}"]
    finally:
        disk.SLOWEST_SYNC = former
    return Report(plan._replace(script=prompter.script), history, faults, outcomes, reached)


async def _main(
    loop: VirtualLoop,
    plan: Plan,
    prompter: Prompter,
    history: list[str],
    outcomes: Outcomes,
    watch: Callable[[World], object] | None,
) -> list[str]:
    loop.set_exception_handler(ignore_power_cut)
    given = plan.circumstances
    world = World(loop, plan.seed, given.settings, given.log, prompter)
    world.history = history
    if watch is not None:
        watch(world)
    script = plan.script or Script()
    if given.call_faults or script.calls:
        world.faulty_calls = FaultyCalls(world, given.call_faults, tuple(Call), prompter)
    await world.start()
    await make_topics(world, given.level)
    if any(kind(name) == "asker" for name in plan.clients):
        await _make_anew(world)
    if given.request_faults or script.requests:
        chance = world.chance("request faults")
        faults = RequestFaults(chance, world.note, given.request_faults, given.apis, prompter)
        world.network.request_faults = faults
    stage = Stage(world, outcomes, given.load)
    stops = {name: asyncio.Event() for name in plan.clients}
    tasks = [begin(stage, name, window, stops[name]) for name, window in plan.clients.items()]
    kinds = [trouble.name for trouble in given.troubles]
    async for name in happenings(world, plan.seconds, kinds, given.between):
        with world.trouble(Trouble[name].value):
            await TROUBLES[Trouble[name]](world)
    for stop in stops.values():
        stop.set()
    world.network.request_faults = None
    broken = await _ended(tasks)
    if not broken:
        broken = await _judged(world, [name for name in plan.clients if kind(name) == "producer"], outcomes)
        broken += [fault for shown in stage.passes for fault in check_part(outcomes, shown)]
    return broken


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> list[str]:
    """Nobody waits for ever."""
    done, left = await asyncio.wait(tasks, timeout=PATIENCE)
    faults = [
        f"{task.get_name()} ended with {task.exception()!r}" for task in tasks if task in done and task.exception()
    ]
    return faults + [f"{task.get_name()} does not end" for task in tasks if task in left]


async def _judged(world: World, names: Sequence[str], outcomes: Outcomes) -> list[str]:
    try:
        shown = await read_all(world)
        happened = {Trouble[each.trouble] for each in world.prompter.script.troubles}
        faults = check(outcomes, shown) + [
            each for each in surprised(outcomes) if not _clock_is_to_blame(each, happened)
        ]
        faults += misplaced(outcomes, shown, await read_positions(world, names))
        faults += await unfinished(world)
        await world.stop()
    except (Violation, AssertionError) as violation:
        return [str(violation)]
    return faults


def _clock_is_to_blame(surprise: str, happened: Collection[Trouble]) -> bool:
    """A start does not know that the clock was set ahead meanwhile: what is open may be too old then."""
    return surprise.endswith(EARLY) and Trouble.CLOCK_JUMPS in happened and bool(_ENDS & {*happened})


# What goes wrong


async def _killed(world: World) -> None:
    world.kill()
    await world.start_again()


async def _power_lost(world: World) -> None:
    world.lose_power()
    await world.start_again()


async def _stopped(world: World) -> None:
    await world.stop()
    world.note("broker stopped")
    await world.start_again()


async def _dies_at_a_write(world: World) -> None:
    """The machine goes off in the middle of something, soon."""
    world.disk.cut_power_after(world.random.randrange(30))
    for _ in range(200):
        await asyncio.sleep(0.002)
        if world.disk.off:
            break
    world.disk.cut_power_after(10**9)
    (world.lose_power if world.random.random() < 0.5 else world.kill)()
    await world.start_again()


async def _dies_while_it_starts(world: World) -> None:
    world.kill()
    world.disk.cut_power_after(world.random.randrange(60))
    try:
        await world.start()
    except PowerCut:
        world.note("power cut while the broker started")
        world.give_up_start()
    else:
        world.kill()
    world.disk.cut_power_after(10**9)
    await world.start_again()


async def _connections_cut(world: World) -> None:
    world.network.break_connections(PORT)
    world.note("connections cut")


async def _coordinator_moves(world: World) -> None:
    await move_coordinator(world, world.random.randrange(3))


async def _level_changes(world: World) -> None:
    await finalize(world, world.random.randrange(3))


async def _clock_jumps(world: World) -> None:
    world.clock.skew_ms += world.random.choice((-_HOUR, -1000, 100, _HOUR))
    world.note(f"the clock is off by {world.clock.skew_ms} ms")
    # It is looked at every second: two jumps in between that make up for each other are not seen.
    await asyncio.sleep(1.1)


async def _make_anew(world: World) -> None:
    """The topic that anything is asked of goes, and another comes under its name."""
    async with Admin(ADDRESS, runtime=world.runtime(f"admin-{world.loop.time()}")) as admin:
        try:
            await admin.delete_topic(any_request.TOPIC)
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        await admin.create_topic(any_request.TOPIC, partitions=any_request.PARTITIONS, exist_ok=True)
    world.note(f"{any_request.TOPIC} is made anew")


TROUBLES: Final[Mapping[Trouble, Callable[[World], Coroutine[Any, Any, None]]]] = {
    Trouble.KILLED: _killed,
    Trouble.POWER_LOST: _power_lost,
    Trouble.STOPPED: _stopped,
    Trouble.DIES_AT_A_WRITE: _dies_at_a_write,
    Trouble.DIES_WHILE_IT_STARTS: _dies_while_it_starts,
    Trouble.CONNECTIONS_CUT: _connections_cut,
    Trouble.COORDINATOR_MOVES: _coordinator_moves,
    Trouble.LEVEL_CHANGES: _level_changes,
    Trouble.CLOCK_JUMPS: _clock_jumps,
    Trouble.TOPIC_MADE_ANEW: _make_anew,
}
