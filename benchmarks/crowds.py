"""Many connections that want something of the node at once: works for `benchmarks.stalls`."""

from __future__ import annotations

import resource
import time

from benchmarks.long_requests import LIST_OFFSETS_VERSION
from benchmarks.prober import produce_request
from benchmarks.stall_table import Table, create, record, served
from fencepost.protocol.compression import Compression
from fencepost.protocol.messages import FetchRequest, ListOffsetsRequest, MetadataRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.records import encode_batch

CROWD = 200
UNFOLDING = 20
FETCHES = 20_000


def waiting(table: Table) -> None:
    """One Fetch per connection: as in Apache Kafka, a connection has one at a time."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with served() as (node, wire, prober):
        create(wire, "awaited", 1)
        wires = [node.wire() for _ in range(min(FETCHES, hard // 2 - 200))]

        def ask(wait_ms: int, offset: int) -> None:
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic="awaited", partitions=[wanted])]
            )
            for number, each in enumerate(wires):
                each.send(each.frame(request))
                if number % 100 == 0:
                    time.sleep(0.005)

        def answers(*, with_records: bool) -> None:
            for each in wires:
                found = each.receive(FetchRequest).responses[0].partitions[0]
                assert (found.error_code, bool(found.records)) == (0, with_records), found

        ask(30_000, 0)
        time.sleep(3)
        with table.measuring(f"{len(wires)} waiting fetches woken", prober):
            wire.ask(produce_request("awaited", {0: record()}))
            answers(with_records=True)
        ask(8000, 1)
        time.sleep(3)
        with table.measuring(f"{len(wires)} waiting fetches expired", prober):
            answers(with_records=False)


def crowd(table: Table) -> None:
    """Each has an answer of 600 KB, and a node that makes all of them at once has all of them in memory."""
    with served() as (node, wire, prober):
        create(wire, "many", 10_000)
        wires = [node.wire() for _ in range(CROWD)]
        for what, taken in (("taken", True), ("not taken for 5 s", False)):
            with table.measuring(f"Metadata of 10,000 partitions for {CROWD}, {what}", prober):
                for each in wires:
                    each.send(each.frame(MetadataRequest(topics=[MetadataRequestTopic(name="many")])))
                if not taken:
                    time.sleep(5)
                for each in wires:
                    each.skip()
            print(f"    the most memory that the node has had: {node.most_memory >> 20} MiB", flush=True)


def pipelined(table: Table) -> None:
    """Fetches that are sent ahead of their answers."""
    with served() as (node, wire, prober):
        create(wire, "piped", 1)
        wire.ask(produce_request("piped", {0: record()}))
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="piped", partitions=[wanted])])
        wires = [node.wire() for _ in range(200)]
        for count in (1, 200):
            with table.measuring(f"500 fetches each from {count} connections at once", prober):
                for each in wires[:count]:
                    each.send(each.frame(request) * 500)
                for each in wires[:count]:
                    for _ in range(500):
                        each.receive(FetchRequest)


def unfolding(table: Table) -> None:
    """Each batch is a few kilobytes that unfold to 15 MB, for the last record in it is asked for by its time."""
    with served() as (node, wire, prober):
        wires = [node.wire() for _ in range(UNFOLDING)]
        for compression in (Compression.GZIP, Compression.ZSTD):
            topic = compression.name.lower()
            create(wire, topic, 1)
            records = [(1000 + number, None, bytes(1_000_000), ()) for number in range(15)]
            wire.ask(produce_request(topic, {0: encode_batch(records, compression=compression)}))
            last = ListOffsetsPartition(partition_index=0, timestamp=1014)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[last])])
            with table.measuring(f"15 MB of {topic} unfolded for each of {UNFOLDING} at once", prober):
                for each in wires:
                    each.send(each.frame(request, LIST_OFFSETS_VERSION))
                for each in wires:
                    found = each.receive(ListOffsetsRequest, LIST_OFFSETS_VERSION).topics[0].partitions[0]
                    assert (found.error_code, found.offset) == (0, 14), found
