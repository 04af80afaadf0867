"""Readers in commit order, each in many lives: the next one goes on from where the last one stood.

The places are kept beside what was shown, as an application keeps them with its output.  So all that the lives of a
reader were shown is what the log holds, each record once, in the order in which it was committed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from fencepost.client import Consumer, OffsetAndMetadata
from fencepost.client.errors import ClientError
from fencepost.log.storage import Storage
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.transactions.committed_order import out_of_committed_order
from fencepost.simulation.checkers.transactions.shown_once import not_shown_once
from fencepost.simulation.checkers.transactions.torn_apart import torn_apart
from fencepost.simulation.committed_order import in_committed_order
from fencepost.simulation.group_notes import read_truth
from fencepost.simulation.processes import Process
from fencepost.simulation.surroundings import TOPICS
from fencepost.simulation.waiting import all_of
from fencepost.simulation.world import ADDRESS, World

_POLLED: Final = (1, 3, 20, 500)
"""How many records a reader takes at once in one life, at most."""
_PAUSES: Final = (0, 0.01)
"""Seconds that it takes for them, at most: who is slow ends in the middle of something."""
_DIES: Final = 0.3
"""How many lives end without a word."""


@dataclass
class Reader:
    """A reader in all its lives: what it was shown, and the offsets at which the last life stood."""

    shown: dict[TopicPartition, list[str]]
    stood: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)


class OrderedReaders:
    """Readers of TOPICS (inhabitants.Inhabitants).  `exact`: nothing is deleted there, and nothing compacted."""

    def __init__(self, world: World, count: int, *, exact: bool) -> None:
        self._world = world
        self._exact = exact
        self._places = [TopicPartition(topic, n) for topic, partitions in TOPICS.items() for n in range(partitions)]
        self.readers = [Reader({at: [] for at in self._places}) for _ in range(count)]
        self._calm = asyncio.Event()
        self._over = asyncio.Event()
        self._work: list[asyncio.Task[list[str]]] = []

    async def prepare(self) -> None:
        """Do nothing: the topics are made by those who write to them."""

    def begin(self) -> None:
        self._work = [self._world.loop.create_task(self._live(n)) for n in range(len(self.readers))]

    def calm_down(self) -> None:
        self._calm.set()

    async def rest(self) -> list[str]:
        """Let the readers come to the end of every partition; who does not, and what they were told."""
        self._calm.set()
        give_up = self._world.loop.time() + self._world.patience
        while (left := await self._left()) and self._world.loop.time() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        self._over.set()
        return left + [told for tellings in await all_of(*self._work) for told in tellings]

    async def judge(self) -> list[str]:
        assert self._world.storage is not None
        faults: list[str] = []
        for number, reader in enumerate(self.readers):
            faults += [f"ordered-{number}: {fault}" for fault in self._judge(reader, self._world.storage)]
        return faults

    def _judge(self, reader: Reader, storage: Storage) -> list[str]:
        if self._exact:
            committed = in_committed_order(storage, self._places)
            return torn_apart(reader.shown) + out_of_committed_order(reader.shown, committed)
        truth = read_truth(storage, tuple(TOPICS))
        left = {at: [record.value for record in truth.committed(at)] for at in self._places}
        return torn_apart(reader.shown) + not_shown_once(reader.shown, left)

    async def _left(self) -> list[str]:
        """The partitions that a reader has not read to the end, in sentences."""
        ends = await self._world.ends()
        return [
            f"ordered-{number} stands at {reader.stood.get(at)} of {at.topic}-{at.partition}, which ends at {end}"
            for number, reader in enumerate(self.readers)
            for at, end in ends.items()
            if end and reader.stood.get(at, OffsetAndMetadata(0)).offset < end
        ]

    async def _live(self, number: int) -> list[str]:
        """Have a reader live one life after the other; the errors that none should have met, in sentences."""
        world, reader, lives, told = self._world, self.readers[number], 0, list[str]()
        chance = world.chance(f"ordered-{number}")
        while not self._over.is_set():
            lives += 1
            process = Process(world, f"ordered-{number}.{lives}")
            leave = asyncio.Event()
            task = process.start(self._read(process, reader, leave))
            pause = asyncio.ensure_future(self._over.wait() if self._calm.is_set() else self._calm.wait())
            await asyncio.wait((task, pause), timeout=chance.expovariate(1 / 0.5), return_when=asyncio.FIRST_COMPLETED)
            pause.cancel()
            if not self._calm.is_set() and chance.random() < _DIES:
                process.die(silently=chance.random() < 0.5)
                continue
            leave.set()
            await asyncio.wait((task,))
            if not task.cancelled() and (error := task.exception()) is not None:
                world.note(f"{process.name} gives up: {error!r}")
                if not isinstance(error, ClientError):
                    told.append(f"{process.name} ended with {error!r}")
        return told

    async def _read(self, process: Process, reader: Reader, leave: asyncio.Event) -> None:
        chance = process.chance("reader")
        most, pause = chance.choice(_POLLED), chance.choice(_PAUSES)
        async with Consumer(
            bootstrap_servers=ADDRESS,
            delivery="commit_order",
            runtime=process.runtime(),
            fetch_max_wait_ms=20,
            request_timeout_ms=400,
            max_block_ms=4000,
        ) as consumer:
            consumer.assign(self._places)
            for at, position in reader.stood.items():
                consumer.seek(at, position)
            while not leave.is_set():
                records = await consumer.poll(chance.uniform(0, 50), max_records=most)
                for record in records:
                    value = (record.value or b"").decode()
                    reader.shown[TopicPartition(record.topic, record.partition)].append(value)
                    self._world.note(f"{process.name} has {record.topic}-{record.partition} {record.offset} {value}")
                reader.stood |= consumer.next_offsets()
                if not self._calm.is_set():
                    await asyncio.sleep(chance.uniform(0, pause))
