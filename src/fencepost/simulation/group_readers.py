"""Readers without a group, that note what they are shown beside the members of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fencepost.client import Consumer
from fencepost.client.errors import DamagedRecordsError
from fencepost.client.records import ConsumerRecord
from fencepost.simulation.group_load import OPTIONS, Scene, incarnation, may_be_damaged, timed
from fencepost.simulation.group_notes import Read
from fencepost.simulation.processes import Process
from fencepost.simulation.taking import take
from fencepost.simulation.world import ADDRESS


async def _polled(scene: Scene, process: Process, consumer: Consumer, *, batches: bool) -> list[ConsumerRecord]:
    """The records of one poll; none, after a tenth of a second, where they may be, and are, damaged."""
    try:
        return (await timed(scene, process, "poll", take(consumer, 200, batches=batches))).records
    except DamagedRecordsError as damaged:
        if not may_be_damaged(scene):
            raise
        scene.world.note(f"{process.name} cannot read: {damaged}")
        await asyncio.sleep(0.1)
        return []


async def read(scene: Scene, name: str, topics: Sequence[str], isolation_level: str, *, batches: bool = False) -> None:
    """Read from the beginning on, while all goes on, and note what is shown."""
    process = Process(scene.world, name)
    consumer = Consumer(
        *topics,
        bootstrap_servers=ADDRESS,
        isolation_level=isolation_level,
        runtime=process.runtime(),
        **OPTIONS,
    )

    async def work() -> None:
        while not scene.over.is_set():
            for record in await _polled(scene, process, consumer, batches=batches):
                value = (record.value or b"").decode()
                place = incarnation(record, value)
                scene.sights.note(record, place)
                scene.notes.read.append(Read(name, place, record.offset, value))
                scene.world.note(f"{name} reads {record.topic}-{record.partition} {record.offset} {value}")
        await timed(scene, process, "close", consumer.close())

    await process.start(work())
