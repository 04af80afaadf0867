"""The last line of what Python prints of a query that failed."""

from __future__ import annotations

import traceback

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from fencepost.client.errors import TimedOutError
from fencepost.spark.explained import ExplainedQuery, sentence_of

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


def test_it_says_what_our_code_raised_and_not_what_spark_made_of_it() -> None:
    made_of_it = "\npyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_FAILED] it failed"
    assert sentence_of(raised(ValueError("what ended it")) + made_of_it + PLAN) == "ValueError: what ended it"


@pytest.mark.parametrize("waits", ["awaitTermination", "processAllAvailable"])
def test_whoever_waits_for_a_query_that_failed_is_told_why_in_a_note(
    waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StreamingQueryException(message=raised(ValueError("what ended it")) + PLAN)

    monkeypatch.setattr(StreamingQuery, waits, fails)
    with pytest.raises(StreamingQueryException) as told:
        getattr(ExplainedQuery(None), waits)()
    assert told.value.__notes__ == ["ValueError: what ended it"]


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


@pytest.mark.parametrize(
    "words",
    ["Python worker failed to connect back.", "Timed out while waiting for the Python worker to connect back after 1"],
)
def test_where_python_did_not_start_in_time_it_says_what_to_do(words: str) -> None:
    """As on a machine that has much else to do: it is no fault of the query."""
    sentence = sentence_of(FIRST + words + PLAN)
    assert sentence is not None and sentence.startswith(words.rstrip(".") + ": ")
    assert sentence.endswith("start the query again")
