"""What a node answers, in terms that two nodes share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tests.compare.nodes.comparison import Plain

from fencepost.protocol.batch import crc_matches, headers
from fencepost.protocol.control import read_control_record
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.records import decode_batch

NOW = int(time.time() * 1000) - 3_600_000
"""The time of records: old enough to tell it from the node's own clock, too young for any retention."""
_YOUNG_MS = 1_800_000

T = TypeVar("T")


class Met(Generic[T]):
    """Ids that a node made up, by the order in which they were first met: that is the same on both nodes."""

    def __init__(self) -> None:
        self.ids: list[T | None] = []

    def number(self, real: T) -> int:
        if real not in self.ids:
            self.ids.append(real)
        return self.ids.index(real)

    def real(self, number: int, otherwise: T) -> T:
        """The opposite; something else for what was not met."""
        found = self.ids[number] if 0 <= number < len(self.ids) else None
        return otherwise if found is None else found


def even_out(sides: tuple[Met[T], Met[T]]) -> None:
    """One node may have made up more: what is met from here on has the same numbers again."""
    most = max(len(side.ids) for side in sides)
    for side in sides:
        side.ids += [None] * (most - len(side.ids))


def time_of(timestamp: int) -> Plain:
    """Counted from NOW, or "now" for what a node took from its own clock."""
    if abs(time.time() * 1000 - timestamp) < _YOUNG_MS:
        return "now"
    return timestamp - NOW if timestamp >= 0 else timestamp


def batches_of(records: Any, symbol: Callable[[int], int]) -> Plain:
    """The whole batches of a fetched partition; Apache Kafka may cut the last one off, which readers skip."""
    if records is None:
        return None
    found = []
    for at, header in headers(records):
        batch = {
            "offsets": (header.base_offset, header.last_offset_delta),
            "leader": header.partition_leader_epoch,
            "attributes": header.attributes,
            "times": (time_of(header.base_timestamp), time_of(header.max_timestamp)),
            "producer": (symbol(header.producer_id), header.producer_epoch, header.base_sequence),
            "size": header.size,
            "intact": crc_matches(records, at, header),
            "records": _records_of(records, at, header),
        }
        found.append(batch)
    return found


def _records_of(records: Any, at: int, header: Any) -> Plain:
    try:
        if header.is_control:
            return read_control_record(records, at, header)
        return [
            (record.offset, time_of(record.timestamp), record.key, (record.value or b"")[:8], list(record.headers))
            for record in decode_batch(records, at, header)
        ]
    except ProtocolError as error:
        return str(error)
