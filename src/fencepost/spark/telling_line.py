"""Finds the one line of an error that says what failed: Spark's errors hold tracebacks of Python and Java as well."""

from __future__ import annotations

from typing import Final

from fencepost.spark.advice import for_a_pipeline

_TRACEBACK: Final = "Traceback (most recent call last):"
_LONGEST: Final = 300
_NAMED: Final = ("Error: ", "Exception: ")


def telling_line(error: Exception) -> str:
    """The error of the last traceback of Python that is in the text; where there is none, of the last error it names.

    Of a message of several lines the first, with the one behind it if that is what a colon at its end announces.
    """
    lines = [line for line in str(error).splitlines() if line.strip()]
    return for_a_pipeline(" ".join(map(str.strip, _of_a_traceback(lines) or _named(lines))))[:_LONGEST]


def _of_a_traceback(lines: list[str]) -> list[str]:
    begins = [place for place, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    if not begins:
        return []
    # Frames are indented, up to the error.
    ends = (place for place in range(begins[-1] + 1, len(lines)) if not lines[place][0].isspace())
    first = next(ends, None)
    if first is None:
        return []
    return lines[first : first + (2 if lines[first].rstrip().endswith(":") else 1)]


def _named(lines: list[str]) -> list[str]:
    named = [line for line in lines if any(mark in line for mark in _NAMED)]
    return named[-1:] or lines[:1] or ["?"]
