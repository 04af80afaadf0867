"""Producers without transactions: what they were told of each record, one by one."""

from __future__ import annotations

import asyncio

from fencepost.client import Producer, RecordMetadata
from fencepost.client.errors import ClientError
from fencepost.simulation.surroundings import ClientProcess
from fencepost.simulation.waiting import outcomes_of
from fencepost.simulation.workload import Load, Outcomes, Sent, send


async def produce_idempotently(process: ClientProcess, outcomes: Outcomes, stop: asyncio.Event, load: Load) -> None:
    """Send single records until told to stop.  To the checkers each is a transaction: there once, or not at all."""
    world, name = process.world, process.name
    topics = world.cluster.topics
    chance, number = world.chance(name), 0
    producer: Producer | None = None
    while not stop.is_set():
        if producer is None:
            producer = Producer(
                world.cluster.address,
                request_timeout_ms=load.impatience_ms,
                delivery_timeout_ms=2000,
                batch_bytes=load.batch_bytes,
                max_in_flight_requests_per_connection=load.max_in_flight,
                compression=load.compression,
                runtime=process.runtime(f"{name}-{number}"),
            )
        sent: list[tuple[str, asyncio.Future[RecordMetadata]]] = []
        try:
            await producer.start()
            for _ in range(chance.randint(1, load.most_records)):  # before anything is waited for
                tag, number = f"{name}-{number}", number + 1
                topic = chance.choice(list(topics))
                record = Sent(topic, chance.randrange(topics[topic]), f"{tag}-0")
                outcomes.unknown[tag] = [record]
                sent.append((tag, await send(producer, record, load.shape)))
        except ClientError as error:
            world.note(f"{name} gives up: {type(error).__name__}")
            await producer.abandon()
            producer = None
        for (tag, _), told in zip(sent, await outcomes_of(*(f for _, f in sent)), strict=True):
            if not isinstance(told, BaseException):
                outcomes.committed[tag] = outcomes.unknown.pop(tag)
            else:
                world.note(f"{tag} is in doubt: {type(told).__name__}")
        await asyncio.sleep(chance.uniform(0, 0.02 + 2 * load.pause))
    if producer is not None:
        await producer.close()
