"""Why the leader of a partition may answer otherwise than Apache Kafka: the cases of `fencepost.broker.differences`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.compare.leader.batches import Batch
from tests.compare.leader.steps import Delete, End, Find, Mark, Produce
from tests.compare.nodes.comparison import LEVELS, Explanation, Plain, Seen, differences
from tests.compare.nodes.connection import MUTE

_BEHIND = ("one and a half", "bytes behind")


def _batches(seen: Seen) -> list[Batch]:
    return [batch for _, batch, _ in seen.step.parts if batch is not None] if isinstance(seen.step, Produce) else []


def _codes(answer: Plain) -> Iterator[str]:
    """Every error code in an answer."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name == "error_code":
                yield value
            else:
                yield from _codes(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from _codes(value)
    elif isinstance(answer, str):
        yield answer


def _changed(seen: Seen) -> set[tuple[Any, Any]]:
    """The pairs of error codes that differ."""
    theirs, ours = (list(_codes(answer)) for answer in seen.answers)
    return {(a, b) for a, b in zip(theirs, ours, strict=False) if a != b}


def _only(seen: Seen, *pairs: tuple[str, str]) -> bool:
    return bool(_changed(seen)) and _changed(seen) <= set(pairs)


def _defects(seen: Seen) -> set[str]:
    return {batch.defect for batch in _batches(seen)}


def _was_refused(seen: Seen) -> bool:
    """Whether a transactional batch of these producers was refused before."""
    producers = {batch.producer for batch in _batches(seen)}
    return any(
        batch.transactional and batch.producer in producers and any(code != "NONE" for code in _codes(past.answers[0]))
        for past in seen.before
        for batch in _batches(past)
    )


def takes_no_batch_that_a_reader_cannot_read(seen: Seen) -> bool:
    """Apache Kafka appends some, and refuses others with another code."""
    wrong = any(batch.inside or batch.packed for batch in _batches(seen))
    theirs, ours = {"NONE", "UNKNOWN_SERVER_ERROR", "INVALID_RECORD"}, {"INVALID_RECORD", "UNKNOWN_SERVER_ERROR"}
    return wrong and bool(_changed(seen)) and all(a in theirs and b in ours for a, b in _changed(seen))


def drops_nothing_behind_a_batch(seen: Seen) -> bool:
    """Refused at once, so that it counts for nothing: neither as a batch of the request nor for its transaction."""
    if _defects(seen) & set(_BEHIND):
        return bool(
            {"INVALID_RECORD", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "closed"} & set(_codes(seen.answers[1]))
        )
    # Apache Kafka may have added its partition to the transaction, and write a marker there.
    return any(_defects(past) & set(_BEHIND) for past in seen.before) and not differences(*seen.answers)


def opens_no_transaction_of_epoch_minus_1(seen: Seen) -> bool:
    """Where nothing is verified."""
    transactional = [batch for batch in _batches(seen) if batch.transactional]
    epochless = any(batch.epoch == -1 or batch.defect == "epoch -1" for batch in transactional)
    theirs = {"NONE", "OUT_OF_ORDER_SEQUENCE_NUMBER"} if _was_refused(seen) else {"NONE"}
    return epochless and _only(seen, *((code, "INVALID_RECORD") for code in theirs), ("silent", "closed"))


def refuses_a_transaction_of_nobody(seen: Seen) -> bool:
    nobody = any(
        batch.transactional and (batch.producer < 0 or batch.defect in ("producer id -1", "producer id -2"))
        for batch in _batches(seen)
    )
    beside = (("OUT_OF_ORDER_SEQUENCE_NUMBER", "NONE"),) if _was_refused(seen) else ()
    return nobody and _only(seen, ("NONE", "INVALID_RECORD"), ("silent", "closed"), *beside)


def refuses_a_partition_named_twice(seen: Seen) -> bool:
    if not isinstance(seen.step, Produce):
        return False
    places = [(index, topic) for index, _, topic in seen.step.parts]
    return len(set(places)) < len(places) and "INVALID_REQUEST" in set(_codes(seen.answers[1]))


def forgets_refused_sequences(seen: Seen) -> bool:
    """After a transactional batch that was refused: Apache Kafka goes on comparing with its sequence."""
    theirs = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    # While its transaction is open, a batch that is not part of it is refused for that.
    ours = ("NONE",) if all(batch.transactional for batch in _batches(seen)) else ("NONE", "INVALID_TXN_STATE")
    return _was_refused(seen) and _only(seen, *((theirs, each) for each in ours), ("closed", "silent"))


def refuses_a_first_sequence_whatever_was_verified(seen: Seen) -> bool:
    """After a request of v11 or before was refused: Apache Kafka goes by that one, which might begin anywhere."""
    older = any(isinstance(past.step, Produce) and past.step.version < 12 for past in seen.before)
    newer = isinstance(seen.step, Produce) and seen.step.version >= 12
    beyond = any(batch.transactional and batch.sequence > 0 for batch in _batches(seen))
    refused = _was_refused(seen) and _only(seen, ("NONE", "OUT_OF_ORDER_SEQUENCE_NUMBER"), ("silent", "closed"))
    return older and newer and beyond and refused


def answers_markers_that_mute_a_connection(seen: Seen) -> bool:
    return isinstance(seen.step, Mark) and seen.answers[0] == MUTE and seen.states[0] == seen.states[1]


def answers_every_marker_for_itself(seen: Seen) -> bool:
    """Apache Kafka stops at a marker of nobody, and says of those before it that they failed, too."""
    markers = seen.step.markers if isinstance(seen.step, Mark) else ()
    nobody = any(marker.producer == -1 or marker.epoch == -1 for marker in markers)
    return nobody and len(markers) > 1 and {theirs for theirs, _ in _changed(seen)} <= {"UNKNOWN_SERVER_ERROR"}


def keeps_the_last_stable_offset_behind_no_start(seen: Seen) -> bool:
    """Where DeleteRecords has passed the beginning of an open transaction, into the middle of a batch."""
    deleted = any(isinstance(past.step, Delete) for past in (*seen.before, seen))
    latest = isinstance(seen.step, Find) and {time for _, time in seen.step.parts} == {-1}
    found = [*differences(*seen.states), *differences(*seen.answers)]
    return deleted and all(
        (latest or "last_stable_offset" in where or where.startswith(".ends[1]")) and theirs < ours
        for where, theirs, ours in found
    )


def finds_what_is_left_behind_a_deleted_segment(seen: Seen) -> bool:
    """By time, where DeleteRecords has passed a whole segment: Apache Kafka looks for the record there."""
    deleted = any(isinstance(past.step, Delete) for past in seen.before)
    segmented = any(name == "segment_bytes" for name, _ in seen.configs)
    by_time = isinstance(seen.step, Find) and all(time >= 0 for _, time in seen.step.parts)
    nothing = all(theirs == -1 < ours for _, theirs, ours in differences(*seen.answers))
    return deleted and segmented and by_time and nothing and seen.states[0] == seen.states[1]


def tries_markers_again(seen: Seen) -> bool:
    """After a marker that a partition refused (the coordinator's list): Apache Kafka stays in Prepare*."""
    theirs, ours = (state["states"] for state in seen.states)
    stuck = [a for a, b in zip(theirs, ours, strict=True) if a != b]
    return bool(stuck) and all(state.startswith("Prepare") for state, _, _ in stuck)


def is_not_blocked_by_a_refused_request(seen: Seen) -> bool:
    """At level 0, after a request of level 2 (the coordinator's list)."""
    newer = any(
        (isinstance(past.step, Produce) and past.step.version >= 12)
        or (isinstance(past.step, End) and past.step.version >= 5)
        for past in (*seen.before, seen)
    )
    return newer and "CONCURRENT_TRANSACTIONS" in set(_codes(seen.answers[0]))


EXPLANATIONS: dict[Explanation, tuple[int, ...]] = {
    takes_no_batch_that_a_reader_cannot_read: LEVELS,
    drops_nothing_behind_a_batch: LEVELS,
    opens_no_transaction_of_epoch_minus_1: LEVELS,
    refuses_a_transaction_of_nobody: LEVELS,
    refuses_a_partition_named_twice: LEVELS,
    forgets_refused_sequences: LEVELS,
    refuses_a_first_sequence_whatever_was_verified: LEVELS,
    answers_markers_that_mute_a_connection: LEVELS,
    answers_every_marker_for_itself: LEVELS,
    keeps_the_last_stable_offset_behind_no_start: LEVELS,
    finds_what_is_left_behind_a_deleted_segment: LEVELS,
    tries_markers_again: LEVELS,
    is_not_blocked_by_a_refused_request: (0,),
}
