"""Error codes: Kafka's names and numbers, which of them are worth a retry, and how they are raised."""

from __future__ import annotations

import kafka.errors as kafka_python
import kio.schema.errors
import pytest

from fencepost.protocol.errors import ErrorCode, KafkaError


def test_names_and_numbers_are_kafkas() -> None:
    theirs = {int(code): code.name for code in kio.schema.errors.ErrorCode}
    assert {code.value: code.name for code in ErrorCode} == {number: name.upper() for number, name in theirs.items()}


def test_kio_agrees_on_what_to_retry() -> None:
    theirs = {code.value for code in kio.schema.errors.ErrorCode if code.retriable}
    assert {code.value for code in ErrorCode if code.retriable} == theirs


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.ILLEGAL_GENERATION,
    ],
)
def test_what_fences_or_breaks_a_transaction_is_not_sent_again(code: ErrorCode) -> None:
    assert not code.retriable


def test_an_error_says_its_name() -> None:
    error = KafkaError(90, "a newer producer has the id")
    assert error.code is ErrorCode.PRODUCER_FENCED
    assert str(error) == "PRODUCER_FENCED: a newer producer has the id"
    assert str(KafkaError(90)) == "PRODUCER_FENCED"


def test_a_code_of_a_newer_broker_stays_a_number() -> None:
    error = KafkaError(9999)
    assert error.code == 9999
    assert str(error) == "error 9999"


def test_kafka_python_knows_the_same_numbers() -> None:
    numbers = {code.value for code in ErrorCode}
    for theirs in vars(kafka_python).values():
        if isinstance(theirs, type) and isinstance(errno := getattr(theirs, "errno", None), int) and errno > 0:
            assert errno in numbers, theirs
