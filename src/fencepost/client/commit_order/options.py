"""The options of a consumer with delivery="commit_order", checked; and what its partitions share."""

from __future__ import annotations

from functools import partial
from typing import Final

from fencepost.client.commit_order.buffers import TransactionBuffers
from fencepost.client.commit_order.partition import PartitionInCommitOrder
from fencepost.client.commit_order.position import Position
from fencepost.client.commit_order.spill_file import temporary_file
from fencepost.protocol.types import TopicPartition

_DELIVERIES: Final = ("offset_order", "commit_order")


class CommitOrder:
    """What the partitions of one consumer share: the memory for open transactions, and the temporary file."""

    def __init__(self, buffer_bytes: int, spill_directory: str | None, warning_ms: int) -> None:
        self.buffers = TransactionBuffers(buffer_bytes, partial(temporary_file, spill_directory))
        self._bound = warning_ms / 1000

    def partition(self, at: TopicPartition, begun: Position) -> PartitionInCommitOrder:
        """A new reader of one partition, from `begun` on."""
        return PartitionInCommitOrder(at, begun, self.buffers, self._bound)


def commit_order(
    delivery: str, isolation_level: str, buffer_bytes: int, spill_directory: str | None, warning_ms: int
) -> CommitOrder | None:
    """The memory and file of a consumer with these options; None for offset order.  Raises ValueError."""
    if delivery not in _DELIVERIES:
        raise ValueError(f"delivery={delivery!r}: it must be one of {', '.join(_DELIVERIES)}")
    if delivery == "offset_order":
        return None
    if isolation_level != "read_committed":
        raise ValueError(f"delivery='commit_order' delivers what is committed: not with {isolation_level=}")
    if buffer_bytes < 0:
        raise ValueError(f"transaction_buffer_bytes={buffer_bytes}: it must be 0 or more")
    if warning_ms <= 0:
        raise ValueError(f"open_transaction_warning_ms={warning_ms}: it must be more than 0")
    return CommitOrder(buffer_bytes, spill_directory, warning_ms)
