"""The offsets at which the epochs of a partition's leaders began and ended (KIP-101, KIP-279)."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.protocol.types import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset


def end_offset_for_epoch(
    epoch: LeaderEpoch,
    current: LeaderEpoch,
    starts: Sequence[tuple[LeaderEpoch, Offset]],
    log_start_offset: Offset,
    log_end_offset: Offset,
) -> tuple[LeaderEpoch, Offset]:
    """The largest known leader epoch that is at most `epoch`, and where it ended; (-1, -1) for one yet to come.

    `current`: the leader's.  `starts`: leader epochs with their first offsets, ascending.  An epoch before the first
    known one ended where that one began.
    """
    if epoch == current:
        return epoch, log_end_offset
    if epoch == -1 or epoch > current:
        return NO_LEADER_EPOCH, NO_OFFSET
    found = (epoch, starts[0][1] if starts else log_start_offset)
    for number, (known, _) in enumerate(starts):
        if known <= epoch:
            following = starts[number + 1 :]
            found = (known, following[0][1] if following else log_end_offset)
    return found


def assigned(
    starts: Sequence[tuple[LeaderEpoch, Offset]], epoch: LeaderEpoch, start: Offset
) -> list[tuple[LeaderEpoch, Offset]]:
    """The leader epochs `starts`, and a leader of this epoch that begins at `start`, if it is a newer one.

    A leader that has written nothing before the next one began is left out, as in Apache Kafka.
    """
    if starts and starts[-1][0] >= epoch:
        return list(starts)
    return [*(each for each in starts if each[1] < start), (epoch, start)]
