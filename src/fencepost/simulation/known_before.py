"""The batches in the log when a node starts, for the checkers of what is appended while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from itertools import pairwise

from fencepost.log.disk import Disk
from fencepost.log.partition import Partition
from fencepost.protocol.batch import BatchHeader
from fencepost.simulation.checkers.sequences import Sequences
from fencepost.simulation.checkers.stable_offsets import StableOffsets
from fencepost.simulation.disk_faults import FaultyDisk


def learn(partitions: Iterable[Partition], disk: Disk, sequences: Sequences, stable: StableOffsets) -> None:
    """Have both checkers know every batch that is in the log; the disk has no faults meanwhile."""
    with disk.spared() if isinstance(disk, FaultyDisk) else nullcontext():
        for partition in partitions:
            headers = [header for header, _ in partition.scan(partition.segments[0].base_offset)]
            # Compaction takes markers of transactions whose records stay: which are open cannot be seen there.
            is_whole = not is_compacted(partition, headers)
            for header in headers:
                sequences.learn(partition.topic, partition.index, header)
                if is_whole:
                    stable.add((partition.topic, partition.index), header)


def is_compacted(partition: Partition, headers: Sequence[BatchHeader]) -> bool:
    """Whether something was taken out of these batches, or soon is; the policy may have been another one before."""
    if "compact" in partition.settings.cleanup_policy or any(header.record_count == 0 for header in headers):
        return True
    return any(after.base_offset != before.last_offset + 1 for before, after in pairwise(headers))
