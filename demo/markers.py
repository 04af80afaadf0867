"""What became of all transactions, counted by the markers in the logs."""

from __future__ import annotations

from typing import NamedTuple

from demo.feed import PARTITIONS
from fencepost.client.cluster import Cluster
from fencepost.client.fetch_requests import fetch_partition
from fencepost.client.positions import list_offsets
from fencepost.protocol.batch import headers
from fencepost.protocol.control import ABORT, COMMIT, read_control_record
from fencepost.protocol.messages.list_offsets import LATEST
from fencepost.protocol.types import Isolation, TopicPartition


class Ends(NamedTuple):
    """Transactions by their end."""

    committed: int
    aborted: int


async def count_ends(bootstrap: str, prefix: str) -> Ends:
    """Transactions that left a marker in the topics of the demo."""
    ends: dict[int, dict[tuple[int, int], None]] = {COMMIT: {}, ABORT: {}}
    cluster = Cluster(bootstrap, client_id="demo-markers")
    try:
        partitions = [TopicPartition(prefix + name, n) for name, count in PARTITIONS.items() for n in range(count)]
        last = await list_offsets(cluster, partitions, LATEST, Isolation.READ_UNCOMMITTED)
        for at in partitions:
            position = 0
            while position < last[at][0]:
                position = await _read(cluster, at, position, ends)
    finally:
        await cluster.close()
    return Ends(len(ends[COMMIT]), len(ends[ABORT]))


async def _read(
    cluster: Cluster, at: TopicPartition, position: int, ends: dict[int, dict[tuple[int, int], None]]
) -> int:
    leader = await cluster.leader(at, cluster.deadline("counting markers"))
    found = await fetch_partition(cluster, leader, at, position, Isolation.READ_UNCOMMITTED, max_bytes=8 * 1024 * 1024)
    data = memoryview(found.records or b"")
    for place, header in headers(data):
        position = header.last_offset + 1
        if header.is_control:
            marker = read_control_record(data, place, header)
            if marker is not None and marker.type in ends:
                ends[marker.type][header.producer_id, header.producer_epoch] = None
    return position
