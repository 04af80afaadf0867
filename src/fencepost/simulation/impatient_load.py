"""A transactional producer whose user stops waiting anywhere, closes it meanwhile, and lets a database decide.

Whatever call is interrupted is made again where the producer says that it may be.  Some transactions are prepared: from
the moment in which the database has kept the text of one it is to be committed, by whichever process (KIP-939).
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from fencepost.client import Producer, TransactionAbortableError, TransactionAbortedError
from fencepost.client.errors import ClientError, ClosedError, UnsupportedByBrokerError
from fencepost.simulation.script import End, Transaction
from fencepost.simulation.surroundings import ClientProcess
from fencepost.simulation.workload import (
    Died,
    Load,
    Outcomes,
    Sent,
    commit_at_last,
    drawn,
    gave_up,
    goes_together,
    producer_of,
    send,
    send_together,
    sent_together,
)

T = TypeVar("T")

#: How many of the calls somebody waits for only so long, and of the lives end by a `close` in the middle.
_INTERRUPTED: Final = 0.25
_CLOSED_MEANWHILE: Final = 0.04
#: How many of the prepared transactions are decided for, and of those are left to the next life.
_DECIDED: Final = 0.8
_LEFT: Final = 0.3
#: What `send_many` says behind how many, where it is interrupted.
_HANDED_OVER: Final = " records were handed over."


async def produce_impatiently(process: ClientProcess, outcomes: Outcomes, stop: asyncio.Event, load: Load) -> None:
    """Write transactions of some records until told to stop, interrupting any call."""
    await _Impatient(process, outcomes, load._replace(takeovers=0)).work(stop)


class _Impatient:
    """One user, and the database that outlives each of its producers."""

    def __init__(self, process: ClientProcess, outcomes: Outcomes, load: Load) -> None:
        self._process = process
        self._world = process.world
        self._outcomes = outcomes
        self._load = load
        self._plans: random.Random = self._world.chance(process.name)
        self._chance: random.Random = self._world.chance(f"{process.name}/calls")
        """Of its own for each transaction, so that one that others are left out around is interrupted as before."""
        self._number = 0
        self._stop = asyncio.Event()
        self._kept = ""
        """The text of the transaction that the database decided for last."""
        self._decided = ""
        """The name of that transaction."""
        self._leaving: asyncio.Task[None] | None = None

    async def work(self, stop: asyncio.Event) -> None:
        self._stop = stop
        while not stop.is_set():
            await self._live()
        while self._kept and not await self._finds_out():
            self._number += 1
        await commit_at_last(self._process, self._number, self._outcomes, self._load)

    async def _live(self) -> None:
        """Work with one producer, from its start to its close."""
        world, name, stop = self._world, self._process.name, self._stop
        producer = self._producer()
        try:
            await self._take_over(producer)
            while not stop.is_set():
                chance = partial(drawn, world, self._number, self._plans, self._load)
                planned = world.prompter.transaction(name, chance)
                if planned is None:
                    await stop.wait()
                    break
                await world.until(planned.time)
                self._number = planned.number + 1
                self._chance = world.chance(f"{name}/calls/{planned.number}")
                await self._transaction(producer, planned)
        except Died:
            await producer.abandon()
        except ClosedError:
            assert self._leaving is not None, "somebody closed it"
        except ClientError as error:
            gave_up(world, name, error, self._outcomes)
        finally:
            self._number += 1
        if self._leaving is not None:
            await self._leaving
            self._leaving = None
        await producer.close()

    async def _finds_out(self) -> bool:
        """Complete the transaction that was decided for, without interruptions; whether that succeeded."""
        producer = self._producer()
        try:
            await self._complete(producer)
        except ClientError as error:
            gave_up(self._world, self._process.name, error, self._outcomes)
            return False
        finally:
            await producer.close()
        return True

    def _producer(self) -> Producer:
        return producer_of(self._process, self._number, self._load, two_phase=self._load.two_phase)

    async def _take_over(self, producer: Producer) -> None:
        await self._again(producer.start)
        keeps = self._load.two_phase and self._chance.random() < 0.5
        if not keeps:
            await self._complete(producer)
        await self._again(partial(producer.init_transactions, keep_prepared=keeps))
        if keeps:
            await self._complete(producer)

    async def _complete(self, producer: Producer) -> None:
        """Complete the transaction that was decided for with this producer, as the next process does."""
        try:
            is_committed = await self._again(partial(producer.complete_transaction, self._kept))
        except TransactionAbortedError as error:
            self._is_aborted(self._decided, error)
            self._kept = ""
            return
        if is_committed:
            self._is_committed(self._decided)

    # One transaction

    async def _transaction(self, producer: Producer, planned: Transaction) -> None:
        tag = f"{self._process.name}-{planned.number}"
        await self._again(producer.begin_transaction)
        self._outcomes.unknown[tag] = []
        if self._chance.random() < _CLOSED_MEANWHILE:
            self._leaving = asyncio.get_running_loop().create_task(self._leave(producer))
        try:
            await self._write(producer, tag, planned)
            await self._end(producer, tag, planned)
        except TransactionAbortableError as error:
            self._world.note(f"{tag} has failed: {error}")
            await self._again(producer.abort_transaction)
            self._is_aborted(tag, error)

    async def _leave(self, producer: Producer) -> None:
        """Close a producer after a moment, whatever it is doing."""
        await asyncio.sleep(self._chance.expovariate(50))
        self._world.note(f"{self._process.name} is closed")
        await producer.close()

    async def _write(self, producer: Producer, tag: str, planned: Transaction) -> None:
        records = self._outcomes.unknown[tag]
        if goes_together(self._world, tag, self._load):
            for each in sent_together(tag, planned, self._load.shape):
                records += each[: await self._together(producer, each)]
        else:
            await self._one_by_one(producer, tag, planned)
        if planned.position:
            self._outcomes.positions[tag] = planned.number
            at, group = self._world.cluster.position, self._world.cluster.name_of(self._process.name)
            try:
                await self._once(partial(producer.send_offsets_to_transaction, {at: planned.number}, group))
            except TimeoutError as error:
                if isinstance(error, ClientError):
                    raise
                self._world.note(f"{tag} waits for its position no longer")

    async def _together(self, producer: Producer, sent: Sequence[Sent]) -> int:
        """Hand records over in one call that may be interrupted; how many were, as the producer says."""
        try:
            await self._once(partial(send_together, producer, sent, self._load.shape))
        except TimeoutError as error:
            if isinstance(error, ClientError):
                raise
            told = [note for note in getattr(error.__cause__, "__notes__", ()) if note.endswith(_HANDED_OVER)]
            return int(told[0].removesuffix(_HANDED_OVER)) if told else 0
        return len(sent)

    async def _one_by_one(self, producer: Producer, tag: str, planned: Transaction) -> None:
        records = self._outcomes.unknown[tag]
        for n, (topic, partition, pause) in enumerate(planned.records):
            sent = Sent(topic, partition, f"{tag}-{n}")
            try:
                await self._once(partial(send, producer, sent, self._load.shape))
            except TimeoutError as error:
                if isinstance(error, ClientError):
                    raise
                continue  # it was not handed over
            records.append(sent)
            if pause:
                await asyncio.sleep(pause)

    async def _end(self, producer: Producer, tag: str, planned: Transaction) -> None:
        prepares = self._load.prepares and self._chance.random() < 0.6
        if prepares and planned.end is not End.DIES:
            try:
                prepared = str(await self._again(producer.prepare_transaction))
            except UnsupportedByBrokerError as error:
                raise TransactionAbortableError(str(error)) from error
            if self._chance.random() < _DECIDED:
                await self._decided_for(producer, tag, prepared)
                return
        if planned.end is End.DIES:
            self._is_aborted(tag)
            raise Died
        if prepares or planned.end is End.ABORTS:
            await self._again(producer.abort_transaction)
            self._is_aborted(tag)
        else:
            await self._again(producer.commit_transaction)
            self._is_committed(tag)

    async def _decided_for(self, producer: Producer, tag: str, prepared: str) -> None:
        """Note that the database has committed, together with the text.  Raises Died where the producer ends then."""
        self._world.note(f"{tag} is decided for")
        self._kept, self._decided = prepared, tag
        if self._load.two_phase or not prepared:
            self._is_committed(tag)
        if self._chance.random() < _LEFT:
            raise Died
        if self._chance.random() < 0.5:
            await self._again(producer.commit_transaction)
        elif not await self._again(partial(producer.complete_transaction, prepared)):
            self._outcomes.surprises.append(f"{tag}, which its own process completed, is not known to be committed")
        self._is_committed(tag)

    # What is known

    def _is_committed(self, tag: str) -> None:
        if tag in self._outcomes.unknown:
            self._outcomes.committed[tag] = self._outcomes.unknown.pop(tag)
            self._world.note(f"{tag} committed")

    def _is_aborted(self, tag: str, error: ClientError | None = None) -> None:
        if tag in self._outcomes.committed:
            self._outcomes.surprises.append(f"{tag}, which was decided for, is aborted: {error}")
        elif tag in self._outcomes.unknown:
            self._outcomes.aborted[tag] = self._outcomes.unknown.pop(tag)
            self._world.note(f"{tag} aborted")

    # Impatience

    async def _once(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of the call.  Raises TimeoutError where the user stops waiting for it."""
        is_interrupted = not self._stop.is_set() and self._chance.random() < _INTERRUPTED
        async with asyncio.timeout(math.exp(self._chance.uniform(-9, -2)) if is_interrupted else None):
            return await call()

    async def _again(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of the call, which is made again as long as the user stops waiting for it."""
        while True:
            try:
                return await self._once(call)
            except TimeoutError as error:
                if isinstance(error, ClientError):
                    raise
