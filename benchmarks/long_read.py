"""Memory of a node while a long topic is read from its start, and while a short one is: its length must not show.

A node of its own for each.  librdkafka writes the records and, after a stop and a start of the node, reads them all.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from signal import SIGTERM

from confluent_kafka import Consumer, Producer

from benchmarks.measure import report
from benchmarks.partitions import Node

RECORD = 10_000
"""Bytes of a record."""


def write(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1_000_000})
    value = bytes(RECORD)
    for _ in range(count):
        while True:
            try:
                producer.produce("long", value)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300):
        raise SystemExit("not every record was taken")


def read(node: Node, count: int) -> float:
    """Read them all; the largest memory that the node was seen with meanwhile."""
    consumer = Consumer({"bootstrap.servers": node.address, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe(["long"])
    found, largest = 0, 0.0
    last = time.monotonic()
    while found < count:
        some = consumer.consume(1000, 1)
        found += len([each for each in some if each.error() is None])
        largest = max(largest, node.megabytes)
        last = time.monotonic() if some else last
        if time.monotonic() - last > 60:
            raise SystemExit(f"only {found} of {count} records were read")
    consumer.close()
    return largest


def measured(megabytes: int) -> tuple[float, float, float]:
    """Memory of a node before the reading and the largest during it, in MB, and MB that were read in a second."""
    count = megabytes * 1_000_000 // RECORD
    root = Path(__file__).resolve().parent.parent / ".bench"
    root.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as folder:
        node = Node(folder, 0)
        node.start()
        write(node.address, count)
        node.stop(SIGTERM)
        node.start()
        before, begin = node.megabytes, time.perf_counter()
        largest = read(node, count)
        seconds = time.perf_counter() - begin
        node.stop(SIGTERM)
    return before, largest, megabytes / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=10_000)
    options = parser.parse_args()
    for megabytes in (10, options.megabytes):
        before, largest, rate = measured(megabytes)
        report(megabytes=megabytes, node_before=before, node_while_read=largest, read_per_second=rate)


if __name__ == "__main__":
    main()
