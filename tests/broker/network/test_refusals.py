"""What is said of requests that are refused: each reason once, however often it is given."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.network.refusals import ADVICE, MOST_ERRORS, report
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AddPartitionsToTxnRequest, TxnOffsetCommitRequest, WriteTxnMarkersRequest

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


def test_of_a_large_answer_no_more_errors_are_looked_at_than_are_told() -> None:
    """Whoever refuses a million partitions does not keep others waiting for what is only said of it."""
    looked = 0

    def partitions() -> Iterator[Any]:
        nonlocal looked
        for _ in range(10 * MOST_ERRORS):
            looked += 1
            yield SimpleNamespace(error_code=ErrorCode.INVALID_TXN_STATE)

    request = TxnOffsetCommitRequest(transactional_id="t", group_id="g", producer_id=7, producer_epoch=2, topics=[])
    context: Any = SimpleNamespace(client_id="c", host="/127.0.0.1")
    report(request, SimpleNamespace(topics=[SimpleNamespace(partitions=partitions())]), context)
    assert looked <= MOST_ERRORS + 1


def test_of_several_markers_in_one_request_each_refusal_names_its_own_producer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def asked(producer_id: int) -> Any:
        return SimpleNamespace(producer_id=producer_id, producer_epoch=producer_id + 1)

    def answered(producer_id: int, error: int) -> Any:
        topic = SimpleNamespace(partitions=[SimpleNamespace(error_code=error)])
        return SimpleNamespace(producer_id=producer_id, topics=[topic])

    caplog.set_level(logging.INFO, LOGGER)
    request = WriteTxnMarkersRequest(markers=[asked(1), asked(2), asked(3)])
    answer = SimpleNamespace(markers=[answered(3, 47), answered(1, 0), answered(2, 47)])
    report(request, answer, SimpleNamespace(client_id="c", host="/127.0.0.1"))  # type: ignore[arg-type]
    told = [message.partition(" client=")[0].partition("producer_id=")[2] for message in caplog.messages]
    assert told == ["3 epoch=4", "2 epoch=3"]


def test_of_several_transactions_in_one_request_each_refusal_names_its_own(caplog: pytest.LogCaptureFixture) -> None:
    def asked(name: str, producer_id: int) -> Any:
        return SimpleNamespace(transactional_id=name, producer_id=producer_id, producer_epoch=producer_id + 1)

    def answered(name: str, *errors: int) -> Any:
        parts = [SimpleNamespace(partition_error_code=error) for error in errors]
        return SimpleNamespace(transactional_id=name, topic_results=[SimpleNamespace(results_by_partition=parts)])

    caplog.set_level(logging.INFO, LOGGER)
    request = AddPartitionsToTxnRequest(transactions=[asked("one", 1), asked("two", 2), asked("three", 3)])
    results = [answered("three", 49), answered("two", 0, 0), answered("one", 0, 53)]
    answer = SimpleNamespace(error_code=0, results_by_transaction=results, results_by_topic=[])
    report(request, answer, SimpleNamespace(client_id="c", host="/127.0.0.1"))  # type: ignore[arg-type]
    told = [message.partition(" client=")[0].partition(" with ")[2] for message in caplog.messages]
    assert told == [
        "INVALID_PRODUCER_ID_MAPPING transactional_id=three producer_id=3 epoch=4",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED transactional_id=one producer_id=1 epoch=2",
    ]
