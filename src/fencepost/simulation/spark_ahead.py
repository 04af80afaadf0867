"""Tasks that give a write its rows, and send some of them ahead by turns, several at once.

They run the code of real ones (spark.ahead), each attempt as a process with the ledger open.  One dies in the middle of
a turn, or between two; one stands still and wakes up when the batch is committed, or the next one begun; two give the
same rows, and each slot takes what the one or the other hands on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from random import Random
from typing import Final, NamedTuple

from fencepost.protocol.records import BatchBuilder
from fencepost.simulation.ledger_in_memory import LedgerInMemory
from fencepost.simulation.micro_batches import PLACES, DriverOutcomes, Row, Shown
from fencepost.simulation.processes import Process
from fencepost.simulation.spark_trouble import Patience, TaskTrouble, cluster_of
from fencepost.simulation.waiting import all_of
from fencepost.simulation.world import World
from fencepost.spark.ahead import Turning
from fencepost.spark.attempt import Plan, Receipt, Sending

_MOST_TASKS: Final = 4
#: Bytes that wait, from which on a task does: so few that one does.
_FEW_BYTES: Final = 200
_REST: Final = 1_000_000
"""Rank of a row that was not sent ahead: behind those that were, in any order."""


class Given(NamedTuple):
    """The result of an attempt: receipts for what it sent, by place, and rows that slots are to write."""

    tag: str
    receipts: Sequence[tuple[int, Receipt]]
    rest: Sequence[Row]


class GivenAttempt(NamedTuple):
    """An attempt that was started."""

    process: Process
    task: asyncio.Future[Given]


class TasksAhead:
    """The tasks of one run that give the rows.  `started` is called for each attempt."""

    def __init__(
        self,
        world: World,
        run: str,
        plan: Plan,
        ledger: LedgerInMemory,
        outcomes: DriverOutcomes,
        *,
        batch_id: int,
        trouble: TaskTrouble,
        patience: Patience,
        started: Callable[[Process], None],
    ) -> None:
        self._world = world
        self._run = run
        self._plan = plan
        self._ledger = ledger
        self._outcomes = outcomes
        self._batch_id = batch_id
        # Of what befalls them more goes unnoticed than with slots: it must be in the middle of a turn.
        self._trouble = trouble._replace(twins=2 * trouble.twins, deaths=3 * trouble.deaths)
        self._patience = patience
        self._started = started
        self._random = world.chance(f"{run} ahead")
        self._attempts = 0

    async def run(self, rows: Sequence[Row], slots: int) -> dict[int, list[Given]]:
        """The input of each slot, by its number.  Raises what the first failed task raised."""
        chance = self._random
        count = chance.randint(1, _MOST_TASKS)
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._task(number, list(rows[number::count]))) for number in range(count)]
        try:
            found = await all_of(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            raise
        # Where output was lost between two slots the second one takes what another attempt gave.
        taken = {slot: [chance.choice(given) for given in found] for slot in range(slots)}
        self._outcomes.reported |= {each.tag: self._batch_id for given in taken.values() for each in given}
        return {slot: [_for_slot(each, slot, slots) for each in given] for slot, given in taken.items()}

    async def _task(self, number: int, rows: list[Row]) -> list[Given]:
        """Do one task, by as many attempts as it takes; what those of them that succeeded give."""
        chance, trouble = self._random, self._trouble
        dice = chance.random()
        dies = trouble.stalls + trouble.twins <= dice < trouble.stalls + trouble.twins + trouble.deaths
        if chance.random() < 2 * trouble.twins:  # one that comes late, of which nobody takes anything
            self._start(number, rows, sleeps=(chance.choice((0, 0, 0, 0.3)), chance.choice((0.02, 0.04, 0.08, 0.3, 1))))
        first = self._start(number, rows, dies=dies)
        if dice < trouble.stalls:
            happens = chance.choice((first.process.stand_still, first.process.cut_off))
            seconds = chance.choice((0.1, 1, 4)) * chance.random()
            self._world.loop.call_later(chance.uniform(0, 0.03), happens, seconds, context=Context())
            await asyncio.wait([first.task], timeout=chance.uniform(0.02, 0.4))
            return [await self._either(first, self._start(number, rows))] if not first.task.done() else _done(first)
        if dice < trouble.stalls + trouble.twins:
            await asyncio.sleep(chance.uniform(0, 0.01))
            return await self._both(first, self._start(number, rows))
        await asyncio.wait([first.task])
        if not first.task.cancelled():
            return _done(first)
        second = self._start(number, rows)
        await asyncio.wait([second.task])
        return _done(second)

    async def _either(self, one: GivenAttempt, other: GivenAttempt) -> Given:
        """The result of the first of two attempts to succeed; the other one goes on."""
        await asyncio.wait([one.task, other.task], return_when=asyncio.FIRST_COMPLETED)
        done, rest = (one, other) if one.task.done() else (other, one)
        if done.task.cancelled() or done.task.exception() is not None:
            await asyncio.wait([rest.task])
            done = rest
        return done.task.result()

    async def _both(self, one: GivenAttempt, other: GivenAttempt) -> list[Given]:
        """The results of both attempts, or of the first to succeed; the other one is then killed, or goes on."""
        given = [await self._either(one, other)]
        dice = self._random.random()
        if dice < 0.4:
            await asyncio.wait([one.task, other.task])
            given = [each.task.result() for each in (one, other) if _is_well(each)]
        elif dice < 0.7:
            for each in (one, other):
                if not each.task.done():
                    each.process.die(silently=False)
        return given

    # An attempt

    def _start(
        self, number: int, rows: list[Row], *, dies: bool = False, sleeps: tuple[float, float] = (0, 0)
    ) -> GivenAttempt:
        """Start an attempt.  `sleeps`: seconds before it opens the ledger, and after that."""
        tag = f"{self._run}.ahead{number}.{self._attempts}"
        self._attempts += 1
        process = Process(self._world, tag)
        task = process.start(self._attempt(rows, tag, process, self._world.chance(tag), dies, sleeps))
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._started(process)
        return GivenAttempt(process, task)

    async def _attempt(
        self, rows: list[Row], tag: str, process: Process, chance: Random, dies: bool, sleeps: tuple[float, float]
    ) -> Given:
        world, cluster = self._world, cluster_of(process, self._patience, chance)
        try:
            death = _Death(process, chance) if dies else None
            await asyncio.sleep(sleeps[0])
            ledger = self._ledger.of(process) if death is None else self._ledger.of(process, death.begun)
            most_waiting = chance.choice((_FEW_BYTES, 1_000_000))
            sending, codec = Sending(cluster, self._plan), self._plan.compression
            turning = Turning(sending, ledger, PLACES, codec, most_waiting=most_waiting)
            try:
                await asyncio.sleep(sleeps[1])
                return await self._give(rows, tag, turning, chance, death)
            finally:
                await turning.close()
        except Exception as error:
            world.note(f"attempt {tag}: {type(error).__name__}: {error}")
            self._outcomes.surprises += wrong_number(tag, error)
            raise
        finally:
            await cluster.close()

    async def _give(self, rows: list[Row], tag: str, turning: Turning, chance: Random, death: _Death | None) -> Given:
        """Send some rows ahead, in an order and a choice that are drawn; the receipts, and the rows that are left."""
        most, sent_ahead = chance.choice((1, 1, 2)), chance.choice((0, 0.5, 1, 1))
        building: dict[int, BatchBuilder] = {}
        waiting: dict[int, list[Row]] = {}
        order: dict[Row, int] = {}

        async def put(target: int) -> None:
            order.update({row: rank for rank, row in enumerate(waiting.pop(target), len(order))})
            await turning.put(target, building.pop(target))
            if death is not None:
                await death.sent(turning)

        for row in chance.choice((rows, rows[::-1], sorted(rows, key=lambda _: chance.random()))):
            builder = building.setdefault(row.target, BatchBuilder())
            builder.append(self._world.clock.now(), None, Shown(row, self._batch_id, tag).encode(), ())
            waiting.setdefault(row.target, []).append(row)
            if builder.count >= most and sent_ahead:
                await put(row.target)
                await asyncio.sleep(chance.choice((0, 0, 0.003, 0.02)))
                if chance.random() < 0.2:  # its turns end, and it has others
                    await turning.finish()
        for target in list(building):
            if chance.random() < sent_ahead:
                await put(target)
        receipts = await turning.finish()
        rest = [row for left in waiting.values() for row in left]
        self._outcomes.orders[tag] = order | dict.fromkeys(rest, _REST)
        return Given(tag, receipts, rest)


def wrong_number(tag: str, error: Exception) -> list[str]:
    """A sentence if a leader refused a sequence, since who has a turn knows the next one; else none."""
    return [f"attempt {tag}: {error}"] if "OUT_OF_ORDER_SEQUENCE_NUMBER" in str(error) else []


class _Death:
    """The death of an attempt: in one of its first turns, when some of what was sent is there, or between two."""

    def __init__(self, process: Process, chance: Random) -> None:
        self._process = process
        self._after = chance.choice((1, 1, 2, 4))
        self._in_a_turn = chance.random() < 0.6
        self._in = chance.choice((0, 0.004, 0.01, 0.016))

    def begun(self) -> None:
        """Note that a turn was begun."""
        self._after -= self._in_a_turn
        if self._in_a_turn and not self._after:
            asyncio.get_running_loop().call_later(self._in, self._die, context=Context())

    async def sent(self, turning: Turning) -> None:
        """Note that another batch was given to be sent."""
        self._after -= not self._in_a_turn
        if not self._in_a_turn and not self._after:
            await turning.finish()
            asyncio.get_running_loop().call_soon(self._die, context=Context())
            await asyncio.sleep(1)

    def _die(self) -> None:
        self._process.die(silently=False)


def _is_well(each: GivenAttempt) -> bool:
    return not each.task.cancelled() and each.task.exception() is None


def _done(each: GivenAttempt) -> list[Given]:
    return [each.task.result()]


def _for_slot(given: Given, slot: int, slots: int) -> Given:
    """The part of what an attempt gives that is shuffled to a slot."""
    receipts = [(target, receipt) for target, receipt in given.receipts if target % slots == slot]
    return Given(given.tag, receipts, [row for row in given.rest if row.target % slots == slot])
