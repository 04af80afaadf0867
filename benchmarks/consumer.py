"""What it takes a client to consume records of 100 bytes, beside other clients.

    python -m benchmarks.consumer --rounds 5

Every measurement is a process of its own, on one node of Fencepost (`--flush=os`) and one topic, in turn: records per
second by the clock, and processor time of the client's process per record, all its threads together, from the first
record on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as Place

from benchmarks.fencepost_node import fencepost_node
from benchmarks.measure import fresh_topic, report
from fencepost.client import Consumer, Producer, TopicPartition, blocking

_VALUE = b"x" * 100
COUNT = 1_000_000
_AT_ONCE = 100_000


async def iterating(bootstrap: str, topic: str, begin: Callable[[], None]) -> None:
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        left = COUNT
        async for _ in consumer:
            if left == COUNT:
                begin()
            left -= 1
            if not left:
                return


async def iterating_in_a_thread(bootstrap: str, topic: str, begin: Callable[[], None]) -> None:
    with blocking.Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        for left, _ in zip(range(COUNT, 0, -1), consumer, strict=False):
            if left == COUNT:
                begin()


async def polling(bootstrap: str, topic: str, begin: Callable[[], None]) -> None:
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        left = COUNT
        while left > 0:
            found = len(await consumer.poll(max_records=10_000))
            if left == COUNT and found:
                begin()
            left -= found


async def arrow(bootstrap: str, topic: str, begin: Callable[[], None]) -> None:
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        left = COUNT
        async for batch in consumer.batches():
            if left == COUNT:
                begin()
            left -= batch.to_arrow().num_rows
            if left <= 0:
                return


async def batches(bootstrap: str, topic: str, begin: Callable[[], None]) -> None:
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        left = COUNT
        async for batch in consumer.batches():
            if left == COUNT:
                begin()
            left -= len(batch.records())
            if left <= 0:
                return


async def aiokafka_iterating(bootstrap: str, topic: str, begin: Callable[[], None]) -> None:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([Place(topic, 0)])
        await consumer.seek_to_beginning()
        left = COUNT
        async for _ in consumer:
            if left == COUNT:
                begin()
            left -= 1
            if not left:
                return


async def aiokafka_many(bootstrap: str, topic: str, begin: Callable[[], None]) -> None:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([Place(topic, 0)])
        await consumer.seek_to_beginning()
        left = COUNT
        while left > 0:
            found = sum(map(len, (await consumer.getmany(timeout_ms=1000, max_records=10_000)).values()))
            if left == COUNT and found:
                begin()
            left -= found


async def confluent(bootstrap: str, topic: str, begin: Callable[[], None]) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    left = COUNT
    while left > 0:
        found = len(consumer.consume(10_000, 1))
        if left == COUNT and found:
            begin()
        left -= found
    consumer.close()


WORKS: dict[str, Callable[[str, str, Callable[[], None]], Coroutine[Any, Any, None]]] = {
    "iterate, fencepost": iterating,
    "iterate, fencepost blocking": iterating_in_a_thread,
    "iterate, aiokafka": aiokafka_iterating,
    "poll(10,000), fencepost": polling,
    "getmany(10,000), aiokafka": aiokafka_many,
    "batches, as records, fencepost": batches,
    "batches, as Arrow, fencepost": arrow,
    "consume(10,000), confluent-kafka": confluent,
}


def once(what: str, bootstrap: str, topic: str) -> None:
    """Do one of the works in this process, and print what it took."""
    begun: list[tuple[float, float]] = []
    asyncio.run(WORKS[what](bootstrap, topic, lambda: begun.append((time.perf_counter(), time.process_time()))))
    ((clock, processor),) = begun
    seconds = time.perf_counter() - clock
    report(per_second=COUNT / seconds, cpu_us=(time.process_time() - processor) / COUNT * 1e6)


async def fill(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        for _ in range(COUNT // _AT_ONCE):
            await producer.send_many(topic, [_VALUE] * _AT_ONCE, partition=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", help="do this one, and print what it took")
    parser.add_argument("--bootstrap")
    parser.add_argument("--topic")
    options = parser.parse_args()
    if options.work:
        once(options.work, options.bootstrap, options.topic)
        return
    taken: dict[str, list[dict[str, float]]] = defaultdict(list)
    with fencepost_node("os") as (bootstrap, _, _):
        topic = fresh_topic(bootstrap)
        asyncio.run(fill(bootstrap, topic))
        for _ in range(options.rounds):
            for what in WORKS:
                command = [sys.executable, "-m", "benchmarks.consumer", "--work", what, "--bootstrap", bootstrap]
                told = subprocess.run([*command, "--topic", topic], stdout=subprocess.PIPE, text=True, check=True)
                taken[what].append(json.loads(told.stdout))
    for what, rounds in taken.items():
        rates, cpu = ([each[name] for each in rounds] for name in ("per_second", "cpu_us"))
        print(
            f"{what:34} {statistics.median(rates):12,.0f}/s (most {max(rates):12,.0f})"
            f"  {statistics.median(cpu):7.2f} us (least {min(cpu):7.2f})"
        )


if __name__ == "__main__":
    main()
