"""What the compaction of the coordinators' journals costs and brings.

Transactions over many ids, each with a group's position, are driven in the process of the broker: no network, no
clients, so the CPU is the broker's alone.  Then the node is stopped or killed, and the start is timed until every
journal is read.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.measure import report
from fencepost.broker import Broker
from fencepost.coordinator.group.coordinator import CommitFor
from fencepost.coordinator.group.offsets import CommittedOffset
from fencepost.protocol.types import NO_LEADER_EPOCH, Milliseconds, Offset, TopicPartition

JOURNALS = ("__transaction_state", "__consumer_offsets")


def journal_bytes(data: Path) -> int:
    return sum(file.stat().st_size for name in JOURNALS for file in data.glob(f"{name}-*/*.log"))


def clean_bytes(broker: Broker) -> int:
    """What the last pass over each journal partition has kept."""
    journals = [each for each in broker.node.storage.partitions() if each.topic in JOURNALS and len(each.segments) > 1]
    return sum(each.segments[0].size for each in journals)


async def work(broker: Broker, transactions: int, ids: int, at_once: int = 5) -> float:
    """Run so many transactions, `at_once` for each sync; the CPU seconds that they took."""
    for name in JOURNALS:
        assert await broker.node.ensure_coordinator(name)
    broker.node.topics.create_at_once("orders", 1, {})
    pairs = {}
    for number in range(ids):
        made = broker.node.transactions.init_producer_id(f"id-{number}", Milliseconds(60_000))
        pairs[number] = made.producer_id, made.producer_epoch
    await broker.node.storage.durability.wait(broker.node.storage.last_appended)
    begin = time.process_time()
    for first in range(0, transactions, at_once):
        for number in range(first, first + at_once):
            which = number % ids
            producer_id, epoch = pairs[which]
            name, at = f"id-{which}", TopicPartition("orders", 0)
            added = broker.node.transactions.add_partitions(name, producer_id, epoch, [at], 2)
            assert not added.error, added
            position = CommittedOffset(Offset(number), NO_LEADER_EPOCH, "", broker.node.clock.now())
            broker.node.groups.commit_offsets(CommitFor(f"group-{which}", "", None, -1), {at: position})
            ended = broker.node.transactions.end(name, producer_id, epoch, commit=True, version=5)
            assert not ended.error, ended
            pairs[which] = ended.producer_id, ended.producer_epoch
        await broker.node.storage.durability.wait(broker.node.storage.last_appended)
    return time.process_time() - begin


async def started(data: Path, settings: dict[str, str]) -> tuple[float, float]:
    """Seconds that a start takes until every journal is read, and CPU seconds."""
    begin, worked = time.perf_counter(), time.process_time()
    broker = Broker(data=data, settings=settings)
    await broker.start()
    seconds, worked = time.perf_counter() - begin, time.process_time() - worked
    await broker.stop()
    return seconds, worked


async def run(transactions: int, ids: int, at_once: int, data: Path, enable: bool) -> None:
    settings = {"log.cleaner.enable": str(enable).lower()}
    broker = Broker(data=data, settings=settings)
    await broker.start()
    cpu = await work(broker, transactions, ids, at_once)
    largest = journal_bytes(data)
    await asyncio.sleep(2)
    done, clean = broker.node.cleaner.metrics, clean_bytes(broker)
    killed = data.with_name(data.name + "-killed")
    shutil.copytree(data, killed, ignore=shutil.ignore_patterns(".lock"))
    await broker.stop()
    after_kill, after_stop = await started(killed, settings), await started(data, settings)
    report(
        cleaner=enable,
        cpu_us_per_transaction=cpu / transactions * 1e6,
        journals_mb=largest / 1e6,
        passes=done.passes,
        read_mb=done.bytes_read / 1e6,
        written_mb=done.bytes_written / 1e6,
        clean_mb=clean / 1e6,
        start_after_kill_s=after_kill[0],
        start_after_kill_cpu_s=after_kill[1],
        start_after_stop_s=after_stop[0],
        start_after_stop_cpu_s=after_stop[1],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transactions", type=int, default=1_000_000)
    parser.add_argument("--ids", type=int, default=1_000)
    parser.add_argument("--at-once", type=int, default=5, help="transactions that share a sync")
    parser.add_argument("--without", action="store_true", help="with log.cleaner.enable=false")
    options = parser.parse_args()
    root = Path(__file__).resolve().parent.parent / ".bench"
    root.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as folder:
        asyncio.run(run(options.transactions, options.ids, options.at_once, Path(folder) / "data", not options.without))


if __name__ == "__main__":
    main()
