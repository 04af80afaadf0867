"""The situations that a transactional id can be found in, each reached by the coordinator's own decisions.

A situation is a walk: the steps that bring an id there.  A test takes the same steps over the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from fencepost.coordinator.transaction.add_partitions import AddPartitions, add_partitions
from fencepost.coordinator.transaction.decision import Transition
from fencepost.coordinator.transaction.end import End, end
from fencepost.coordinator.transaction.initialize import Initialize, initialize
from fencepost.coordinator.transaction.prepare import complete
from fencepost.coordinator.transaction.timeout import time_out
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.types import (
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER,
    Epoch,
    Milliseconds,
    ProducerId,
    ProducerIdAndEpoch,
    TopicPartition,
)

NOW = Milliseconds(1_700_000_000_000)
TIMEOUT = Milliseconds(60_000)
PRODUCER, FRESH, FOREIGN = ProducerId(10), ProducerId(99), ProducerId(11)
KNOWN, NEW = TopicPartition("in", 0), TopicPartition("new", 0)
#: An id that is brought to the last epoch begins here.
NEAR_THE_LAST_EPOCH = Epoch(32763)


class Step(Enum):
    """One thing that is done to the id."""

    NEW_INSTANCE = "InitProducerId without a pair"
    SAME_INSTANCE = "InitProducerId with the current pair"
    ADD = "the first partition is added"
    COMMIT = "EndTxn(commit)"
    ABORT = "EndTxn(abort)"
    TIME_OUT = "the transaction's time-out"
    RECOVER = "InitProducerId with the pair that was timed out"
    KEEP = "InitProducerId v6 without a pair, to keep the prepared transaction"
    MARKERS = "every marker is written"


class Situation(NamedTuple):
    """A row of the tables.  `near_the_end`: the id begins three epochs before the last one."""

    name: str
    walk: tuple[Step, ...]
    near_the_end: bool = False


_ENDS: Mapping[str, tuple[Step, ...]] = {
    "PrepareCommit": (Step.COMMIT,),
    "PrepareAbort": (Step.ABORT,),
    "PrepareAbort, by a time-out": (Step.TIME_OUT,),
    "CompleteCommit": (Step.COMMIT, Step.MARKERS),
    "CompleteAbort": (Step.ABORT, Step.MARKERS),
    "CompleteAbort, by a time-out": (Step.TIME_OUT, Step.MARKERS),
    "Empty, recovered from a time-out": (Step.TIME_OUT, Step.MARKERS, Step.RECOVER),
    "Ongoing, kept for a new producer": (Step.KEEP,),
}
_BUMPS = (Step.SAME_INSTANCE,) * 3


def _situations(before: tuple[Step, ...], near_the_end: bool) -> tuple[Situation, ...]:
    return (
        Situation("Empty", before, near_the_end),
        Situation("Ongoing", (*before, Step.ADD), near_the_end),
        *(Situation(name, (*before, Step.ADD, *ends), near_the_end) for name, ends in _ENDS.items()),
    )


#: Held by the producer that came second, at its fourth epoch or later.
MIDDLE = (Situation("no such id", ()), *_situations((Step.NEW_INSTANCE, Step.NEW_INSTANCE, *_BUMPS), False))
#: The last epoch that a client may hold, and the new producer id that replaces it.
LAST = (
    *_situations(_BUMPS, True),
    Situation("Empty, replaced by its own producer", (*_BUMPS, Step.SAME_INSTANCE), True),
    Situation("Empty, replaced by a new producer", (*_BUMPS, Step.NEW_INSTANCE), True),
    Situation("Ongoing, replaced", (*_BUMPS, Step.SAME_INSTANCE, Step.ADD), True),
)


def callers(situation: Situation, of: TransactionMetadata) -> dict[str, ProducerIdAndEpoch | None]:
    """Who may come, and the pair that he comes with; None where there is no such pair."""
    current, first = of.current, of.instance_epoch
    absent = current.producer_epoch < 0
    columns: dict[str, ProducerIdAndEpoch | None] = {"no pair": NO_PRODUCER, "current": None if absent else current}
    if situation.near_the_end:
        columns["(P, 32766)"] = ProducerIdAndEpoch(PRODUCER, Epoch(32766))
        columns["(P, 32765)"] = ProducerIdAndEpoch(PRODUCER, Epoch(32765))
        columns["(P, 32762), an older instance"] = ProducerIdAndEpoch(PRODUCER, Epoch(NEAR_THE_LAST_EPOCH - 1))
        # Whoever ended the transaction was told already; whoever was timed out was not.
        told = of.is_prepared and of.next_producer_id >= 0 and of.timed_out == NO_PRODUCER
        columns["what it becomes"] = ProducerIdAndEpoch(of.next_producer_id, Epoch(0)) if told else None
    else:
        columns["one back"] = (
            None if absent else ProducerIdAndEpoch(current.producer_id, Epoch(current.producer_epoch - 1))
        )
        columns["first of this instance"] = None if absent else ProducerIdAndEpoch(current.producer_id, first)
        columns["older instance"] = None if absent else ProducerIdAndEpoch(current.producer_id, Epoch(first - 1))
    ahead = Epoch(current.producer_epoch + 1)
    columns["ahead"] = None if absent or ahead > MAX_PRODUCER_EPOCH else ProducerIdAndEpoch(current.producer_id, ahead)
    columns["another producer id"] = ProducerIdAndEpoch(FOREIGN, Epoch(max(current.producer_epoch, 0)))
    return columns


def begin(situation: Situation) -> TransactionMetadata:
    """The id before the first step."""
    if not situation.near_the_end:
        return TransactionMetadata("id", PRODUCER)
    return TransactionMetadata(
        "id", PRODUCER, NEAR_THE_LAST_EPOCH, PRODUCER, timeout_ms=TIMEOUT, instance_epoch=NEAR_THE_LAST_EPOCH
    )


def reach(situation: Situation, level: int) -> TransactionMetadata:
    """The id after the last step, all taken at one level of transaction.version."""
    of = begin(situation)
    for step in situation.walk:
        of = take(of, step, level)
    return of


def take(of: TransactionMetadata, step: Step, level: int) -> TransactionMetadata:
    """One step."""
    if step is Step.MARKERS:
        return complete(of, NOW)
    if step in (Step.COMMIT, Step.ABORT):
        decision: object = end(of, End(*of.current, step is Step.COMMIT, 5 if level == 2 else 4), NOW, level, FRESH)
    elif step is Step.ADD:
        decision = add_partitions(of, AddPartitions(*of.current, [KNOWN], level), NOW, level)
    elif step is Step.TIME_OUT:
        decision = time_out(of, level, NOW, FRESH)
    else:
        pairs = {Step.SAME_INSTANCE: of.current, Step.RECOVER: of.timed_out}
        request = Initialize(pairs.get(step, NO_PRODUCER), TIMEOUT, keep_prepared=step is Step.KEEP)
        decision = initialize(of, request, NOW, level, FRESH)
    assert isinstance(decision, Transition), f"{step} leads nowhere from {of}: {decision}"
    return decision.to
