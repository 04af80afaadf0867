"""What an error means to a producer (facts §9.5, §9.6)."""

from __future__ import annotations

import pytest

from fencepost.client.outcomes import OUTCOMES, Outcome, outcome_of
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


@pytest.mark.promise("588.produce")
@pytest.mark.parametrize("request_name", ["AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"])
@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
def test_an_old_epoch_is_asked_about_before_it_is_taken_for_fencing(request_name: str, error: ErrorCode) -> None:
    assert outcome_of(request_name, error) is Outcome.STALE
