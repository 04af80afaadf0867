"""Produce 1 KB records with librdkafka (acks=all), then read them all back: messages per second of each."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.measure import arguments, fresh_topic, report


def produce(bootstrap: str, topic: str, count: int, size: int) -> float:
    """Messages per second, from the first call to the last acknowledgement."""
    refused: list[object] = []
    config = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "delivery.report.only.error": True,
        "on_delivery": lambda error, _: refused.append(error),
        "linger.ms": 5,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
    }
    producer = Producer(config)
    value = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    start = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("not everything was acknowledged within two minutes")
    if refused:
        raise SystemExit(f"{len(refused)} of {count} records were not taken: {refused[0]}")
    return count / (time.perf_counter() - start)


def consume(bootstrap: str, topic: str, count: int) -> float:
    """Messages per second, from the assignment to the last record."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.message.max.bytes": 4_000_000,
        "queued.max.messages.kbytes": 262_144,
    }
    consumer = Consumer(config)
    start = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = 0
    while seen < count:
        messages = consumer.consume(10_000, 30)
        wrong = next((message.error() for message in messages if message.error() is not None), None)
        if not messages or wrong is not None:
            raise SystemExit(f"only {seen} of {count} records came back: {wrong or 'no more came'}")
        seen += len(messages)
    rate = count / (time.perf_counter() - start)
    consumer.close()
    return rate


def main() -> None:
    options = arguments(__doc__ or "", count=400_000, size=1000)
    topic = fresh_topic(options.bootstrap)
    produced = produce(options.bootstrap, topic, options.count, options.size)
    report(produced_per_second=produced, consumed_per_second=consume(options.bootstrap, topic, options.count))


if __name__ == "__main__":
    main()
