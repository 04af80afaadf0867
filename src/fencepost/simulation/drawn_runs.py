"""A run of everything on one node, as a plan says: a history and the broken promises come out."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from fencepost.simulation import disk, reach, small_limits
from fencepost.simulation.call_faults import Call, FaultyCalls
from fencepost.simulation.cast import Stage
from fencepost.simulation.changing_settings import ChangingSettings
from fencepost.simulation.changing_topics import ChangingTopics
from fencepost.simulation.crashes import ignore_power_cut
from fencepost.simulation.happenings import happenings
from fencepost.simulation.inhabitants import Inhabitants
from fencepost.simulation.inhabitants.applications import Applications
from fencepost.simulation.inhabitants.groups import Groups
from fencepost.simulation.inhabitants.ordered_readers import OrderedReaders
from fencepost.simulation.inhabitants.producers import Producers
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.plans import ABORTED_BY_THE_WAY
from fencepost.simulation.plans import Circumstances as Circumstances
from fencepost.simulation.plans import Plan as Plan
from fencepost.simulation.plans import is_sound as is_sound
from fencepost.simulation.plans import plan_of as plan_of
from fencepost.simulation.processes import Process, ProcessLoop
from fencepost.simulation.request_faults import RequestFaults
from fencepost.simulation.script import Prompter, Script
from fencepost.simulation.sights import Sights
from fencepost.simulation.troubles import ENDS, TROUBLES, Scene
from fencepost.simulation.troubles import Trouble as Trouble
from fencepost.simulation.unexpected import caught
from fencepost.simulation.workload import Outcomes
from fencepost.simulation.world import PATIENCE, PORT, Violation, World

#: Seconds of virtual time in which everybody gets on who does, once nothing goes wrong any more.
_LONG: Final = 10.0


class Report(NamedTuple):
    """The result of a run: history, broken promises, what clients were told, and how often marked code was reached."""

    plan: Plan
    """With everything that was drawn: it gives the same history."""
    history: list[str]
    faults: list[str]
    outcomes: Outcomes
    reached: Counter[str]
    groups: Groups | None = None
    applications: Applications | None = None

    @property
    def digest(self) -> str:
        """The digest of the history: the same for the same history."""
        return hashlib.sha256("\n".join(self.history).encode()).hexdigest()


def simulate(seed: int, seconds: float = 3, troubles: Iterable[Trouble] | None = None) -> Report:
    """Run everything for so many seconds of virtual time.  The same seed gives the same history."""
    return carry_out(plan_of(seed, seconds, troubles))


def carry_out(plan: Plan, watch: Callable[[World], object] | None = None) -> Report:
    """Run a plan.  The same plan gives the same history.  `watch`: is given the world before anything happens."""
    lives: list[_Life] = []

    async def whole(loop: VirtualLoop) -> None:
        lives.append(_Life(loop, plan))
        if watch is not None:
            watch(lives[0].world)
        await lives[0].whole()

    faults = []
    gc.collect()  # an error that the run before has left is none of this one
    try:
        with small_limits.lowered(plan.circumstances.limits), reach.counted() as reached, caught() as unexpected:
            run(whole, ProcessLoop)
            gc.collect()  # an error that nobody asked for is told of now, and not in a later run
    except Exception as error:
        faults = [f"the run ended with {type(error).__name__}: {error}"]
    life = lives[0]
    world, faults = life.world, life.faults + faults + list(dict.fromkeys(unexpected))
    drawn = plan._replace(script=world.prompter.script)
    return Report(drawn, world.history, faults, life.outcomes, reached, life.groups, life.applications)


class _Life:
    """One run of a plan, from its beginning to its end."""

    def __init__(self, loop: VirtualLoop, plan: Plan) -> None:
        assert isinstance(loop, ProcessLoop), "its clients can stand still"
        self._plan, self._loop = plan, loop
        given = self._given = plan.circumstances
        loop.set_exception_handler(ignore_power_cut)
        world = self.world = World(loop, plan.seed, given.settings, given.log, Prompter(plan.script))
        world.largest_skew_ms = given.largest_skew_ms
        world.disk.slowest_sync = given.slowest_sync
        self._script = plan.script or Script()
        if given.call_faults or self._script.calls:
            world.faulty_calls = FaultyCalls(world, given.call_faults, tuple(Call), world.prompter)
        self.faults: list[str] = []
        world.removals.knows_who_asks = True
        shape = given.load.shape
        outcomes = self.outcomes = Outcomes(removed=world.removals.records, keys=shape.keys, sights=Sights(shape))
        asked = any(name.startswith("asker") for name in plan.clients)
        self._topics = ChangingTopics(world, is_fed=given.groups is not None, asked=asked)
        self._settings = ChangingSettings(world, given.topic_settings, given.changes)
        stage = Stage(world, partial(Process, world), outcomes, given.load)
        producers = Producers(stage, plan.clients, given.level, given.topic_settings)
        self.groups = None if given.groups is None else Groups(world, given.groups, self._topics, outcomes)
        self.applications = None if given.applications is None else Applications(world, given.applications)
        ordered = OrderedReaders(world, given.ordered, exact=not shape.keys) if given.ordered else None
        there: list[Inhabitants | None] = [producers, self.applications, self.groups, ordered]
        self._inhabitants = [each for each in there if each is not None]

    async def whole(self) -> None:
        """Do the whole run; ends early where a Violation is seen."""
        life = self._loop.create_task(self._live())
        broken = self._loop.create_task(self.world.broken.wait())
        await asyncio.wait((life, broken), return_when=asyncio.FIRST_COMPLETED)
        broken.cancel()
        if life.done():
            await life
        else:
            life.cancel()
            self.faults.append("; ".join(self.world.violations[:3]))
        self._loop.clear_away()

    async def _live(self) -> None:
        """Begin, have troubles happen, come to rest and judge; the broken promises are in `faults`."""
        try:
            await self._begin()
            await self._go_wrong()
            self._end_faults()
            self.faults += await self._topics.end(PATIENCE)
            for each in self._inhabitants:
                timer = self._loop.call_later(_LONG, self._calm_down)
                self.faults += await each.rest()
                timer.cancel()
            if not self.faults:
                for each in self._inhabitants:
                    self.faults += await each.judge()
                self.faults += await self._settings.judge()
            await self.world.stop()
        except (Violation, AssertionError) as violation:
            self.faults.append(str(violation))

    async def _begin(self) -> None:
        world, given = self.world, self._given
        await world.start()
        for each in self._inhabitants:
            await each.prepare()
        await self._topics.prepare()
        if given.request_faults or self._script.requests:
            chance = world.chance("request faults")
            faults = RequestFaults(chance, world.note, given.request_faults, given.apis, world.prompter)
            world.network.request_faults = faults
        for each in self._inhabitants:
            each.begin()
        self._topics.begin()

    async def _go_wrong(self) -> None:
        world, given = self.world, self._given
        scene = Scene(world, self._topics, given.levels, self._settings)
        kinds = [trouble.name for trouble in given.troubles]
        async for name in happenings(world, self._plan.seconds, kinds, given.between):
            trouble = Trouble[name]
            with world.trouble(trouble.value):
                await TROUBLES[trouble](scene, world.random)
        happened = {Trouble[each.trouble] for each in world.prompter.script.troubles}
        jumped_over_a_start = Trouble.CLOCK_JUMPS in happened and bool(ENDS & happened)
        world.may_end_early = jumped_over_a_start or ABORTED_BY_THE_WAY in world.settings

    def _calm_down(self) -> None:
        for each in self._inhabitants:
            each.calm_down()

    def _end_faults(self) -> None:
        world = self.world
        world.note("no more faults")
        world.network.request_faults = None
        if world.faulty_calls is not None:
            world.faulty_calls.end()
        world.disk.slowest_sync = min(self._given.slowest_sync, disk.SLOWEST_SYNC)
        for client in list(world.clients):
            client.recover()
        world.network.break_connections(PORT)
