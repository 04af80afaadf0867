"""Tells whether a start has found just what the commit log says: then its generations count beside the new one.

The checkpoint of a start writes down every partition that was written to since the last one, which takes long where
there are many.  It can be made while the node serves, as any other: until it is complete, a crash is followed by a
replay of the old generations and of the new one, in their order.  That is right only if the new one goes on where the
old ones end.  Where the start has removed, cut or left out something that they name, has deletions to finish, or had
to search for the ends of segments, they would bring back what is not there any more: then they must be gone before
anything is appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencepost.log.partition import Partition
from fencepost.log.replay import Replay


def agrees(replay: Replay, partitions: Iterable[Partition]) -> bool:
    """Whether the open partitions are what the commit log knows, with each segment as it was noted, or are empty."""
    if not replay.complete or replay.adopting:
        return False
    opened = {partition.directory.name: partition for partition in partitions}
    moved = {directory for directory, start in replay.starts.items() if start}
    return (replay.directories() | moved).issubset(opened) and all(
        _is_as_noted(replay, directory, partition) for directory, partition in opened.items()
    )


def _is_as_noted(replay: Replay, directory: str, partition: Partition) -> bool:
    if partition.log_start_offset != replay.starts.get(directory, 0):
        return False
    sizes = {segment.base_offset: segment.size for segment in partition.segments}
    noted = {base: file for base, file in replay.segments_of(directory).items() if not file.removed}
    if not noted:
        return sizes == {0: 0}
    return partition.segments.bases[-1] in noted and all(
        not file.aside and file.topic_id == partition.topic_id.bytes and sizes.get(base) == file.size
        for base, file in noted.items()
    )


def named_segments(replay: Replay, partitions: Iterable[Partition]) -> Iterator[int]:
    """The numbers of the open segments that the commit log names."""
    for partition in partitions:
        noted = replay.segments_of(partition.directory.name)
        yield from (segment.number for segment in partition.segments if segment.base_offset in noted)
