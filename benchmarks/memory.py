"""Memory of a broker over a long transactional run: is it flat?"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from benchmarks.fencepost_node import fencepost_node, resident_megabytes
from fencepost.client import Admin, Producer

PRODUCERS = 4
TOPIC = "memory"


async def work(bootstrap: str, name: str, end: float) -> int:
    """Transactions of five records, one in ten aborted, until the time is over; how many."""
    count = 0
    async with Producer(bootstrap, transactional_id=name) as producer:
        await producer.init_transactions()
        while time.monotonic() < end:
            await producer.begin_transaction()
            for number in range(5):
                await producer.send(TOPIC, bytes(200), key=b"%d" % number)
            await (producer.abort_transaction() if count % 10 == 0 else producer.commit_transaction())
            count += 1
    return count


async def run(bootstrap: str, process_id: int, minutes: float) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions=4)
    start = time.monotonic()
    end = start + minutes * 60
    tasks = [asyncio.create_task(work(bootstrap, f"memory-{n}", end)) for n in range(PRODUCERS)]
    samples: list[tuple[float, float]] = []
    while time.monotonic() < end:
        await asyncio.sleep(5)
        samples.append((time.monotonic() - start, resident_megabytes(process_id)))
        if len(samples) % 6 == 0:
            print(f"  {samples[-1][0] / 60:5.1f} min  {samples[-1][1]:6.1f} MB", flush=True)
    done = sum(await asyncio.gather(*tasks))
    half = len(samples) // 2
    first, second = (statistics.median(mb for _, mb in part) for part in (samples[:half], samples[half:]))
    print(f"{done} transactions; median memory {first:.1f} MB in the first half, {second:.1f} MB in the second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    with fencepost_node() as (bootstrap, process_id, _):
        print(f"{resident_megabytes(process_id):.1f} MB at rest", flush=True)
        asyncio.run(run(bootstrap, process_id, options.minutes))


if __name__ == "__main__":
    main()
