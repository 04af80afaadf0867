"""Loops that read, transform and write, with output and positions of the input in one transaction (KIP-447)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from fencepost.client import Producer, TopicPartition, TransactionAbortableError
from fencepost.client.errors import (
    ClientError,
    CommitInDoubtError,
    ConnectionLostError,
    DamagedRecordsError,
    OutcomeUnknownError,
    TimedOutError,
)
from fencepost.client.records import ConsumerRecord
from fencepost.simulation.group_load import REPLACED, SESSION_MS, Group, Member, Scene, may_be_damaged, timed
from fencepost.simulation.group_notes import Found, Membership, Stored
from fencepost.simulation.processes import Process
from fencepost.simulation.world import ADDRESS

OUTPUT_PARTITIONS: Final = 2
TRANSACTION_TIMEOUT_MS: Final = 1500


class Transformer(Member):
    """A member of a group that answers each record by one record of the output, exactly once."""

    MAX_BLOCK_MS = 2000
    """Milliseconds that a call of its producer may take."""

    def __init__(self, scene: Scene, process: Process, group: Group, seat: int) -> None:
        super().__init__(scene, process, group, seat)
        self.producer = self._make_producer()

    async def replace_producer(self) -> None:
        """Have another producer with the same id, as if the first had died."""
        await self.producer.abandon()
        self.producer = self._make_producer()

    def _make_producer(self) -> Producer:
        return Producer(
            ADDRESS,
            transactional_id=f"{self._group.name}-{self._seat}",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=400,
            delivery_timeout_ms=700,
            max_block_ms=self.MAX_BLOCK_MS,
            runtime=self._process.runtime(),
        )

    async def work(self) -> None:
        """Work until it is to leave.  Raises ClientError where only a new process helps."""
        try:
            await self._work()
        except (TimedOutError, ConnectionLostError, CommitInDoubtError, *REPLACED) as error:
            self._scene.world.note(f"{self._process.name} ends: {type(error).__name__}: {error}")
            if isinstance(error, REPLACED) and self._scene.calm.is_set():
                self._scene.notes.fenced.setdefault((self._group.name, self._seat), self._scene.now)
        except ClientError as error:
            if isinstance(error, DamagedRecordsError) and may_be_damaged(self._scene):
                raise
            self._scene.notes.surprises.append(f"{self._process.name} is told {type(error).__name__}: {error}")
            raise
        finally:
            await timed(self._scene, self._process, "close", self.producer.close())
            await timed(self._scene, self._process, "close", self.consumer.close())

    async def _work(self) -> None:
        await timed(self._scene, self._process, "init_transactions", self.producer.init_transactions())
        while not self.leave.is_set():
            try:
                records = await self.poll()
            except TimeoutError:
                continue
            if records:
                for record in records:
                    self.note_processed(record)
                await self._transact(records)

    async def _transact(self, records: list[ConsumerRecord]) -> None:
        """Answer the records in one transaction; where it is aborted, go back to the first."""
        member, begun = self.membership(), self._scene.now
        positions = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
        await self.producer.begin_transaction()
        try:
            await self._write(records, self.producer.send)
            begun = self._scene.now
            async with self._patience():
                sending = self.producer.send_offsets_to_transaction(positions, self.consumer.group_metadata())
                await timed(self._scene, self._process, "send_offsets_to_transaction", sending)
            await self._dawdle()
            if not self._scene.calm.is_set() and self._chance.random() < 0.1:
                await self._abort(records)
                return
            await self._commit_transaction()
        except (TransactionAbortableError, TimeoutError, TimedOutError) as error:
            self._scene.world.note(f"{self._process.name} aborts: {error!r}")
            if isinstance(error, TimeoutError) and self._chance.random() < 0.5:
                self._process.lose_connections()
            await self._abort(records)
        else:
            self._scene.notes.stored.append(Stored(begun, self._process.name, member, positions))
            if self._chance.random() < 0.3:
                await self._look_again(member, positions)

    async def _look_again(self, member: Membership, positions: Mapping[TopicPartition, int]) -> None:
        """Note the stored offsets, if the generation still lasts: nobody else stores any for what this member has."""
        try:
            committed = await timed(self._scene, self._process, "committed", self.consumer.committed(positions))
        except TimedOutError:
            return
        broker = self._scene.world.broker
        group = None if broker is None else broker.node.groups.known(member.group)
        if getattr(group, "generation_id", None) == member.generation:
            found = {at: None if position is None else position.offset for at, position in committed.items()}
            self._scene.notes.found.append(Found(self._process.name, positions, found))

    def _patience(self) -> asyncio.Timeout:
        """A time-out for a call: none, or a short one, which is mostly enough where nothing is late."""
        waits = self._scene.calm.is_set() or self._chance.random() < 0.5
        return asyncio.timeout(None if waits else self._chance.uniform(0.002, 0.1))

    async def _dawdle(self) -> None:
        dice = self._chance.random()
        if self._scene.calm.is_set() or dice > 0.15:
            return
        if dice < 0.05:
            self._process.stand_still(self._chance.uniform(SESSION_MS, TRANSACTION_TIMEOUT_MS) / 1000)
        await asyncio.sleep(self._chance.uniform(0, 2) if dice > 0.12 else self._chance.uniform(0, 0.05))

    async def _write(self, records: Sequence[ConsumerRecord], send: Callable[..., Awaitable[object]]) -> None:
        for record in records:
            value = f"{record.topic}/{record.partition}/{record.offset}/{(record.value or b'').decode()}"
            partition = (record.partition + len(record.topic)) % OUTPUT_PARTITIONS
            await send(self._group.output, value.encode(), partition=partition)
        await self._dawdle()

    async def _commit_transaction(self) -> None:
        """Commit, and call again until the outcome is known."""
        while True:
            try:
                async with self._patience():
                    await timed(self._scene, self._process, "commit", self.producer.commit_transaction())
                return
            except (OutcomeUnknownError, TimeoutError) as error:
                self._scene.world.note(f"{self._process.name} commits again: {error!r}")

    async def _abort(self, records: Sequence[ConsumerRecord]) -> None:
        while True:
            try:
                async with self._patience():
                    await timed(self._scene, self._process, "abort", self.producer.abort_transaction())
                break
            except (OutcomeUnknownError, TimeoutError) as error:
                self._scene.world.note(f"{self._process.name} aborts again: {error!r}")
        await self._rewind(records)

    async def _rewind(self, records: Sequence[ConsumerRecord]) -> None:
        """Seek to the committed offsets, or to the first of the records: the same, while the partition is ours."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        if self._chance.random() < 0.5:
            try:
                committed = await timed(self._scene, self._process, "committed", self.consumer.committed(first))
            except TimedOutError:
                pass
            else:
                first |= {at: found.offset for at, found in committed.items() if found is not None}
        for at, offset in first.items():
            self.note_moved(at)
            if at in self.consumer.assignment():
                self.consumer.seek(at, offset)
