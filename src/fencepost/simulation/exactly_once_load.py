"""Members of a group that read, transform and write with `ExactlyOnce`, and are interrupted wherever they are."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Final

from fencepost.client import ExactlyOnce, OutcomeUnknownError, TopicPartition, Transaction, TransactionAbortableError
from fencepost.client.errors import ClientError, CommitInDoubtError
from fencepost.client.records import ConsumerRecord
from fencepost.simulation.consume_transform_produce import Transformer
from fencepost.simulation.group_load import POLLED, timed
from fencepost.simulation.group_notes import Stored

END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
#: Milliseconds for which a loop is patient.
RETRY_TIMEOUT_MS: Final = 1000


class BadRecord(Exception):
    """An error raised on purpose by the code of a user."""


class Looper(Transformer):
    """A member that answers each record by one of the output, with `ExactlyOnce`."""

    MAX_BLOCK_MS = 300

    async def _work(self) -> None:
        loop = self._make_loop()
        while not self.leave.is_set():
            try:
                await self._go_on(loop)
            except (
                BadRecord,
                TimeoutError,
                TransactionAbortableError,
                OutcomeUnknownError,
                CommitInDoubtError,
            ) as error:
                self._scene.world.note(f"{self._process.name} is told {error!r}")
                if isinstance(error, ClientError):
                    dice = self._chance.random()
                    if dice < 0.3:
                        return
                    if dice < 0.6 or isinstance(error, CommitInDoubtError):
                        await self.replace_producer()
                        loop = self._make_loop()

    def _make_loop(self) -> ExactlyOnce:
        return ExactlyOnce(
            self.consumer,
            self.producer,
            max_records=self._chance.choice(POLLED),
            linger_ms=self._chance.choice([0, 0, 20, 200]),
            retry_timeout_ms=RETRY_TIMEOUT_MS,
        )

    async def _go_on(self, loop: ExactlyOnce) -> None:
        """Transform the records of one transaction.  Raises TimeoutError if none come in time."""
        records: Sequence[ConsumerRecord] = ()
        try:
            async with asyncio.timeout(self._chance.uniform(0.01, 1)):
                transaction = await timed(self._scene, self._process, "next", anext(loop))
            records = transaction.records
        finally:
            self.note_owned(records)
        for record in records:
            self.note_processed(record)
        try:
            await timed(self._scene, self._process, "transaction", self._transform(transaction))
        finally:
            if not transaction.committed:
                for record in records:
                    self.note_moved(TopicPartition(record.topic, record.partition))

    def _count_good(self, records: Sequence[ConsumerRecord]) -> int:
        """The number of the first records that are written: now and then fewer than all."""
        if self._scene.calm.is_set() or self._chance.random() > 0.05:
            return len(records)
        return self._chance.randrange(len(records))

    def _have_bad_luck(self) -> None:
        """Now and then lose the connections, or be cut off, at the end of a block."""
        dice = self._chance.random()
        if dice < 0.05:
            self._process.lose_connections()
        elif dice < 0.15:
            # Its commit is carried out, or its positions are, and it is not told for a while.
            api = self._chance.choice([END_TXN, END_TXN, TXN_OFFSET_COMMIT])
            self._process.cut_off_after(api, math.exp(self._chance.uniform(-3, 1)))

    async def _transform(self, transaction: Transaction) -> None:
        member, records, begun = self.membership(), transaction.records, self._scene.now
        places = dict.fromkeys(TopicPartition(each.topic, each.partition) for each in records)
        positions = {at: self.consumer.position(at) for at in places}
        try:
            async with self._patience(), transaction:
                good = self._count_good(records)
                await self._write(records[:good], transaction.send)
                if good < len(records):
                    raise BadRecord
                if not self._scene.calm.is_set():
                    self._have_bad_luck()
                begun = self._scene.now
        finally:
            if transaction.committed:
                self._scene.notes.stored.append(Stored(begun, self._process.name, member, positions))
        if transaction.committed and self._chance.random() < 0.3:
            await self._look_again(member, positions)
