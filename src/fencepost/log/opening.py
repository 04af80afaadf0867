"""Opening a partition: its directory is claimed, its segments are recovered.  Or it is offline, and left as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from fencepost.log.data_directory import claim
from fencepost.log.disk import NothingLeft
from fencepost.log.offline import OfflinePartition, PartitionDamaged
from fencepost.log.partition import Partition
from fencepost.log.recovery import recover
from fencepost.log.replay import Replay
from fencepost.node_log import get_logger
from fencepost.protocol.types import Milliseconds

logger = get_logger(__name__)

_SAID: Final = 10
"""Offline partitions that are named in the log with what is wrong; of more only the number is told."""


def open_partition(
    partition: Partition, replay: Replay, number: Callable[[], int], now: Milliseconds
) -> Partition | OfflinePartition:
    """Open a partition, or make it; offline where what is there cannot be used.  `number`: numbers its segments.

    Raises NothingLeft; OSError if one that was not there cannot be made.
    """
    directory = partition.directory
    was_there = partition.disk.exists(directory)
    try:
        if not was_there and directory.name in replay.directories():
            raise PartitionDamaged(f"{directory} is gone: put it back and start again, or delete the topic")
        claim(partition.disk, directory, partition.topic_id, lambda: _vouches(replay, partition))
        recover(partition, replay, number, now)
    except PartitionDamaged as damaged:
        return _offline(partition, str(damaged))
    except NothingLeft:
        raise
    except OSError as error:
        if not was_there:
            raise
        wrong = f"{error.filename or directory} cannot be used: {error.strerror or error}"
        return _offline(partition, f"{wrong}; see to it that the node can read and write it, {_or_else(error)}")
    return partition


def _vouches(replay: Replay, partition: Partition) -> bool:
    return replay.vouches_for(partition.directory.name, partition.topic_id)


def _or_else(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "for which it must be allowed to enter its directory, then start again"
    return "put back a copy of it, or move it away if it is not the node's"


def _offline(partition: Partition, reason: str) -> OfflinePartition:
    for segment in partition.segments:
        segment.close()
    topic, index, epoch = partition.topic, partition.index, partition.leader_epoch
    return OfflinePartition(topic, index, partition.topic_id, epoch, partition.settings, partition.directory, reason)


def say(offline: Iterable[OfflinePartition]) -> None:
    """Name what is offline after a start, and why."""
    for number, each in enumerate(offline):
        if number == _SAID:
            logger.error("more partitions are offline; metrics count them, metadata names them")
            return
        logger.error("partition %s-%d is offline, the others are served: %s", each.topic, each.index, each.reason)


class Aside:
    """The commit log entries of partitions that are not served, which each generation repeats until they are."""

    def __init__(
        self, replay: Replay, offline: Iterable[str], strays: Iterable[str], number: Callable[[], int]
    ) -> None:
        known = replay.directories()
        names = sorted({*offline, *known.intersection(strays)})
        self._entries = {name: list(replay.entries_of(name, number)) for name in names}
        self.scan_again = bool(names) and not replay.complete
        """Whether the next start must search for the ends of segments, as this one did."""

    def forget(self, directory: str) -> None:
        """Forget a partition that is deleted."""
        self._entries.pop(directory, None)

    def directories(self) -> list[str]:
        """The partitions that are not served, by the names of their directories."""
        return list(self._entries)

    def entries_of(self, directory: str) -> list[bytes]:
        """The entries about one of these partitions; none if it was deleted meanwhile."""
        return self._entries.get(directory, [])
