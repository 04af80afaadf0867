"""What is said of requests that are refused: each reason once, however often it is given."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.network.refusals import ADVICE, report
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import TxnOffsetCommitRequest

LOGGER = "fencepost.broker.network.refusals"


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ([0], []),
        ([49], [49]),
        ([49, 0, 49, 90], [49, 90]),
        ([3, 53, 3], [53]),
        ([3, 16], []),
        ([0] * 3 + [49] * 500, [49]),
    ],
)
def test_every_reason_is_said_once_and_what_is_everyday_life_is_not(
    errors: list[int], said: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    request = TxnOffsetCommitRequest(transactional_id="t", group_id="g", producer_id=7, producer_epoch=2, topics=[])
    partitions = [SimpleNamespace(error_code=error) for error in errors]
    context: Any = SimpleNamespace(client_id="c", host="/127.0.0.1")
    report(request, SimpleNamespace(topics=[SimpleNamespace(partitions=partitions)]), context)
    assert caplog.messages == [
        f"refused TxnOffsetCommit with {ErrorCode(error).name} transactional_id=t producer_id=7 epoch=2 client=c "
        f"host=/127.0.0.1: {ADVICE[ErrorCode(error)]}"
        for error in said
    ]


@pytest.mark.parametrize(
    ("error", "epoch", "level"),
    [
        (ErrorCode.PRODUCER_FENCED, 0, logging.INFO),
        (ErrorCode.PRODUCER_FENCED, -1, logging.WARNING),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 2, logging.INFO),
        (ErrorCode.INVALID_PRODUCER_EPOCH, -2, logging.WARNING),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 2, logging.WARNING),
    ],
)
def test_a_producer_that_was_replaced_is_everyday_life_and_one_that_never_was_is_not(
    error: ErrorCode, epoch: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    request = TxnOffsetCommitRequest(transactional_id="t", group_id="g", producer_id=7, producer_epoch=epoch, topics=[])
    context: Any = SimpleNamespace(client_id="c", host="/127.0.0.1")
    answered = SimpleNamespace(topics=[SimpleNamespace(partitions=[SimpleNamespace(error_code=error)])])
    report(request, answered, context)
    assert [record.levelno for record in caplog.records] == [level]
