"""The last line of what Python prints of a query that failed."""

from __future__ import annotations

import traceback

import pytest

from fencepost.client.errors import TimedOutError
from fencepost.spark.explained import sentence_of

PLAN = """ SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 1, runId = 2]
Current Available Offsets: {Stream@1: {"in": {"0": 29}}}

Logical Plan:
SomeError: of the plan
+- ~Project [key#9, value#10]"""
FIRST = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "


def raised(error: Exception) -> str:
    """As Spark quotes what a function of Python raised."""
    try:
        raise error
    except Exception:
        return (
            FIRST + "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred. Reason: " + traceback.format_exc().rstrip()
        )


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("there is no topic 'out': make it"), "ValueError: there is no topic 'out': make it"),
        (TimedOutError("reading: no answer"), "fencepost.client.errors.TimedOutError: reading: no answer"),
        (KeyError("a\nb"), r"KeyError: 'a\nb'"),
        (RuntimeError("first\n  +- more of it"), "RuntimeError: first"),
    ],
)
def test_it_says_what_was_raised(error: Exception, sentence: str) -> None:
    assert sentence_of(raised(error) + PLAN) == sentence


def test_of_several_that_were_raised_it_says_the_one_that_ended_the_query() -> None:
    """A traceback begins with what was being handled, or was the cause."""
    try:
        raise OSError("the cause")
    except OSError as cause:
        error = ValueError("what ended it")
        error.__cause__ = cause
    assert "the cause" in raised(error)
    assert sentence_of(raised(error) + PLAN) == "ValueError: what ended it"


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            FIRST + "[UNRESOLVED_COLUMN] A column cannot be resolved: SQLSTATE: 42703" + PLAN,
            "[UNRESOLVED_COLUMN] A column cannot be resolved:",
        ),
        (FIRST + "Job aborted due to stage failure" + PLAN, "Job aborted due to stage failure"),
        ("something else", None),
        ("", None),
    ],
)
def test_it_says_what_spark_says_where_python_raised_nothing(message: str, sentence: str | None) -> None:
    assert sentence_of(message) == sentence
