"""The leader epochs of a partition at a start: from `leader-epoch-checkpoint`, or from the batches where that is wrong.

The file has no checksum, so it is held against the batches, each of which says in which leader epoch it was written.
One that is missing, damaged, older than the log or another partition's is made again from them; Apache Kafka makes it
again after a crash (LogLoader).  Where the batches contradict each other it is they that are damaged: then a file that
is whole stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.log import checkpoint_files
from fencepost.log.damage import FileDamaged
from fencepost.log.disk import NothingLeft
from fencepost.log.leader_epochs import assigned
from fencepost.node_log import get_logger
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.types import LeaderEpoch, Offset

if TYPE_CHECKING:
    from fencepost.log.partition import Partition

logger = get_logger(__name__)


def recover_epochs(partition: Partition) -> None:
    """Set `epoch_starts`, with the present leader's, and bring the file there.  Raises OSError.

    The segments are open, and their end is known.
    """
    path = partition.directory / checkpoint_files.LEADER_EPOCHS
    was_there, wrong = partition.disk.exists(path), "was damaged"
    try:
        found = checkpoint_files.read_leader_epochs(partition.disk, partition.directory)
    except NothingLeft:
        raise
    except OSError as error:
        found, wrong = None, f"could not be read ({error.strerror or error})"
    starts = found
    if found is None or not _fits(partition, found):
        in_batches, in_order = _epochs_in_batches(partition)
        if found is None or in_order or not _possible(partition, found):
            starts = in_batches
    if was_there and starts != found:  # one that is missing may have been lost with the power
        logger.warning(
            "%s %s and was made again from the batches topic=%s partition=%d",
            path,
            wrong if found is None else "did not fit the log",
            partition.topic,
            partition.index,
        )
    partition.epoch_starts = assigned(starts or [], partition.leader_epoch, partition.log_end_offset)
    if partition.epoch_starts != found:
        checkpoint_files.write_leader_epochs(partition.disk, partition.directory, partition.epoch_starts)


def _possible(partition: Partition, starts: list[tuple[LeaderEpoch, Offset]]) -> bool:
    """Whether the epochs can be this log's, going by its end and the present leader epoch alone."""
    if not starts:
        return not any(segment.size for segment in partition.segments)
    epoch, start = starts[-1]
    return epoch <= partition.leader_epoch and start <= partition.log_end_offset


def _fits(partition: Partition, starts: list[tuple[LeaderEpoch, Offset]]) -> bool:
    """Whether the first and the last batch of each epoch are of that epoch, as far as they can be read."""
    if not _possible(partition, starts):
        return False
    if not starts:
        return True
    first = partition.segments[0].base_offset if partition.segments else partition.log_end_offset
    if len(starts) == 1 and partition.leader_epoch == 0 and starts[0][1] <= first:
        return True  # there was never another
    try:
        before = _batch_with(partition, Offset(starts[0][1] - 1)) if starts[0][1] > first else None
        if before is not None:
            return False
        stops = [*(start for _, start in starts[1:]), partition.log_end_offset]
        return all(
            _is_of(partition, LeaderEpoch(epoch), max(start, first), stop)
            for (epoch, start), stop in zip(starts, stops, strict=True)
            if max(start, first) < stop
        )
    except FileDamaged:
        return True


def _is_of(partition: Partition, epoch: LeaderEpoch, start: Offset, stop: Offset) -> bool:
    """Whether the first and the last batch from `start` to `stop` lie in there and are of this epoch."""
    first, last = _batch_from(partition, start), _batch_with(partition, Offset(stop - 1))
    return all(
        header is None
        or header.base_offset >= stop
        or (header.base_offset >= start and header.partition_leader_epoch == epoch)
        for header in (first, last)
    )


def _batch_from(partition: Partition, offset: Offset) -> BatchHeader | None:
    """The first batch that ends at this offset or after it; None if there is none.  Raises FileDamaged."""
    for segment in partition.segments.holding(offset):
        position = segment.locate_at_once(offset) if offset > segment.base_offset else 0
        if position is not None and position < segment.size:
            return next(segment.headers_from(position))[1]
    return None


def _batch_with(partition: Partition, offset: Offset) -> BatchHeader | None:
    """The batch with this offset; None where it was compacted away."""
    found = _batch_from(partition, offset)
    return found if found is not None and found.base_offset <= offset else None


def _epochs_in_batches(partition: Partition) -> tuple[list[tuple[LeaderEpoch, Offset]], bool]:
    """The epochs and where the first batch of each begins; whether all batches can be read and are in order."""
    starts: list[tuple[LeaderEpoch, Offset]] = []
    newest, in_order = -1, True
    for segment in partition.segments:
        try:
            for _, header in segment.headers_from(0):
                epoch = header.partition_leader_epoch
                if newest < epoch <= partition.leader_epoch:
                    starts.append((epoch, header.base_offset))
                    newest = epoch
                    if epoch == partition.leader_epoch == 0:
                        return starts, True
                in_order &= epoch == newest
        except FileDamaged:
            in_order = False
    return starts, in_order
