"""Who has a pipeline is told what happened, and is given no advice for a producer of his own."""

from __future__ import annotations

import pytest

from fencepost.client.errors import BrokerError
from fencepost.protocol.errors import ErrorCode
from fencepost.spark.advice import for_a_pipeline


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (str(BrokerError(ErrorCode.INVALID_PRODUCER_EPOCH, "refused")), "INVALID_PRODUCER_EPOCH: refused"),
        (str(BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "no")), "INVALID_PRODUCER_ID_MAPPING: no"),
        (str(BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "2 MB")), "MESSAGE_TOO_LARGE: 2 MB"),
        ("EndTxn of 'app': abort the transaction, then go on", "EndTxn of 'app'"),
        ("the broker has forgotten 'app'. Abort, then go on", "the broker has forgotten 'app'"),
    ],
)
def test_advice_for_a_producer_is_left_out(message: str, told: str) -> None:
    assert for_a_pipeline(message) == told


@pytest.mark.parametrize(
    "message",
    [
        str(BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic 'out' cannot be used")),
        str(BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, "out-0")),
        "slot 0 was claimed by more than one attempt",
        "",
    ],
)
def test_what_helps_a_pipeline_stays(message: str) -> None:
    assert for_a_pipeline(message) == message
