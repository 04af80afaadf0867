"""Random walks through both nodes at every level of transaction.version: they differ only where a list says so."""

from __future__ import annotations

import random

import pytest
from tests.compare.coordinator.one_id import PARTITIONS, TOPIC, VERSIONS, Coordinator, Step, walk
from tests.compare.nodes.comparison import Comparison, Explanation, Findings, Seen
from tests.compare.nodes.twins import NOBODY
from tests.compare.nodes.two_nodes import two_nodes
from tests.seeds import seeds

from fencepost.coordinator.transaction.differences import DIFFERENCES
from fencepost.protocol.errors import ErrorCode

WALKS = 400
STEPS = 12
IDLE = ("Empty", "CompleteCommit", "CompleteAbort")


def keeps_the_open_transaction(seen: Seen) -> bool:
    """InitProducerId with an epoch that is not the current one, while a transaction is open."""
    step, (theirs, ours) = seen.step, seen.answers
    refusals = (ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    opened = theirs.error == ErrorCode.CONCURRENT_TRANSACTIONS and ours.state == "Ongoing"
    return bool(step.request == "init" and step.pair != NOBODY and opened and ours.error in refusals)


def repeats_its_answer(seen: Seen) -> bool:
    """InitProducerId with an earlier pair of this instance, or one whose transaction this call had aborted."""
    theirs, ours = seen.answers
    fenced = theirs.error in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    return bool(seen.step.request == "init" and fenced and ours.error == ErrorCode.NONE and theirs.state in IDLE)


def refuses_a_transaction_of_nobody(seen: Seen) -> bool:
    """Produce with the transactional bit and no producer id: Apache Kafka appends it, and everybody sees it."""
    theirs, ours = seen.answers
    accepted = theirs.error == ErrorCode.NONE and ours.error == ErrorCode.INVALID_RECORD
    return bool(seen.step.request == "produce" and seen.step.pair.producer_id == -1 and accepted)


def forgets_refused_sequences(seen: Seen) -> bool:
    """Produce after a batch of a future epoch was refused: Apache Kafka remembers its sequence."""
    theirs, ours = seen.answers
    epoch = seen.step.pair.producer_epoch
    foreign = any(past.request == "produce" and past.pair.producer_epoch > epoch for past in _before(seen))
    lost = theirs.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and ours.error == ErrorCode.NONE
    return seen.step.request == "produce" and foreign and lost


def is_not_blocked_by_a_refused_request(seen: Seen) -> bool:
    """At level 0, after a request of level 2: Apache Kafka answers 51 until a failover."""
    return seen.answers[0].error == ErrorCode.CONCURRENT_TRANSACTIONS and any(
        (past.version == VERSIONS[past.request][-1] and past.request in ("produce", "end", "commit_offsets", "add"))
        or (past.request == "add" and past.version >= 4)
        for past in [*_before(seen), seen.step]
    )


def hands_no_pair_to_a_fenced_instance(seen: Seen) -> bool:
    """EndTxn v5 with the pair before the current one, after an end by an older version, which bumps nothing."""
    step, (theirs, ours) = seen.step, seen.answers
    ended_before = any(past.request == "end" and past.version < 5 for past in _before(seen))
    taken = theirs.error in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS)
    one_back = (
        step.request == "end" and step.version >= 5 and step.pair.producer_epoch == ours.current.producer_epoch - 1
    )
    return ended_before and one_back and taken and ours.error == ErrorCode.PRODUCER_FENCED


def _before(seen: Seen) -> list[Step]:
    return [past.step for past in seen.before]


#: Why an answer may differ, and at which levels: what the coordinator lists (DIFFERENCES), and two traps of the leader.
EXPLANATIONS: dict[Explanation, tuple[int, ...]] = {
    keeps_the_open_transaction: (0, 1, 2),
    repeats_its_answer: (0, 1, 2),
    hands_no_pair_to_a_fenced_instance: (0, 1, 2),
    refuses_a_transaction_of_nobody: (0, 1, 2),
    forgets_refused_sequences: (0, 1, 2),
    is_not_blocked_by_a_refused_request: (0,),
}


@pytest.mark.compare
@pytest.mark.parametrize("level", [2, 1, 0])
def test_every_answer_is_apache_kafkas_or_has_a_listed_reason(level: int) -> None:
    findings = Findings(EXPLANATIONS, level)
    with two_nodes(level=level) as nodes:
        nodes.make_topics({TOPIC: PARTITIONS})
        kafka, ours = (Coordinator(address) for address in nodes.addresses)
        for seed in seeds(WALKS):
            for node in (kafka, ours):
                node.begin(f"walk-{level}-{seed}")
            comparison = Comparison(f"walk {seed}", (kafka, ours), findings, at_answers=True)
            comparison.go(walk(random.Random(seed), STEPS, tv2=level == 2))
    findings.check()


def test_every_listed_difference_names_its_source() -> None:
    assert all(entry.source and entry.reason and entry.kafka != entry.ours for entry in DIFFERENCES)
