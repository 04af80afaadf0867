"""Many connections that want something of the node at once: works for `benchmarks.stalls`."""

from __future__ import annotations

import resource
import time

from benchmarks.prober import produce_request
from benchmarks.stall_table import Table, create, record, served
from fencepost.protocol.messages import FetchRequest, MetadataRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.metadata import MetadataRequestTopic

CROWD = 200
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
