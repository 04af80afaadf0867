"""Adds the cause to the end of a query's error, as a note.

Spark puts it in the middle of its own message, between a traceback and the plan of the query.  Python prints the
notes of an exception last.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

_ABOUT_THE_QUERY: Final = "=== Streaming Query ==="
"""The line in Spark's message before the plan of a query."""
_STATE: Final = re.compile(r"(?: *SQLSTATE: \w+)+ *$")
_OF_PYTHON: Final = re.compile(r"[\w.]*\b[A-Z]\w*: \S")
"""A line of a traceback with the class and message of an exception."""
_OF_SPARK: Final = "terminated with exception: "
_CAME_LATE: Final = "to connect back"
"""Of a process of Python that Spark started, and that was not there in the time which Spark gives it."""
_START_AGAIN: Final = (
    "the machine was too busy to start Python in the ten seconds that Spark gives it. Nothing is wrong with the query: "
    "start the query again"
)


class ExplainedQuery(StreamingQuery):
    """A query of Spark.  The exceptions of its `awaitTermination` and `processAllAvailable` have a note (PEP 678)."""

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        try:
            return super().awaitTermination(timeout)
        except StreamingQueryException as error:
            raise _with_a_note(error) from None

    def processAllAvailable(self) -> None:
        try:
            super().processAllAvailable()
        except StreamingQueryException as error:
            raise _with_a_note(error) from None


def _with_a_note(error: StreamingQueryException) -> StreamingQueryException:
    sentence = sentence_of(str(error))
    if sentence is not None:
        error.add_note(sentence)
    return error


def sentence_of(message: str) -> str | None:
    """The cause in Spark's message on a failed query: Python's exception, else Spark's own words; None: neither."""
    said = [_STATE.sub("", line) for line in message.split(_ABOUT_THE_QUERY)[0].splitlines()]
    raised = [line for line in said if _OF_PYTHON.match(line) and not line.startswith("pyspark.errors.")]
    if raised:
        return raised[-1]
    first = said[0].partition(_OF_SPARK)[2] if said else ""
    if _CAME_LATE in first:
        return f"{first.rstrip('.')}: {_START_AGAIN}"
    return first or None
