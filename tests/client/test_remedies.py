"""What to do about each error code."""

from __future__ import annotations

import pytest

from fencepost.client.remedies import ADVICE, Remedy, advice_on
from fencepost.protocol.errors import ErrorCode

ERRORS = [error for error in ErrorCode if error]


@pytest.mark.parametrize("error", ERRORS)
def test_every_code_has_one_remedy_and_says_what_to_do(error: ErrorCode) -> None:
    advice = ADVICE[error]
    assert len(advice.what_next.split()) >= 4 and not advice.what_next.endswith(".")
    assert advice.what_next[0].isupper()


@pytest.mark.parametrize("error", ERRORS)
def test_what_passes_by_itself_is_tried_again(error: ErrorCode) -> None:
    assert advice_on(error).remedy is Remedy.RETRY or not error.retriable


@pytest.mark.parametrize("code", [134, 999, -7])
def test_a_code_of_a_newer_broker_is_not_tried_again(code: int) -> None:
    assert advice_on(code) == ADVICE[ErrorCode.UNKNOWN_SERVER_ERROR]
    assert advice_on(code).remedy is Remedy.STOP


def test_who_was_replaced_is_not_made_anew() -> None:
    """Two of them would fence each other for ever."""
    for code in (ErrorCode.PRODUCER_FENCED, ErrorCode.FENCED_INSTANCE_ID):
        assert advice_on(code).remedy is Remedy.STOP
