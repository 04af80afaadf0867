"""Applications that write micro-batches: drivers that are killed, interrupted, stand still and have successors.

Each application has a checkpoint, as Spark keeps it, and its drivers run the code of the real one (spark.driver).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientError, ProducerFencedError
from fencepost.protocol.types import NO_PRODUCER
from fencepost.simulation.micro_batches import (
    BEGINNING,
    TARGETS,
    Checkpoint,
    DriverOutcomes,
    Ends,
    rows_between,
    source_offsets,
)
from fencepost.simulation.processes import Process
from fencepost.simulation.spark_tasks import Scheduler
from fencepost.simulation.spark_trouble import Patience, TaskTrouble
from fencepost.simulation.world import ADDRESS, World
from fencepost.spark.driver import Driver, WriteFailed
from fencepost.spark.progress import Progress

_ATTEMPTS: Final = 3
_END_TXN: Final = 26
#: Rows that come to a source partition until the next batch, at most.
_MOST_ROWS: Final = 5
#: Where some are sent ahead: so many that tasks often want a turn at the same place.
_MOST_ROWS_AHEAD: Final = 12
_KEPT_COPIES: Final = 5


class DriverTrouble(NamedTuple):
    """The probability, 0 to 1, of each incident of a driver when one is drawn."""

    kills: float = 0
    """It is killed, and a successor is started."""
    interruptions: float = 0
    """Its write is interrupted, and it is used again."""
    stalls: float = 0
    """It stands still for a while; mostly a successor is started meanwhile."""
    successors: float = 0
    """A successor is started while it goes on."""
    old_copies: float = 0
    """It is killed, and the successor is started on an older copy of the checkpoint."""
    intruders: float = 0
    """Another query is started under the same application id."""
    commits: float = 0
    """It is killed, interrupted or stands still while it commits."""
    late_answers: float = 0
    """It is cut off when it has asked for the commit, about as long as it waits for an answer."""
    reuse: float = 0.5
    """A driver whose write failed is used again, not a new one."""


class Trouble(NamedTuple):
    """The probabilities of incidents of drivers and of their tasks."""

    drivers: DriverTrouble = DriverTrouble()
    tasks: TaskTrouble = TaskTrouble()


@dataclass
class Life:
    """A driver, from its start to its end."""

    name: str
    checkpoint: Checkpoint
    process: Process
    task: asyncio.Future[None] | None = None
    writing: asyncio.Task[bool] | None = None
    scheduler: Scheduler | None = None
    is_interrupted: bool = False
    had_company: bool = False
    """When it last may have taken over, another driver was there."""
    starts_seen: int = 0

    @property
    def is_over(self) -> bool:
        return self.task is not None and self.task.done()


class Application:
    """One application and its drivers, until `stop`."""

    def __init__(
        self,
        world: World,
        name: str,
        outcomes: DriverOutcomes,
        trouble: Trouble,
        patience: Patience,
        *,
        sends_ahead: bool = False,
    ) -> None:
        """`sends_ahead`: the tasks that give the rows send some of them (spark_ahead)."""
        self._world = world
        self.name = name
        self._outcomes = outcomes
        self._trouble = trouble
        self._patience = patience
        self._sends_ahead = sends_ahead
        self._random = world.chance(f"application {name}")
        self._candidates = [Checkpoint()]
        """Checkpoints that a driver may be started on: the last one that is known to be right is the last."""
        self._copies: list[Checkpoint] = []
        self._lives: list[Life] = []
        self._schedulers: list[Scheduler] = []
        self._starts = 0
        self._available = BEGINNING
        """As far as any driver has seen the source."""
        self._goal: int | None = None
        self._cluster_id = ""
        """Of the cluster that the source is in, as whoever reads it says; empty before `keep`."""

    @property
    def newest(self) -> int:
        """The newest batch that a driver was told to be committed."""
        return max(self._outcomes.committed, default=-1)

    # Life and death

    async def keep(self, cluster_id: str) -> None:
        """Have a driver run until the goal is reached, if one is set; others come and go."""
        self._cluster_id = cluster_id
        while not self._is_done():
            life = self._start(self._candidates[-1])
            while not life.is_over and await self._look_after(life):
                pass
            await asyncio.sleep(self._random.uniform(0.01, 0.1))

    def calm_down(self, more: int) -> None:
        """End all incidents; `more` batches more are to be committed."""
        self._trouble = Trouble()
        self._goal = self.newest + more
        for life in self._lives:
            life.process.go_on()
        for scheduler in self._schedulers:
            scheduler.wake()

    def _is_done(self) -> bool:
        return self._goal is not None and self.newest >= self._goal

    async def _look_after(self, life: Life) -> bool:
        """Wait for a while, then draw one incident for the driver; False once it has ended or was replaced."""
        assert life.task is not None
        await asyncio.wait([life.task], timeout=self._random.expovariate(1 / 0.15))
        trouble, dice = self._trouble.drivers, self._random.random()
        if life.is_over:
            return False
        for likelihood, happens in (
            (trouble.kills, self._kill),
            (trouble.interruptions, self._interrupt),
            (trouble.stalls, self._stall),
            (trouble.successors, self._replace),
            (trouble.old_copies, self._restore),
            (trouble.intruders, self._intrude),
        ):
            dice -= likelihood
            if dice < 0:
                self._world.note(f"{happens.__name__.strip('_')} {life.name}")
                return happens(life)
        return True

    def _kill(self, life: Life) -> bool:
        life.process.die(silently=False)
        if life.scheduler is not None:
            life.scheduler.stop_attempts()
        return False

    def _interrupt(self, life: Life) -> bool:
        if life.writing is not None and not life.writing.done():
            life.is_interrupted = True
            life.writing.cancel()
        return True

    def _stall(self, life: Life) -> bool:
        happens = self._random.choice((life.process.stand_still, life.process.cut_off))
        happens(self._random.choice((0.1, 1, 4)) * self._random.random())
        return self._random.random() < 0.3

    def _about_to_commit(self, life: Life) -> None:
        """Perhaps have an incident befall the driver between two requests of its commit, or while one is under way."""
        if self._random.random() < self._trouble.drivers.commits:
            happens = self._random.choice((self._kill, self._interrupt, self._stall))
            self._world.note(f"{happens.__name__.strip('_')} {life.name}, which commits")
            self._world.loop.call_later(self._random.uniform(0, 0.01), happens, life, context=Context())
        elif self._random.random() < self._trouble.drivers.late_answers:
            self._world.note(f"the answer to the commit of {life.name} is late")
            seconds = self._patience.patience_ms / 1000 * self._random.uniform(0.5, 2)
            life.process.cut_off_after(_END_TXN, seconds)

    def _replace(self, life: Life) -> bool:  # noqa: ARG002 - it goes on
        return False

    def _restore(self, life: Life) -> bool:
        self._kill(life)
        if self._copies:
            self._candidates.append(self._random.choice(self._copies).copy())
        return False

    def _intrude(self, life: Life) -> bool:  # noqa: ARG002 - it goes on
        if self.newest >= 0:
            self._start(Checkpoint(), self._intruder)
        return True

    def stop(self) -> None:
        """Kill all drivers and attempts."""
        for life in self._lives:
            self._kill(life)
        for scheduler in self._schedulers:
            scheduler.end()

    # A driver

    def _start(self, checkpoint: Checkpoint, run: Callable[[Life], object] | None = None) -> Life:
        name = f"{self.name}{len(self._lives)}"
        life = Life(name, checkpoint, Process(self._world, name))
        self._copies = [*self._copies, checkpoint.copy()][-_KEPT_COPIES:]
        self._lives.append(life)
        work = self._live(life) if run is None else self._intruder(life)
        life.task = life.process.start(work)
        self._world.note(f"driver {life.name} starts after batch {checkpoint.done}")
        return life

    def _driver(self, life: Life) -> tuple[Cluster, Driver]:
        patience = self._patience
        cluster = Cluster(
            ADDRESS,
            client_id=life.name,
            runtime=life.process.runtime(),
            request_timeout_ms=patience.request_timeout_ms,
            patience_ms=patience.patience_ms,
        )
        driver = Driver(
            cluster,
            self.name,
            list(TARGETS),
            transaction_timeout_ms=patience.transaction_timeout_ms,
            attempts=_ATTEMPTS,
            delivery_timeout_ms=patience.patience_ms,
        )
        return cluster, driver

    async def _live(self, life: Life) -> None:
        cluster, driver = self._driver(life)
        self._may_take_over(life)
        try:
            while not self._is_done() and await self._batch(life, driver):
                pass
        finally:
            if life.writing is not None:
                life.writing.cancel()
            await cluster.close()

    def _may_take_over(self, life: Life) -> None:
        self._starts += 1
        life.starts_seen = self._starts
        life.had_company = self._has_company(life)

    def _has_company(self, life: Life) -> bool:
        return any(other is not life and not other.is_over for other in self._lives)

    async def _batch(self, life: Life, driver: Driver) -> bool:
        """Write the next micro-batch; False if this driver is not to go on."""
        checkpoint, outcomes = life.checkpoint, self._outcomes
        number = checkpoint.done + 1
        if number not in checkpoint.ends:
            checkpoint.ends[number] = self._grown(checkpoint.start_of(number))
        start, end = checkpoint.start_of(number), checkpoint.ends[number]
        rows = list(rows_between(self.name, start, end))
        scheduler = Scheduler(
            self._world,
            f"{life.name}.{len(self._schedulers)}",
            outcomes,
            batch_id=number,
            rows=rows,
            trouble=self._trouble.tasks,
            patience=self._patience,
            written=partial(self._about_to_commit, life),
            ahead=life.process if self._sends_ahead else None,
        )
        life.scheduler = scheduler
        self._schedulers.append(scheduler)
        starts = source_offsets(start, self._cluster_id) if number else []
        record = Progress.of("query", number, source_offsets(end, self._cluster_id), starts)
        work = driver.write(record, self._random.randint(1, 4), False, scheduler)
        life.writing = asyncio.get_running_loop().create_task(work)
        try:
            wrote = await life.writing
        except asyncio.CancelledError:
            if not life.is_interrupted:
                raise
            life.is_interrupted = False
            scheduler.stop_attempts()
            self._may_take_over(life)
            return True
        except ProducerFencedError:
            self._world.note(f"driver {life.name} is fenced")
            if not (life.had_company or self._starts != life.starts_seen or self._has_company(life)):
                outcomes.surprises.append(f"driver {life.name}, whom nobody replaced, is told that it was")
            return False
        except (WriteFailed, ClientError) as error:
            self._world.note(f"driver {life.name} batch {number}: {type(error).__name__}: {error}")
            if isinstance(error, WriteFailed):
                if not scheduler.runs:
                    return self._refused(life)
                outcomes.failed |= dict.fromkeys(scheduler.runs, number)
            self._may_take_over(life)
            return self._random.random() < self._trouble.drivers.reuse
        checkpoint.done = max(checkpoint.done, number)
        if wrote:
            outcomes.committed[number] = end
            self._prefer(checkpoint)
        else:
            outcomes.skipped.append(end)
        return True

    def _grown(self, start: Ends) -> Ends:
        """The end of a new batch: some rows after the start, or after all that were available."""
        chance = self._random
        first = start if chance.random() < 0.5 else tuple(map(max, start, self._available))
        most = _MOST_ROWS_AHEAD if self._sends_ahead else _MOST_ROWS
        end = tuple(offset + chance.randint(0, most) for offset in first)
        self._available = tuple(map(max, end, self._available))
        return end

    def _prefer(self, checkpoint: Checkpoint) -> None:
        """Note that a batch was written from this checkpoint: it is the right one now."""
        self._candidates = [each for each in self._candidates if each is not checkpoint] + [checkpoint]

    def _refused(self, life: Life) -> bool:
        if life.had_company or self._starts != life.starts_seen:
            # Its checkpoint is used by another one, too: it went on with what that has written, and has not seen.
            return False
        self._candidates = [each for each in self._candidates if each is not life.checkpoint]
        if not self._candidates:
            self._outcomes.surprises.append(f"driver {life.name} is refused, and every other was before it")
            self._candidates = [life.checkpoint]
        return False

    async def _intruder(self, life: Life) -> None:
        """Have a driver of another query try to write under this application id: it must be refused."""
        cluster, driver = self._driver(life)
        scheduler = Scheduler(
            self._world,
            life.name,
            self._outcomes,
            batch_id=0,
            rows=[],
            trouble=TaskTrouble(),
            patience=self._patience,
        )
        self._schedulers.append(scheduler)
        try:
            await driver.write(Progress.of("another query", 0, source_offsets((1, 1))), 1, False, scheduler)
            self._outcomes.surprises.append(f"driver {life.name} of another query is let in")
        except (WriteFailed, ClientError) as error:
            self._world.note(f"driver {life.name}: {type(error).__name__}: {error}")
            if driver.producer_id_and_epoch != NO_PRODUCER or not isinstance(error, WriteFailed):
                # What it is refused by was committed, and its marker on its way, when it looked: it has taken over.
                self._starts += 1
        finally:
            await cluster.close()
