"""What an error means to a producer (facts §9.5, §9.6)."""

from __future__ import annotations

import pytest

from fencepost.client.outcomes import MAYBE_WRITTEN, OUTCOMES, Outcome, Verdict, outcome_of, verdict_of
from fencepost.protocol.errors import ErrorCode

E = ErrorCode
#: What ends the transaction, and leaves its producer as good as it was, whichever of these requests is answered so.
ENDS_THE_TRANSACTION = {E.TRANSACTION_ABORTABLE, E.UNKNOWN_PRODUCER_ID, E.INVALID_TXN_STATE}
#: request -> what ends the transaction besides
ENDS_IT_TOO = {
    "AddPartitionsToTxn": {E.TOPIC_AUTHORIZATION_FAILED, E.OPERATION_NOT_ATTEMPTED},
    "AddOffsetsToTxn": {E.GROUP_AUTHORIZATION_FAILED},
    "TxnOffsetCommit": {
        *(E.GROUP_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED, E.OFFSET_METADATA_TOO_LARGE, E.INVALID_GROUP_ID),
        # The consumer has lost its place in the group: its positions are refused, and another one reads on.
        *(E.FENCED_INSTANCE_ID, E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND, E.STALE_MEMBER_EPOCH),
    },
    "EndTxn": set[E](),
}
MOVED = {E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR}
OLD_PAIR = {E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING}
#: What no later transaction of the producer would be spared, where a leader says it; anything else ends this one.
ENDS_THE_PRODUCER = {
    *(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED),
    *(E.UNSUPPORTED_VERSION, E.UNSUPPORTED_FOR_MESSAGE_FORMAT),
}


def of_coordinator(request: str, error: ErrorCode) -> Outcome:
    if error in MOVED or (request == "TxnOffsetCommit" and error is E.REQUEST_TIMED_OUT):
        return Outcome.FIND_COORDINATOR
    if error.retriable:
        return Outcome.RETRY
    if request == "InitProducerId":  # asked with an old pair it says who has the id
        return Outcome.FATAL
    if error in OLD_PAIR or error is E.INVALID_PRODUCER_EPOCH:
        return Outcome.STALE
    ends_it = error in ENDS_THE_TRANSACTION or error in ENDS_IT_TOO[request]
    return Outcome.ABORTABLE if ends_it else Outcome.FATAL


def of_leader(error: ErrorCode) -> Outcome:
    if error is E.DUPLICATE_SEQUENCE_NUMBER:
        return Outcome.DONE
    if error in OLD_PAIR:
        return Outcome.STALE
    if error.retriable:
        return Outcome.RETRY
    return Outcome.FATAL if error in ENDS_THE_PRODUCER else Outcome.ABORTABLE


@pytest.mark.parametrize("request_name", OUTCOMES)
@pytest.mark.parametrize("error", ErrorCode)
def test_what_an_error_ends(request_name: str, error: ErrorCode) -> None:
    """The request, which is made again, the transaction or the producer (facts §9.5, §9.6)."""
    if not error:
        expected = Outcome.DONE
    else:
        expected = of_leader(error) if request_name == "Produce" else of_coordinator(request_name, error)
    assert outcome_of(request_name, error) is expected


@pytest.mark.parametrize("error", ErrorCode)
def test_a_batch_may_be_written_although_a_leader_answers_an_error(error: ErrorCode) -> None:
    """It was appended, and then something else went wrong; or nobody knows."""
    after_the_append = {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
    assert (error in MAYBE_WRITTEN) == (error in after_the_append or error is ErrorCode.UNKNOWN_SERVER_ERROR)
    assert error not in after_the_append or outcome_of("Produce", error) is Outcome.RETRY


@pytest.mark.promise("588.produce")
@pytest.mark.parametrize("request_name", ["AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"])
@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
def test_an_old_epoch_is_asked_about_before_it_is_taken_for_fencing(request_name: str, error: ErrorCode) -> None:
    assert outcome_of(request_name, error) is Outcome.STALE


@pytest.mark.parametrize("is_behind", [True, False])
@pytest.mark.parametrize("can_be_split", [True, False])
@pytest.mark.parametrize("error", ErrorCode)
def test_a_batch_is_sent_again_or_fails_or_is_split(error: ErrorCode, can_be_split: bool, is_behind: bool) -> None:
    """A batch behind another one that has its turn yet is out of order for that, and not for good."""
    expected = {
        Outcome.DONE: Verdict.WRITTEN,
        Outcome.RETRY: Verdict.AGAIN,
    }.get(outcome_of("Produce", error), Verdict.FAILED)
    if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and is_behind:
        expected = Verdict.AGAIN
    elif error is ErrorCode.MESSAGE_TOO_LARGE and can_be_split:
        expected = Verdict.SPLIT
    assert verdict_of(error, is_behind=is_behind, can_be_split=can_be_split) is expected
