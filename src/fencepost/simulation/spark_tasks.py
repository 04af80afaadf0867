"""Spark's scheduler as the simulation has it: attempts at the tasks of a write, and what befalls them.

The attempts run the code of real ones (spark.attempt).  One stands still and wakes up after somebody else was started
for it, or after the driver went on; two run at once; one dies after a part of its writes.  What Spark tells an attempt,
its number, begins at 0 again whenever an executor was lost, so that it does not tell that there was another one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from fencepost.client.cluster import Cluster
from fencepost.protocol.records import BatchBuilder
from fencepost.simulation.micro_batches import PLACES, DriverOutcomes, Row, Shown
from fencepost.simulation.processes import Process
from fencepost.simulation.waiting import all_of
from fencepost.simulation.world import ADDRESS, World
from fencepost.spark.attempt import Plan, claim
from fencepost.spark.claims import Written
from fencepost.spark.driver import Step

T = TypeVar("T")

#: Records of a batch, at most: small, so that an attempt sends several.
_BATCH_RECORDS = 2


class TaskTrouble(NamedTuple):
    """How likely each thing befalls an attempt."""

    stalls: float = 0
    """It stands still for a while, and is given up for another one."""
    twins: float = 0
    """Another attempt runs at the same time."""
    deaths: float = 0
    """It dies on the way, and another one is started."""
    lingering: float = 0
    """It goes on although its driver failed or was killed."""


class Patience(NamedTuple):
    """Time limits of the clients, in milliseconds."""

    request_timeout_ms: int = 400
    patience_ms: int = 3000
    transaction_timeout_ms: int = 60_000


@dataclass
class Running:
    """An attempt that was started."""

    tag: str
    process: Process
    task: asyncio.Future[list[Written]]


class Scheduler:
    """Runs the tasks of one micro-batch for one driver (spark.driver.Surroundings)."""

    def __init__(
        self,
        world: World,
        driver: str,
        outcomes: DriverOutcomes,
        *,
        batch_id: int,
        rows: Sequence[Row],
        trouble: TaskTrouble,
        patience: Patience,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        self._written = written
        """Called when all tasks are done, and the driver is about to commit."""
        self._world = world
        self._driver = driver
        self._outcomes = outcomes
        self._batch_id = batch_id
        self._rows = rows
        self._trouble = trouble
        self._patience = patience
        self._random = world.chance(f"{driver} batch {batch_id}")
        self.runs: list[str] = []
        self._running: list[Running] = []

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    def tell(self, step: Step, batch_id: int) -> None:
        self._world.note(f"driver {self._driver} batch {batch_id}: {step.name}")
        if step is Step.WRITTEN:
            self._written()

    async def run_tasks(self, plan: Plan) -> list[Written]:
        """Have each slot's rows written; what the attempts report.  Raises what the first failed task raised."""
        run = f"{self._driver}.{self._batch_id}.{len(self.runs)}"
        self.runs.append(run)
        who = plan.ticket.producer_id_and_epoch
        self._world.note(f"run {run} writes as producer_id={who.producer_id} epoch={who.producer_epoch}")
        rows: dict[int, list[Row]] = {slot: [] for slot in plan.slots}
        for row in self._rows:
            rows[row.target % len(plan.slots)].append(row)
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._task(plan, run, slot, rows[slot])) for slot in plan.slots]
        try:
            reports = await all_of(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            self.stop_attempts()
            raise
        return [written for report in reports for written in report]

    def stop_attempts(self) -> None:
        """The tasks are not wanted any more.  Some go on for a while all the same."""
        for each in self._running:
            if self._random.random() >= self._trouble.lingering:
                self._kill(each)

    def end(self) -> None:
        """All is over."""
        for each in self._running:
            self._kill(each)

    def wake(self) -> None:
        """Who stands still goes on."""
        for each in self._running:
            each.process.go_on()

    def _kill(self, each: Running) -> None:
        each.process.die(silently=False)

    # A task

    async def _task(self, plan: Plan, run: str, slot: int, rows: list[Row]) -> list[Written]:
        """One task, by as many attempts as it takes; what the first of them to be done reports."""
        chance, trouble = self._random, self._trouble
        if not rows and chance.random() < 0.5:
            return []
        first = self._start(plan, run, slot, rows, 0)
        dice = chance.random()
        if dice < trouble.stalls:
            self._stall(first.process)
            await asyncio.wait([first.task], timeout=chance.uniform(0.02, 0.4))
            if first.task.done():
                return self._report(first)
            return await self._done(self._start(plan, run, slot, rows, 0))
        if dice < trouble.stalls + trouble.twins:
            await asyncio.sleep(chance.uniform(0, 0.01))
            return await self._either(first, self._start(plan, run, slot, rows, 0))
        if dice < trouble.stalls + trouble.twins + trouble.deaths:
            self._world.loop.call_later(chance.uniform(0, 0.03), self._kill, first, context=Context())
            await asyncio.wait([first.task])
            if not first.task.cancelled():
                return self._report(first)
            return await self._done(self._start(plan, run, slot, rows, chance.randrange(2)))
        return await self._done(first)

    async def _done(self, each: Running) -> list[Written]:
        await asyncio.wait([each.task])
        return self._report(each)

    async def _either(self, one: Running, other: Running) -> list[Written]:
        await asyncio.wait([one.task, other.task], return_when=asyncio.FIRST_COMPLETED)
        for each, rest in ((one, other), (other, one)):
            if each.task.done() and not each.task.cancelled() and each.task.exception() is None:
                return self._report(each)
            if each.task.done():
                return await self._done(rest)
        raise AssertionError("one of them is done")

    def _report(self, each: Running) -> list[Written]:
        report = each.task.result()
        self._outcomes.reported[each.tag] = self._batch_id
        return report

    def _stall(self, process: Process) -> None:
        chance = self._random
        happens = chance.choice((process.stand_still, process.cut_off))
        seconds = chance.choice((0.1, 1, 4)) * chance.random()
        self._world.loop.call_later(chance.uniform(0, 0.03), happens, seconds, context=Context())

    # An attempt

    def _start(self, plan: Plan, run: str, slot: int, rows: list[Row], attempt_number: int) -> Running:
        tag = f"{run}.{slot}.{len(self._running)}"
        process = Process(self._world, tag)
        chance = self._world.chance(tag)
        work = self._attempt(plan, slot, rows, attempt_number, tag, process, chance)
        running = Running(tag, process, process.start(work))
        running.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._running.append(running)
        return running

    async def _attempt(
        self,
        plan: Plan,
        slot: int,
        rows: list[Row],
        attempt_number: int,
        tag: str,
        process: Process,
        chance: random.Random,
    ) -> list[Written]:
        patience = self._patience
        cluster = Cluster(
            ADDRESS,
            client_id=tag,
            runtime=process.runtime(),
            # One that stands still may have time for more than its driver has.
            request_timeout_ms=chance.choice((patience.request_timeout_ms, 30_000)),
            patience_ms=patience.patience_ms,
        )
        try:
            attempt = await claim(cluster, plan, slot, attempt_number)
            try:
                building: dict[int, BatchBuilder] = {}
                # Lost map output is computed again, and comes in another order.
                for row in chance.choice((rows, rows[::-1], sorted(rows, key=lambda _: chance.random()))):
                    builder = building.setdefault(row.target, BatchBuilder())
                    builder.append(self._world.clock.now(), None, Shown(row, self._batch_id, tag).encode(), ())
                    if builder.count >= _BATCH_RECORDS:
                        await attempt.write(PLACES[row.target], building.pop(row.target))
                        await asyncio.sleep(chance.choice((0, 0, 0.003)))
                for target in list(building):
                    await attempt.write(PLACES[target], building.pop(target))
                return await attempt.finish(len(rows))
            finally:
                await attempt.close()
        except Exception as error:
            self._world.note(f"attempt {tag}: {type(error).__name__}")
            raise
        finally:
            await cluster.close()
