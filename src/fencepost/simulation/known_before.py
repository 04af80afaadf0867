"""What is in the log when a node starts, for the checkers of what is appended while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

from fencepost.log.disk import Disk
from fencepost.log.partition import Partition
from fencepost.simulation.checkers.sequences import Sequences
from fencepost.simulation.checkers.stable_offsets import StableOffsets
from fencepost.simulation.disk_faults import FaultyDisk


def learn(partitions: Iterable[Partition], disk: Disk, sequences: Sequences, stable: StableOffsets) -> None:
    """Have them know every batch that is there; nothing goes wrong with the disk meanwhile."""
    with disk.spared() if isinstance(disk, FaultyDisk) else nullcontext():
        for partition in partitions:
            # Compaction takes markers of transactions whose records stay: which are open cannot be seen there.
            is_compacted = "compact" in partition.settings.cleanup_policy
            for header, _ in partition.scan(partition.segments[0].base_offset):
                sequences.learn(partition.topic, partition.index, header)
                if not is_compacted:
                    stable.add((partition.topic, partition.index), header)
