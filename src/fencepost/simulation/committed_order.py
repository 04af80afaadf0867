"""The records of a log in the order in which they were committed: read from the segments, without any client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fencepost.log.partition import Partition
from fencepost.log.storage import Storage
from fencepost.protocol.control import COMMIT, read_control_record
from fencepost.protocol.records import decode_batch
from fencepost.protocol.types import TopicPartition


def in_committed_order(storage: Storage, places: Iterable[TopicPartition]) -> dict[TopicPartition, list[str]]:
    """The values that a reader in commit order is shown, by partition; nothing may be compacted away there."""
    found = {at: storage.partition(at.topic, at.partition) for at in places}
    return {at: _in_committed_order(partition) for at, partition in found.items() if partition is not None}


def _in_committed_order(partition: Partition) -> list[str]:
    """The values in commit order: of a record outside transactions where it stands, else where its commit stands."""
    shown: list[str] = []
    pending: dict[int, list[str]] = defaultdict(list)
    for header, batch in partition.scan(partition.log_start_offset):
        if header.is_control:
            marker = read_control_record(batch, 0, header)
            ended = pending.pop(header.producer_id, [])
            shown += ended if marker is not None and marker.type == COMMIT else []
            continue
        values = [(record.value or b"").decode() for record in decode_batch(batch, 0, header)]
        if header.is_transactional:
            pending[header.producer_id] += values
        else:
            shown += values
    return shown
