"""What an error means to a producer (facts §9.5, §9.6)."""

from __future__ import annotations

import pytest

from fencepost.client.outcomes import MAYBE_WRITTEN, OUTCOMES, Outcome, Verdict, outcome_of, verdict_of
from fencepost.protocol.errors import ErrorCode


@pytest.mark.parametrize("request_name", OUTCOMES)
@pytest.mark.parametrize("error", ErrorCode)
def test_every_error_has_one_meaning(request_name: str, error: ErrorCode) -> None:
    outcome = outcome_of(request_name, error)
    if error is ErrorCode.NONE:
        assert outcome is Outcome.DONE
    elif error in OUTCOMES[request_name]:
        assert outcome is OUTCOMES[request_name][error]
    elif error.retriable:
        assert outcome is Outcome.RETRY
    else:
        assert outcome is (Outcome.ABORTABLE if request_name == "Produce" else Outcome.FATAL)


def test_a_batch_that_the_broker_had_already_is_done() -> None:
    assert outcome_of("Produce", ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is Outcome.DONE


@pytest.mark.parametrize("error", ErrorCode)
def test_a_batch_may_be_written_although_a_leader_answers_an_error(error: ErrorCode) -> None:
    """It was appended, and then something else went wrong; or nobody knows."""
    after_the_append = {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
    assert (error in MAYBE_WRITTEN) == (error in after_the_append)
    assert error not in MAYBE_WRITTEN or outcome_of("Produce", error) is Outcome.RETRY


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
