"""Sends batches of a task while it still puts rows into others, where all tasks are on one machine.

It takes turns with the other tasks at each topic-partition (`ledger`), in a thread of its own: so a turn ends when the
batches of that turn are acknowledged, whatever the rows take that come next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.portal import Portal
from fencepost.client.security import Security
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import TopicPartition
from fencepost.spark.attempt import Plan, PoisonedError, Receipt, Sending
from fencepost.spark.ledger import Ledger
from fencepost.spark.ledger_file import open_ledger

_WAITING: Final = 8 * 1024 * 1024
"""Bytes of batches from which on the task waits until some of them are acknowledged."""
_AT_A_TURN: Final = 4
"""Batches in one turn, at most: others wait for its end."""
_PAUSE: Final = 0.001
"""Seconds between two looks whether another task's turn has ended."""
_BEHIND: Final = 1.0
"""Seconds before a task raises PoisonedError: the task that stopped, which knows why, is to fail first."""


@dataclass(frozen=True)
class SendingAhead:
    """What goes to the tasks: called, it gives the TaskAhead of one task.  `ledger`: the path of the ledger's file."""

    bootstrap_servers: str
    security: Security
    plan: Plan
    ledger: str

    def __call__(self) -> TaskAhead:
        return TaskAhead(self)


class TaskAhead:
    """Sends the batches of one task (encoding.Ahead).  There is no connection before the first batch."""

    def __init__(self, given: SendingAhead) -> None:
        self._given = given
        self._at_work: tuple[Portal, Turning, Cluster] | None = None

    def put(self, target: int, batch: BatchBuilder) -> None:
        if self._at_work is None:
            portal = Portal("fencepost-spark-ahead")
            self._at_work = portal, *portal.call(_begin(self._given))
        portal, turning, _ = self._at_work
        portal.call(turning.put(target, batch))

    def finish(self) -> list[tuple[int, Receipt]]:
        if self._at_work is None:
            return []
        portal, turning, _ = self._at_work
        return portal.call(turning.finish())

    def close(self) -> None:
        if self._at_work is not None:
            portal, turning, cluster = self._at_work
            try:
                portal.call(_end(turning, cluster))
            finally:
                portal.close()


async def _begin(given: SendingAhead) -> tuple[Turning, Cluster]:
    from fencepost.spark.encoding import targets

    cluster = Cluster(given.bootstrap_servers, client_id="fencepost-spark-ahead", security=given.security)
    try:
        plan = given.plan
        return Turning(
            Sending(cluster, plan), open_ledger(given.ledger), targets(plan.counts), plan.compression
        ), cluster
    except BaseException:
        await cluster.close()
        raise


async def _end(turning: Turning, cluster: Cluster) -> None:
    try:
        await turning.close()
    finally:
        await cluster.close()


class Turning:
    """Sends batches of one task to each place when it is this task's turn.  `close` it."""

    def __init__(
        self,
        sending: Sending,
        ledger: Ledger,
        places: Sequence[TopicPartition],
        compression: Compression,
        *,
        most_waiting: int = _WAITING,
    ) -> None:
        self._sending = sending
        self._ledger = ledger
        self._places = places
        self._compression = compression
        self._most_waiting = most_waiting
        self._waiting: dict[int, deque[BatchBuilder]] = {}
        self._size = 0
        """Bytes of the batches that are not acknowledged."""
        self._at_work: dict[int, asyncio.Task[None]] = {}
        self._turn_ended = asyncio.Event()
        self._receipts: dict[int, Receipt] = {}
        self._records = 0
        """How many records it was given."""

    async def put(self, target: int, batch: BatchBuilder) -> None:
        """As `encoding.Ahead.put`."""
        self._waiting.setdefault(target, deque()).append(batch)
        self._size += batch.size
        self._records += batch.count
        self._look_at_what_ended()
        if target not in self._at_work:
            self._at_work[target] = work = asyncio.ensure_future(self._send(target))
            work.add_done_callback(lambda _: self._turn_ended.set())
        while self._size > self._most_waiting:
            await self._until_a_turn_ends()

    async def finish(self) -> list[tuple[int, Receipt]]:
        """As `encoding.Ahead.finish`."""
        while self._at_work:
            await self._until_a_turn_ends()
        sent = sum(receipt.records for receipt in self._receipts.values())
        assert sent == self._records, f"of {self._records} records that are to be sent ahead {sent} are acknowledged"
        return list(self._receipts.items())

    async def close(self) -> None:
        """Send nothing more, end the turns, and close what sends and the ledger."""
        for each in self._at_work.values():
            each.cancel()
        await asyncio.gather(*self._at_work.values(), return_exceptions=True)
        await self._sending.close()
        self._ledger.close()

    async def _until_a_turn_ends(self) -> None:
        await self._turn_ended.wait()
        self._turn_ended.clear()
        self._look_at_what_ended()

    def _look_at_what_ended(self) -> None:
        for target, work in list(self._at_work.items()):
            if work.done():
                work.result()
                del self._at_work[target]

    async def _send(self, target: int) -> None:
        """Send the batches that wait for a target, in turns, until none does.  Raises PoisonedError, and as `put`."""
        try:
            while self._waiting[target]:
                had_turn = await self._take_turn(target)
                await asyncio.sleep(0 if had_turn else _PAUSE)
        except PoisonedError:
            await asyncio.sleep(_BEHIND)
            raise

    async def _take_turn(self, target: int) -> bool:
        """Send some of the batches that wait for a target; False: it is another task's turn."""
        with self._ledger.turn(target) as mine:
            if mine is None:
                return False
            mine.begin()
            self._sending.go_on(self._places[target], mine.records)
            sent = await self._send_some(target, self._waiting[target])
            mine.settle(sent.records)
            self._receipts[target] = sent | self._receipts[target] if target in self._receipts else sent
            self._size -= sent.size
            self._turn_ended.set()
        return True

    async def _send_some(self, target: int, waiting: deque[BatchBuilder]) -> Receipt:
        at = self._places[target]
        for _ in range(min(len(waiting), _AT_A_TURN)):
            batch = waiting.popleft()
            if self._compression is not Compression.NONE:
                from fencepost.spark.encoding import together  # and with it Arrow, which the simulation goes without

                batch = together([b"".join(batch.parts())], self._compression)
            await self._sending.write(at, batch)
        return await self._sending.acknowledged(at)
