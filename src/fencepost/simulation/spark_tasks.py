"""Spark's scheduler as the simulation has it: attempts at the tasks of a write, and what befalls them.

The attempts run the code of real ones (spark.attempt).  One stands still and wakes up after somebody else was started
for it, or after the driver went on; two run at once; one dies after a part of its writes.  What Spark tells an attempt,
its number, begins at 0 again whenever an executor was lost, so that it does not tell that there was another one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, TypeVar

from fencepost.protocol.records import BatchBuilder
from fencepost.simulation.ledger_in_memory import LedgerInMemory
from fencepost.simulation.micro_batches import PLACES, DriverOutcomes, Row, Shown
from fencepost.simulation.processes import Process
from fencepost.simulation.spark_ahead import Given, TasksAhead, wrong_number
from fencepost.simulation.spark_trouble import Patience, TaskTrouble, cluster_of
from fencepost.simulation.waiting import all_of
from fencepost.simulation.world import World
from fencepost.spark.attempt import Attempt, Plan, Receipt, claim
from fencepost.spark.claims import Written
from fencepost.spark.driver import Step
from fencepost.spark.ledger import Turns, close_places

T = TypeVar("T")

#: Records of a batch, at most: small, so that an attempt sends several.
_BATCH_RECORDS = 2


@dataclass
class Running:
    """An attempt that was started."""

    tag: str
    process: Process
    task: asyncio.Future[list[Written]]


@dataclass(frozen=True)
class _Share:
    """The input of a slot: rows to write, and what was sent ahead for it."""

    rows: list[Row]
    given: Sequence[Given] = ()
    ledger: LedgerInMemory | None = None

    def __bool__(self) -> bool:
        return bool(self.rows or self.receipts)

    @property
    def receipts(self) -> list[tuple[int, Receipt]]:
        return [receipt for each in self.given for receipt in each.receipts]


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
        ahead: Process | None = None,
    ) -> None:
        """`ahead`: the driver's process, if the tasks that give the rows send some of them ahead."""
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
        self._ahead = ahead
        self._sending_ahead: list[Process] = []

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    def tell(self, step: Step, batch_id: int) -> None:
        self._world.note(f"driver {self._driver} batch {batch_id}: {step.name}")
        if step is Step.WRITTEN:
            self._written()

    async def run_tasks(self, plan: Plan) -> list[Written]:
        """Have each slot's rows written; the reports of the attempts.  Raises what the first failed task raised."""
        run = f"{self._driver}.{self._batch_id}.{len(self.runs)}"
        self.runs.append(run)
        who = plan.ticket.producer_id_and_epoch
        self._world.note(f"run {run} writes as producer_id={who.producer_id} epoch={who.producer_epoch}")
        if self._ahead is None:
            return await self._run_slots(plan, run, {slot: _Share(rows) for slot, rows in self._rows_of(plan).items()})
        ledger = LedgerInMemory(PLACES)
        try:
            given = await self._give_rows(plan, run, ledger)
            shares = {slot: _Share([row for each in of for row in each.rest], of, ledger) for slot, of in given.items()}
            written = await self._run_slots(plan, run, shares)
            with ledger.of(self._ahead) as opened:
                close_places(opened, PLACES, written)
            return written
        except Exception as error:
            self._world.note(f"run {run}: {type(error).__name__}: {error}")
            raise
        finally:
            ledger.is_gone = True

    def _rows_of(self, plan: Plan) -> dict[int, list[Row]]:
        rows: dict[int, list[Row]] = {slot: [] for slot in plan.slots}
        for row in self._rows:
            rows[row.target % len(plan.slots)].append(row)
        return rows

    async def _give_rows(self, plan: Plan, run: str, ledger: LedgerInMemory) -> dict[int, list[Given]]:
        tasks = TasksAhead(
            *(self._world, run, plan, ledger, self._outcomes),
            batch_id=self._batch_id,
            trouble=self._trouble,
            patience=self._patience,
            started=self._sending_ahead.append,
        )
        try:
            return await tasks.run(self._rows, len(plan.slots))
        except BaseException:
            self.stop_attempts()
            raise

    async def _run_slots(self, plan: Plan, run: str, shares: Mapping[int, _Share]) -> list[Written]:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._task(plan, run, slot, shares[slot])) for slot in plan.slots]
        try:
            reports = await all_of(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            self.stop_attempts()
            raise
        return [written for report in reports for written in report]

    def stop_attempts(self) -> None:
        """Stop the attempts, which are not wanted any more; some go on for a while all the same."""
        for process in self._processes():
            if self._random.random() >= self._trouble.lingering:
                process.die(silently=False)

    def _processes(self) -> list[Process]:
        return [*(each.process for each in self._running), *self._sending_ahead]

    def end(self) -> None:
        """End all attempts at once."""
        for process in self._processes():
            process.die(silently=False)

    def wake(self) -> None:
        """Have attempts that stand still go on."""
        for process in self._processes():
            process.go_on()

    def _kill(self, each: Running) -> None:
        each.process.die(silently=False)

    # A task

    async def _task(self, plan: Plan, run: str, slot: int, share: _Share) -> list[Written]:
        """Do one task, by as many attempts as it takes; the report of the first to succeed."""
        chance, trouble = self._random, self._trouble
        if not share and chance.random() < 0.5:
            return []
        first = self._start(plan, run, slot, share, 0)
        dice = chance.random()
        if dice < trouble.stalls:
            self._stall(first.process)
            await asyncio.wait([first.task], timeout=chance.uniform(0.02, 0.4))
            if first.task.done():
                return self._report(first)
            return await self._done(self._start(plan, run, slot, share, 0))
        if dice < trouble.stalls + trouble.twins:
            await asyncio.sleep(chance.uniform(0, 0.01))
            return await self._either(first, self._start(plan, run, slot, share, 0))
        if dice < trouble.stalls + trouble.twins + trouble.deaths:
            self._world.loop.call_later(chance.uniform(0, 0.03), self._kill, first, context=Context())
            await asyncio.wait([first.task])
            if not first.task.cancelled():
                return self._report(first)
            return await self._done(self._start(plan, run, slot, share, chance.randrange(2)))
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

    def _start(self, plan: Plan, run: str, slot: int, share: _Share, attempt_number: int) -> Running:
        tag = f"{run}.{slot}.{len(self._running)}"
        process = Process(self._world, tag)
        chance = self._world.chance(tag)
        work = self._attempt(plan, slot, share, attempt_number, tag, process, chance)
        running = Running(tag, process, process.start(work))
        running.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._running.append(running)
        return running

    async def _attempt(
        self,
        plan: Plan,
        slot: int,
        share: _Share,
        attempt_number: int,
        tag: str,
        process: Process,
        chance: random.Random,
    ) -> list[Written]:
        cluster = cluster_of(process, self._patience, chance)
        try:
            attempt = await claim(cluster, plan, slot, attempt_number)
            try:
                if share.ledger is None:
                    return await attempt.finish(await self._write(attempt, share, tag, chance))
                for target, receipt in share.receipts:
                    attempt.note(PLACES[target], receipt)
                with Turns(share.ledger.of(process), attempt, PLACES) as turns:
                    return await turns.finish(await self._write(attempt, share, tag, chance, turns))
            finally:
                await attempt.close()
        except Exception as error:
            self._world.note(f"attempt {tag}: {type(error).__name__}")
            self._outcomes.surprises += wrong_number(tag, error)
            raise
        finally:
            await cluster.close()

    async def _write(
        self, attempt: Attempt, share: _Share, tag: str, chance: random.Random, turns: Turns | None = None
    ) -> int:
        """Write the rows of a share; how many there were, with those that were sent already."""
        rows = share.rows

        async def write(target: int) -> None:
            if turns is None:
                await attempt.write(PLACES[target], building.pop(target))
            else:
                await turns.write(target, building.pop(target))

        building: dict[int, BatchBuilder] = {}
        # Lost map output is computed again, and comes in another order.
        for row in chance.choice((rows, rows[::-1], sorted(rows, key=lambda _: chance.random()))):
            builder = building.setdefault(row.target, BatchBuilder())
            builder.append(self._world.clock.now(), None, Shown(row, self._batch_id, tag).encode(), ())
            if builder.count >= _BATCH_RECORDS:
                await write(row.target)
                await asyncio.sleep(chance.choice((0, 0, 0.003)))
        for target in list(building):
            await write(target)
        return len(rows) + sum(receipt.records for _, receipt in share.receipts)
