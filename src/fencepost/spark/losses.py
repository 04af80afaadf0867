"""Finds records that a stream still needed and that are gone: pure functions over positions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fencepost.client.errors import FatalBrokerError
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.types import TopicPartition
from fencepost.spark.positions import Positions

_WAY_ON = 'Set .option("failOnDataLoss", "false") to go on without them'


class RecordsLostError(FatalBrokerError):
    """Records that a query was to read are not there.  The message says what to do with the query."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        KafkaError.__init__(self, code, message)  # without advice that is meant for who has a consumer


def made_anew(known: Positions, now: Positions) -> list[str]:
    """The topics of `known` that are others now: they were deleted, and made again under their names."""
    return sorted({at.topic for at in known.offsets if known.is_in_another_topic(at.topic, now)})


def behind(known: Positions, ends: Positions) -> dict[TopicPartition, int]:
    """The ends of the partitions that end before the position in them, of topics that were not made anew."""
    anew = made_anew(known, ends)
    return {
        at: end for at, end in sorted(ends.offsets.items()) if at.topic not in anew and known.offsets.get(at, end) > end
    }


def in_doubt(known: Positions, ends: Positions) -> dict[TopicPartition, int]:
    """The leader epochs of positions in partitions with another leader epoch now: the log may have been truncated.

    Without topics that were made anew.
    """
    anew = made_anew(known, ends)
    return {
        at: epoch
        for at, epoch in sorted(known.epochs.items())
        if at in known.offsets and at.topic not in anew and ends.epochs.get(at, epoch) != epoch
    }


def truncated(known: Positions, parted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """By partition, the offset before the position from which the log has other records than were read.

    `parted`: where what the leader has of the position's leader epoch, and of earlier ones, ends.
    """
    return {at: end for at, end in sorted(parted.items()) if end < known.offsets.get(at, end)}


def epochs_of(after: Positions, before: Positions, ends: Positions) -> dict[TopicPartition, int]:
    """The leader epochs of the positions after a micro-batch; `ends`: the ends that were looked up for it."""
    epochs = {at: epoch for at, epoch in before.epochs.items() if at not in ends.offsets} | {**ends.epochs}
    return {at: epoch for at, epoch in sorted(epochs.items()) if at in after.offsets}


def gone(known: Positions, ends: Positions, pattern: str | None) -> list[str]:
    """The topics of `known` that a pattern would find if they were there.  Named ones are looked up anyway."""
    if pattern is None:
        return []
    there = {at.topic for at in ends.offsets}
    names = {at.topic for at in known.offsets}
    return sorted(name for name in names - there if re.fullmatch(pattern, name))


def remaining(known: Positions, ends: Positions) -> Positions:
    """The position to go on from if losses are accepted.

    A topic that was made anew begins at its beginning, so nothing is known of it; a partition that ends before the
    position goes on from its end.
    """
    anew = made_anew(known, ends)
    offsets = {at: offset for at, offset in known.offsets.items() if at.topic not in anew}
    return known.alone._replace(offsets=offsets | behind(known, ends), topic_ids={**known.topic_ids, **ends.topic_ids})


def refusal(known: Positions, ends: Positions, pattern: str | None = None) -> RecordsLostError | None:
    """The error of the first loss; None if nothing is lost.  `pattern`: of the topics that are read, None: by name."""
    anew, short = made_anew(known, ends), behind(known, ends)
    if anew:
        return topic_was_made_anew(anew[0])
    for name in gone(known, ends, pattern):
        return topic_was_deleted(name)
    for at, end in short.items():
        return RecordsLostError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{at.topic}-{at.partition} was to be read from offset {known.offsets[at]}, but ends at {end}: records "
            f"that this query has read, or was to read, are lost. {_WAY_ON}",
        )
    return None


def refusal_of_late(known: Positions, first: Positions) -> RecordsLostError | None:
    """The error of the first loss in partitions that topics of `known` got later; None if nothing is lost.

    `first`: where partitions begin.  One that does not begin at 0 had records that nobody has read.  A topic that is
    new to the query, or was made anew, may begin anywhere: nothing of it was to be read before.
    """
    topics = {at.topic for at in known.offsets} - set(made_anew(known, first))
    for at, offset in sorted(first.offsets.items()):
        if offset > 0 and at.topic in topics and at not in known.offsets:
            return records_are_gone(at, 0, offset, offset)
    return None


def topic_is_not_there(name: str) -> RecordsLostError:
    """The error of a topic that is to be read by its name and does not exist, or not any more."""
    return RecordsLostError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"there is no topic {name!r} to read: make it, or put its name right. If this query read it before, it was "
        "deleted, and records that the query had not read yet may be lost",
    )


def topic_was_deleted(name: str) -> RecordsLostError:
    """The error of a topic that the query was to read and that was deleted."""
    return RecordsLostError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {name!r} was deleted: records that this query had not read yet may be lost. {_WAY_ON}",
    )


def topic_was_made_anew(name: str) -> RecordsLostError:
    """The error of a topic that was deleted and made anew since the query read it."""
    return RecordsLostError(
        ErrorCode.UNKNOWN_TOPIC_ID,
        f"topic {name!r} was deleted and made anew: records that this query had not read yet may be lost, and those "
        f"that it has are not in it. {_WAY_ON}; the new topic is read from its beginning then",
    )


def records_are_gone(at: TopicPartition, wanted: int, first: int, end: int) -> RecordsLostError:
    """The error of a partition that does not have an offset that was to be read; it has those from `first` to `end`."""
    where = f"begins at {first}" if first > wanted else f"ends at {end}"
    return RecordsLostError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{at.topic}-{at.partition} was to be read from offset {wanted}, but {where}: records are lost to this query. "
        f"{_WAY_ON}",
    )


def log_was_truncated(at: TopicPartition, position: int, parted: int) -> RecordsLostError:
    """The error of a log that was truncated at `parted`, before the `position` of the query, and written on."""
    return RecordsLostError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{at.topic}-{at.partition} was read to offset {position}, but lost its records from {parted} on since, as by "
        "a power loss or the election of a leader that had less: what was written in their place was not read. "
        f'Set .option("failOnDataLoss", "false") to go on from {parted}',
    )


def leader_epoch_went_back(at: TopicPartition, epoch: int) -> RecordsLostError:
    """The error of a partition with an earlier leader epoch than before, as only a cluster put back from a copy has."""
    return RecordsLostError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{at.topic}-{at.partition} was read under leader epoch {epoch}, and its leader knows earlier ones only: the "
        "cluster was put back from an older copy, and records that this query has read, or was to read, may be lost. "
        f"{_WAY_ON}",
    )


def offset_is_not_there(option: str, at: TopicPartition, wanted: int, end: int) -> RecordsLostError:
    """The error of an `option` that has a batch begin, or end, behind the end of a partition."""
    return RecordsLostError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{option} has {at.topic}-{at.partition} at {wanted}, but it ends at {end}: give an offset that is there. If "
        'it was there, records are lost; set .option("failOnDataLoss", "false") to read what is left',
    )
