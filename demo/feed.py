"""Puts the flights into their topic, in transactions of our own producer."""

from __future__ import annotations

from rich.progress import Progress

from demo.flights import flights
from fencepost.client import Admin, Producer

PARTITIONS = {"flights": 6, "departures": 4, "carrier_delays": 1}
FLIGHTS_PER_TRANSACTION = 5000


async def make_topics(bootstrap: str, prefix: str) -> None:
    async with Admin(bootstrap) as admin:
        for name, count in PARTITIONS.items():
            await admin.create_topic(prefix + name, partitions=count)


async def produce(bootstrap: str, prefix: str, count: int, progress: Progress) -> int:
    """Produce the first `count` flights, keyed by carrier and number; how many transactions it took."""
    bar = progress.add_task("producing flights", total=count)
    transactions = 0
    async with Producer(bootstrap, transactional_id=f"{prefix}flights-feed", compression="lz4") as producer:
        await producer.init_transactions()
        rows = flights(count)
        row = next(rows, None)
        while row is not None:
            async with producer.transaction():
                sent = 0
                while row is not None and sent < FLIGHTS_PER_TRANSACTION:
                    key = f"{row.carrier}{row.number % 1000}".encode()
                    await producer.send(f"{prefix}flights", row.value, key=key)
                    sent += 1
                    row = next(rows, None)
            transactions += 1
            progress.advance(bar, sent)
    return transactions
