"""Random walks through both nodes at every level of transaction.version: they differ only where a list says so."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from benchmarks.apache_kafka import NoPeer, apache_kafka
from benchmarks.fencepost_node import fencepost_node
from tests.compare.coordinator.differential import NOBODY, VERSIONS, Answer, Node, Step, walk
from tests.seeds import seeds

from fencepost.client.blocking import Admin
from fencepost.coordinator.transaction.differences import DIFFERENCES
from fencepost.protocol.errors import ErrorCode

WALKS = 400
STEPS = 12
IDLE = ("Empty", "CompleteCommit", "CompleteAbort")

Explanation = Callable[[Step, Answer, Answer, list[Step]], bool]


def keeps_the_open_transaction(step: Step, theirs: Answer, ours: Answer, _: list[Step]) -> bool:
    """InitProducerId with an epoch that is not the current one, while a transaction is open."""
    refusals = (ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    opened = theirs.error == ErrorCode.CONCURRENT_TRANSACTIONS and ours.state == "Ongoing"
    return step.request == "init" and step.pair != NOBODY and opened and ours.error in refusals


def repeats_its_answer(step: Step, theirs: Answer, ours: Answer, _: list[Step]) -> bool:
    """InitProducerId with an earlier pair of this instance, or one whose transaction this call had aborted."""
    fenced = theirs.error in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    return step.request == "init" and fenced and ours.error == ErrorCode.NONE and theirs.state in IDLE


def refuses_a_transaction_of_nobody(step: Step, theirs: Answer, ours: Answer, _: list[Step]) -> bool:
    """Produce with the transactional bit and no producer id: Apache Kafka appends it, and everybody sees it."""
    accepted = theirs.error == ErrorCode.NONE and ours.error == ErrorCode.INVALID_RECORD
    return step.request == "produce" and step.pair.producer_id == -1 and accepted


def forgets_refused_sequences(step: Step, theirs: Answer, ours: Answer, before: list[Step]) -> bool:
    """Produce after a batch of a future epoch was refused: Apache Kafka remembers its sequence."""
    foreign = any(past.request == "produce" and past.pair.producer_epoch > step.pair.producer_epoch for past in before)
    lost = theirs.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and ours.error == ErrorCode.NONE
    return step.request == "produce" and foreign and lost


def is_not_blocked_by_a_refused_request(step: Step, theirs: Answer, _: Answer, before: list[Step]) -> bool:
    """At level 0, after a request of level 2: Apache Kafka answers 51 until a failover."""
    return theirs.error == ErrorCode.CONCURRENT_TRANSACTIONS and any(
        (past.version == VERSIONS[past.request][-1] and past.request in ("produce", "end", "commit_offsets", "add"))
        or (past.request == "add" and past.version >= 4)
        for past in [*before, step]
    )


def hands_no_pair_to_a_fenced_instance(step: Step, theirs: Answer, ours: Answer, before: list[Step]) -> bool:
    """EndTxn v5 with the pair before the current one, after an end by an older version, which bumps nothing."""
    ended_before = any(past.request == "end" and past.version < 5 for past in before)
    taken = theirs.error in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS)
    one_back = (
        step.request == "end" and step.version >= 5 and step.pair.producer_epoch == ours.current.producer_epoch - 1
    )
    return ended_before and one_back and taken and ours.error == ErrorCode.PRODUCER_FENCED


#: Why an answer may differ, and at which levels: what the coordinator lists (DIFFERENCES), and two traps of the leader.
EXPLANATIONS: dict[Explanation, tuple[int, ...]] = {
    keeps_the_open_transaction: (0, 1, 2),
    repeats_its_answer: (0, 1, 2),
    hands_no_pair_to_a_fenced_instance: (0, 1, 2),
    refuses_a_transaction_of_nobody: (0, 1, 2),
    forgets_refused_sequences: (0, 1, 2),
    is_not_blocked_by_a_refused_request: (0,),
}


def difference(kafka: Node, ours: Node, level: int, seed: int) -> list[str]:
    """The steps to the first difference that nothing explains; none if there is none."""
    name = f"walk-{level}-{seed}"
    kafka.begin(name)
    ours.begin(name)
    steps = walk(random.Random(seed), STEPS, tv2=level == 2)
    step = next(steps)
    before: list[Step] = []
    history: list[str] = []
    while True:
        theirs, found = kafka.take(step), ours.take(step)
        history.append(f"{step}\n    kafka:     {theirs}\n    fencepost: {found}")
        if theirs != found:
            explained = any(
                level in levels and explains(step, theirs, found, before) for explains, levels in EXPLANATIONS.items()
            )
            return [] if explained else history
        before.append(step)
        try:
            step = steps.send(theirs)
        except StopIteration:
            return []


@pytest.mark.compare
@pytest.mark.parametrize("level", [2, 1, 0])
def test_every_answer_is_apache_kafkas_or_has_a_listed_reason(level: int) -> None:
    try:
        with apache_kafka(features={"transaction.version": level}) as (theirs, _), fencepost_node() as (ours, _, _):
            with Admin(ours) as admin:
                admin.update_feature("transaction.version", level)
            kafka, fencepost = Node(theirs), Node(ours)
            kafka.prepare()
            fencepost.prepare()
            faults = [fault for seed in seeds(WALKS) if (fault := difference(kafka, fencepost, level, seed))]
    except NoPeer as reason:
        pytest.skip(str(reason))
    assert not faults, f"{len(faults)} walks differ; the first one:\n" + "\n".join(faults[0])


def test_every_listed_difference_names_its_source() -> None:
    assert all(entry.source and entry.reason and entry.kafka != entry.ours for entry in DIFFERENCES)
