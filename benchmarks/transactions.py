"""Sequential transactions of one record, one producer: --client fencepost, confluent or aiokafka."""

from __future__ import annotations

import asyncio
import time
import uuid

from benchmarks.measure import arguments, fresh_topic, latencies, report, summary


def confluent(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    from confluent_kafka import Producer

    config = {"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex, "linger.ms": 0}
    producer = Producer(config)
    producer.init_transactions(30)

    def once() -> None:
        producer.begin_transaction()
        producer.produce(topic, b"value")
        producer.commit_transaction(30)

    latencies(count // 10, once)
    return latencies(count, once)


async def aiokafka(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=uuid.uuid4().hex) as producer:
        times: list[float] = []
        start = time.perf_counter()
        for number in range(count + count // 10):
            if number == count // 10:
                times, start = [], time.perf_counter()
            begin = time.perf_counter()
            async with producer.transaction():
                await producer.send(topic, b"value")
            times.append(time.perf_counter() - begin)
        return summary(times, time.perf_counter() - start)


async def fencepost(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    from fencepost.client import Producer

    async with Producer(bootstrap, transactional_id=uuid.uuid4().hex) as producer:
        await producer.init_transactions()
        times: list[float] = []
        start = time.perf_counter()
        for number in range(count + count // 10):
            if number == count // 10:
                times, start = [], time.perf_counter()
            begin = time.perf_counter()
            async with producer.transaction():
                await producer.send(topic, b"value")
            times.append(time.perf_counter() - begin)
        return summary(times, time.perf_counter() - start)


def main() -> None:
    options = arguments(__doc__ or "", client="fencepost", count=1000)
    topic = fresh_topic(options.bootstrap)
    if options.client == "confluent":
        figures = confluent(options.bootstrap, topic, options.count)
    else:
        run = {"aiokafka": aiokafka, "fencepost": fencepost}[options.client]
        figures = asyncio.run(run(options.bootstrap, topic, options.count))
    report(**figures)


if __name__ == "__main__":
    main()
