"""The verdict: what must be there, computed from the table with plain Python, against what confluent-kafka reads."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from demo.feed import PARTITIONS
from demo.flights import flights, table


@dataclass
class Verdict:
    """What was found.  Every list must be empty, and both counts of transactions 0."""

    expected: int = 0
    found: int = 0
    missing: list[int] = field(default_factory=list)
    duplicated: list[int] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    """Departures that nobody made, or with other contents."""
    torn: list[int] = field(default_factory=list)
    """Micro-batches of which only a part is visible."""
    sums: dict[str, tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    """Carrier -> (departures, delay) as expected, as found."""
    open: int = 0
    """Transactions without an end, by the audit."""
    torn_transactions: int = 0
    """Transactions of which a part is committed, by the audit."""

    @property
    def wrong_sums(self) -> list[str]:
        return [carrier for carrier, (expected, found) in self.sums.items() if expected != found]

    @property
    def holds(self) -> bool:
        wrong_rows = self.missing or self.duplicated or self.wrong or self.torn or self.wrong_sums
        return not (wrong_rows or self.open or self.torn_transactions)


def judge(bootstrap: str, prefix: str, count: int) -> Verdict:
    """Read both topics with read_committed and compare."""
    departures = read_committed(bootstrap, f"{prefix}departures")
    return compare(count, departures, read_committed(bootstrap, f"{prefix}carrier_delays"))


def expect(count: int) -> tuple[dict[int, dict[str, Any]], dict[str, list[int]]]:
    """What must be there: departures by number, and departures and delay by carrier."""
    airlines, planes = table("airlines.csv", "carrier"), table("planes.csv", "tailnum")
    expected: dict[int, dict[str, Any]] = {}
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for flight in flights(count):
        if flight.departed:
            row = json.loads(flight.value)
            plane = planes.get(row.get("tailnum", ""), {})
            row |= {"airline": airlines[flight.carrier]["name"]}
            row |= {name: plane[name] for name in ("manufacturer", "model") if name in plane}
            expected[flight.number] = row
            sums[flight.carrier][0] += 1
            sums[flight.carrier][1] += flight.dep_delay or 0
    return expected, sums


def compare(count: int, departures: list[dict[str, Any]], delays: list[dict[str, Any]]) -> Verdict:
    """Judge what was read of both topics after the first `count` flights."""
    expected, sums = expect(count)
    verdict = Verdict(len(expected), len(departures))
    seen = Counter(row["id"] for row in departures)
    verdict.missing = [number for number in expected if number not in seen]
    verdict.duplicated = [number for number, times in seen.items() if times > 1]
    verdict.wrong = [row["id"] for row in departures if without_batch(row) != expected.get(row["id"])]
    written = Counter((row["batch"], row["carrier"]) for row in departures)
    told = Counter[tuple[int, str]]()
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in delays:
        told[row["batch"], row["carrier"]] += row["departures"]
        found[row["carrier"]][0] += row["departures"]
        found[row["carrier"]][1] += row.get("delay", 0)
    verdict.torn = sorted({key[0] for key in written | told if written[key] != told[key]})
    for carrier in sorted(set(sums) | set(found)):
        verdict.sums[carrier] = (pair(sums[carrier]), pair(found[carrier]))
    return verdict


def pair(values: list[int]) -> tuple[int, int]:
    return values[0], values[1]


def without_batch(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "batch"}


def read_committed(bootstrap: str, topic: str, patience: float = 60) -> list[dict[str, Any]]:
    """Every record that a read_committed consumer is shown, up to what is the end now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    name = topic.rsplit("-", 1)[-1]
    partitions = [TopicPartition(topic, number, 0) for number in range(PARTITIONS[name])]
    ends = {number: consumer.get_watermark_offsets(partitions[number], 30)[1] for number in range(len(partitions))}
    consumer.assign(partitions)
    records = []
    waiting = {number for number, end in ends.items() if end > 0}
    give_up = time.monotonic() + patience
    while waiting:
        if time.monotonic() > give_up:
            raise SystemExit(f"{topic}: partitions {sorted(waiting)} cannot be read to their ends: a transaction hangs")
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            records.append(json.loads(message.value() or b"null"))
        elif (message.offset() or 0) >= ends[message.partition() or 0]:
            waiting.discard(message.partition() or 0)
    consumer.close()
    return records
