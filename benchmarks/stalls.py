"""How long everybody else waits while the node does something big for one: the longest stall for each.

    python -m benchmarks.stalls [--only NAME ...]

A node is a process of its own; a prober asks it for ApiVersions and for one durable record every 10 ms, while a third
process has it do each of the works below.  "nothing" is what this machine and disk do to the prober by themselves.
The node tells how much time of a processor its longest step took: that says more where others use the machine, too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.crowds import crowd, pipelined, unfolding, waiting
from benchmarks.filling import JOURNALLED, fill
from benchmarks.large_numbers import configurations, expiry, requests
from benchmarks.long_requests import LIST_OFFSETS_VERSION, LISTED, OFFSET_FETCH_VERSION, WIDE, large_requests, named
from benchmarks.many_members import connections, members
from benchmarks.prober import PROBED, Wire, probing, produce_request
from benchmarks.stall_table import CREATE_VERSION, MOST_MS, Node, Table, create, folder, record, served, wait_until
from fencepost.broker import Broker
from fencepost.coordinator.group.coordinator import CommitFor
from fencepost.coordinator.group.offsets import CommittedOffset
from fencepost.log.data_directory import COMMIT_LOG
from fencepost.log.producer_state import Origin, VerificationGuard
from fencepost.protocol.compression import Compression
from fencepost.protocol.control import control_batch
from fencepost.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetFetchRequest,
)
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequestTopic
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import (
    NO_LEADER_EPOCH,
    Epoch,
    LeaderEpoch,
    Milliseconds,
    Offset,
    ProducerId,
    TopicPartition,
)

DELETE_VERSION = 5
GROUPS = 100_000
TRANSACTIONAL_IDS = 20_000
TRANSACTIONS = 40_000
CLEANED_MB = 64
LONG_AGO_MS = 1_600_000_000_000


# The works


def nothing(table: Table) -> None:
    with served() as (_, _, prober), table.measuring("nothing", prober):
        time.sleep(5)


def partitions(table: Table) -> None:
    with served() as (node, wire, prober):
        with table.measuring("10,000 partitions made", prober):
            create(wire, "many", 10_000)
        with table.measuring("10,000 partitions deleted, and 5 s more", prober):
            wire.ask(DeleteTopicsRequest(topic_names=["many"], timeout_ms=60_000), DELETE_VERSION)
            wait_until(
                "the partitions are gone", lambda: not any(each.name == "many-9999" for each in node.data.iterdir())
            )
            time.sleep(5)
        with table.measuring("1,000 topics made in one request", prober):
            topics = [
                CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=-1, assignments=[], configs=[])
                for n in range(1000)
            ]
            wire.ask(CreateTopicsRequest(topics=topics), CREATE_VERSION)
        with table.measuring("1,000 topics deleted in one request", prober):
            names = [f"t{n}" for n in range(1000)]
            wire.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=60_000), DELETE_VERSION)
            time.sleep(1)
        with table.measuring("3,000 topics made by one Metadata request", prober):
            asked = [MetadataRequestTopic(name=f"asked-{n}") for n in range(3000)]
            wire.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True))


def old_groups(broker: Broker) -> Iterator[None]:
    """Groups with a position of long ago."""
    for number in range(GROUPS):
        at = {
            TopicPartition(JOURNALLED, 0): CommittedOffset(
                Offset(number), NO_LEADER_EPOCH, "", Milliseconds(LONG_AGO_MS)
            )
        }
        broker.node.groups.commit_offsets(CommitFor(f"group-{number}", "", None, -1), at)
        yield


def many_transactions(broker: Broker) -> Iterator[None]:
    """Transactional ids of which some have had many transactions."""
    transactions, partitions = broker.node.transactions, [TopicPartition(JOURNALLED, 0)]
    pairs = []
    for number in range(TRANSACTIONAL_IDS):
        pairs.append(transactions.init_producer_id(f"id-{number}", Milliseconds(60_000)))
        yield
    for number in range(TRANSACTIONS):
        name, pair = f"id-{number % 200}", pairs[number % 200]
        transactions.add_partitions(name, pair.producer_id, pair.producer_epoch, partitions, 0)
        transactions.end(name, pair.producer_id, pair.producer_epoch, True, 3)
        yield


def journals(table: Table) -> None:
    with folder() as path:
        asyncio.run(fill(path / "data", lambda broker: chain(old_groups(broker), many_transactions(broker)), PROBED))
        node = Node(path / "data")
        try:
            with probing(node.address, node.steps) as prober:
                begin = time.perf_counter()
                prober.waits()
                node.wait_ready()
                time.sleep(1)
                seconds = time.perf_counter() - begin
                table.add("a start with journals, and 1 s more", seconds, prober.waits(), prober.longest_step())
        finally:
            node.end()


def groups(table: Table) -> None:
    with folder() as path:
        asyncio.run(fill(path / "data", old_groups, PROBED))
        # They are loaded before that time is over.
        node = Node(path / "data", "offsets.retention.check.interval.ms=20000")
        try:
            node.wait_ready()
            wire = node.wire()
            sample = [f"group-{number}" for number in range(0, GROUPS, GROUPS // 50)]
            with probing(node.address, node.steps) as prober:
                with table.measuring("ListGroups of 100,000 groups", prober):
                    wire.ask(ListGroupsRequest(), 4)
                with table.measuring("100,000 groups expired", prober):
                    wait_until("the positions are gone", lambda: not any(position(wire, name) >= 0 for name in sample))
        finally:
            node.end()


def position(wire: Wire, group: str) -> int:
    topics = [OffsetFetchRequestTopic(name=JOURNALLED, partition_indexes=[0])]
    answer = wire.ask(OffsetFetchRequest(group_id=group, topics=topics), OFFSET_FETCH_VERSION)
    offset: int = answer.topics[0].partitions[0].committed_offset if not answer.error_code else 0
    return offset


def large_batches(table: Table) -> None:
    with served() as (_, wire, prober):
        create(wire, "large", 1)
        now = int(time.time() * 1000)
        records = [(now + n // 300, None, b"", ()) for n in range(300_000)]
        batch = encode_batch(records, compression=Compression.ZSTD)
        with table.measuring(f"a batch of 300,000 records taken ({len(batch)} B)", prober):
            wire.ask(produce_request("large", {0: batch}))
        wanted = [ListOffsetsPartition(partition_index=0, timestamp=now + 999)]
        with table.measuring("it is asked by time", prober):
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="large", partitions=wanted)])
            wire.ask(request, LIST_OFFSETS_VERSION)
        ahead = [(now + 3 * 86_400_000 + n // 300, None, b"", ()) for n in range(300_000)]
        with table.measuring("one like it is refused", prober):
            wire.ask(produce_request("large", {0: encode_batch(ahead, compression=Compression.ZSTD)}))


def metadata(table: Table) -> None:
    with served() as (_, wire, prober):
        names = [MetadataRequestTopic(name=f"nowhere-{number:020d}") for number in range(330_000)]
        request = wire.frame(MetadataRequest(topics=names, allow_auto_topic_creation=False))
        with table.measuring(f"Metadata request of {len(request) / 1e6:.0f} MB", prober):
            wire.send(request)
            try:
                wire.receive(MetadataRequest)
            except EOFError:
                print("  (it was refused)")


def ids(broker: Broker) -> Iterator[None]:
    """Transactional ids that have had no transaction."""
    for number in range(LISTED):
        broker.node.transactions.init_producer_id(f"id-{number}", Milliseconds(60_000))
        yield


def large_answers(table: Table) -> None:
    with folder() as path:
        asyncio.run(fill(path / "data", ids, PROBED))
        node = Node(path / "data")
        try:
            node.wait_ready()
            wire = node.wire()
            create(wire, "wide", WIDE)
            with probing(node.address, node.steps) as prober:
                for what, request, version in large_requests():
                    with table.measuring(what, prober):
                        wire.ask(request, version)
        finally:
            node.end()


def transactions_of(keys: int, count: int) -> Callable[[Broker], Iterator[None]]:
    """A compacted log of transactions of 100 records of 1 KB."""

    def work(broker: Broker) -> Iterator[None]:
        settings = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "min.cleanable.dirty.ratio": "0.01"}
        broker.node.topics.create_at_once("cleaned", 1, settings)
        partition = broker.node.storage.partition("cleaned", 0)
        assert partition is not None
        value = os.urandom(1000)
        for number in range(count):
            producer, sequence = ProducerId(number % 100), number // 100 * 100
            now = broker.node.clock.now()
            guard = partition.start_verification(producer, Epoch(0), sequence, False, now)
            assert isinstance(guard, VerificationGuard)
            records = [(now, b"%d" % ((number * 100 + n) % keys), value, ()) for n in range(100)]
            identity: Any = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            partition.append(encode_batch(records, transactional=True, **identity), Origin.CLIENT, now, guard=guard)
            partition.append(
                control_batch(producer, Epoch(0), LeaderEpoch(0), number % 10 > 0, now),
                Origin.COORDINATOR,
                now,
            )
            yield

    return work


def size_of(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.glob("*.log") if each.exists())


def cleaning(table: Table) -> None:
    with folder() as path:
        asyncio.run(fill(path / "data", transactions_of(keys=5000, count=CLEANED_MB * 10), PROBED))
        cleaned = path / "data" / "cleaned-0"
        before = size_of(cleaned)
        for each in (*cleaned.glob("*.index"), *cleaned.glob("*.timeindex")):
            each.unlink()
        node = Node(path / "data", "log.cleaner.backoff.ms=5000")
        try:
            with probing(node.address, node.steps) as prober:
                prober.waits()
                begin = time.perf_counter()
                node.wait_ready()
                wire = node.wire()
                for back in range(0, 5000, 500):
                    at = ListOffsetsPartition(partition_index=0, timestamp=int(time.time() * 1000) - back)
                    request = ListOffsetsRequest(
                        replica_id=-1, topics=[ListOffsetsTopic(name="cleaned", partitions=[at])]
                    )
                    wire.ask(request, LIST_OFFSETS_VERSION)
                seconds = time.perf_counter() - begin
                what = f"a start that makes the indexes of {before >> 20} MiB again"
                table.add(what, seconds, prober.waits(), prober.longest_step())
                with table.measuring(f"a log of {before >> 20} MiB of transactions cleaned", prober):
                    wait_until("the log is cleaned", lambda: size_of(cleaned) < before // 2, 400)
        finally:
            node.end()


def write_everywhere(wire: Wire, topic: str, count: int, batch: bytes) -> None:
    for first in range(0, count, 100):
        wire.ask(produce_request(topic, dict.fromkeys(range(first, first + 100), batch)))


def checkpoint(table: Table) -> None:
    with served() as (node, wire, prober):
        create(wire, "wide", 2000)
        create(wire, "bulk", 1)
        write_everywhere(wire, "wide", 2000, record())
        generation = max((node.data / COMMIT_LOG).glob("*.log"))
        chunk = {0: record(value=os.urandom(900_000))}
        with table.measuring("7 MB written", prober):
            for _ in range(8):
                wire.ask(produce_request("bulk", chunk))
        with table.measuring("a checkpoint of 2,000 partitions", prober):
            for _ in range(80):
                wire.ask(produce_request("bulk", chunk))
            wait_until("a checkpoint is done", lambda: not generation.exists())


def retention(table: Table) -> None:
    with served("log.retention.check.interval.ms=5000") as (_, wire, prober):
        create(wire, "old", 2000, retention_ms="1000", segment_ms="100")
        write_everywhere(wire, "old", 2000, record(LONG_AGO_MS))
        time.sleep(0.2)
        write_everywhere(wire, "old", 2000, record())
        wanted = [ListOffsetsPartition(partition_index=n, timestamp=-2) for n in (0, 1000, 1999)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="old", partitions=wanted)])

        def cut() -> bool:
            found: list[Any] = wire.ask(request, LIST_OFFSETS_VERSION).topics[0].partitions
            return all(each.offset > 0 for each in found)

        with table.measuring("retention over 2,000 partitions", prober):
            wait_until("retention has come", cut)
            time.sleep(1)


WORKS: dict[str, Callable[[Table], None]] = {
    work.__name__: work
    for work in (
        nothing,
        partitions,
        journals,
        groups,
        waiting,
        large_batches,
        metadata,
        large_answers,
        named,
        crowd,
        pipelined,
        unfolding,
        cleaning,
        checkpoint,
        retention,
        requests,
        configurations,
        expiry,
        members,
        connections,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS), help="leave the others out")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    table = Table()
    for name in options.only:
        WORKS[name](table)
    print(f"longer than {MOST_MS} ms: {', '.join(table.slow) or 'nothing'}")


if __name__ == "__main__":
    main()
