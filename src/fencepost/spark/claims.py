"""Decides which attempt at a slot may write, and whether a micro-batch may be committed: pure functions.

A claim is InitProducerId on the slot's own transactional id, which only ever counts up.  Two attempts at one slot, even
ones that know nothing of each other, cannot both get the number that is next, and only who gets it may write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.protocol.types import LAST_CLIENT_EPOCH, Epoch, ProducerId, ProducerIdAndEpoch, TopicPartition

_SLOT: Final = "/slot/"

Slots = Mapping[int, ProducerIdAndEpoch | None]
"""Slot -> the producer id and epoch that it has; None: it was never claimed."""


class Written(NamedTuple):
    """The report of an attempt on one topic-partition; without topic and partition if it was given no rows at all.

    `rows`: how many the attempt was given, for all its topic-partitions.  `records`: how many the broker acknowledged
    in this one, between `first_offset` and `last_offset`.  `size`: bytes of their record batches before compression.
    """

    slot: int
    producer_id: ProducerId
    epoch: Epoch
    rows: int
    topic: str | None = None
    partition: int | None = None
    records: int = 0
    first_offset: int = -1
    last_offset: int = -1
    size: int = 0

    @property
    def claim(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)


def slot_name(application_id: str, slot: int) -> str:
    """The transactional id on which a slot is claimed."""
    return f"{application_id}{_SLOT}{slot}"


def is_slot_name(name: str) -> bool:
    """Whether this may be the transactional id of a slot of some application."""
    _, between, number = name.rpartition(_SLOT)
    return bool(between) and number.isdecimal()


def follows(claimed: ProducerIdAndEpoch, known: ProducerIdAndEpoch | None) -> bool:
    """Whether a claim is exactly the next one after what the slot had (None: never claimed)."""
    if known is None:
        return claimed.producer_epoch == 0
    if claimed.producer_id == known.producer_id:
        return claimed.producer_epoch == known.producer_epoch + 1
    return known.producer_epoch >= LAST_CLIENT_EPOCH and claimed.producer_epoch == 0


def refusal(before: Slots, written: Sequence[Written], after: Slots) -> str | None:
    """Why a micro-batch must not be committed, None if it may be.

    `before` and `after`: what the slots had before the tasks started, and have when all of them are done.
    """
    return _refused_claim(before, written, after) or _refused_count(written)


def _refused_claim(before: Slots, written: Sequence[Written], after: Slots) -> str | None:
    """Why not to commit, None if each slot was claimed once, by the attempt that reported."""
    claims: dict[int, ProducerIdAndEpoch] = {}
    for found in written:
        if found.slot not in before:
            return f"a task reported slot {found.slot}, which is none of this write"
        if claims.setdefault(found.slot, found.claim) != found.claim:
            return f"two attempts reported for slot {found.slot}"
    for slot, known in before.items():
        claim = claims.get(slot)
        if claim is None and after[slot] == known:
            continue  # a task without rows is not always started
        if claim is None or after[slot] != claim or not follows(claim, known):
            return f"slot {slot} was claimed by more than one attempt"
    return None


def _refused_count(written: Sequence[Written]) -> str | None:
    """Why not to commit, None if each topic-partition comes from one task, and every row of a task is acknowledged."""
    owners: dict[TopicPartition, int] = {}
    acknowledged: Counter[int] = Counter()
    for found in written:
        if found.topic is None or found.partition is None:
            continue
        at = TopicPartition(found.topic, found.partition)
        if owners.setdefault(at, found.slot) != found.slot:
            return f"{at.topic}-{at.partition} was written by two tasks"
        if found.first_offset < 0 or found.last_offset - found.first_offset + 1 < found.records:
            return (
                f"{found.records} records of slot {found.slot} are said to be in {at.topic}-{at.partition} from offset "
                f"{found.first_offset} to {found.last_offset}"
            )
        acknowledged[found.slot] += found.records
    for found in written:
        if acknowledged[found.slot] != found.rows:
            return f"slot {found.slot} was given {found.rows} rows, and {acknowledged[found.slot]} are acknowledged"
    return None
