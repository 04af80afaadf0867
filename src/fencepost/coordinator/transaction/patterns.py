"""Patterns that clients send for transactional ids (KIP-1152).

Apache Kafka tries them with RE2J: matching takes time linear in the text, whatever the pattern.  RE2 is the same
engine in C++, with the same expressions.  A backtracking engine, as Python's own, can be stopped for years by six
characters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import re2

from fencepost.protocol.steps import Pace, Steps, elsewhere

LONGEST_PATTERN: Final = 1024
"""Characters.  Compiling a pattern of this length takes 30 ms at most."""

_MEMORY: Final = 128 * 1024
"""Bytes for the compiled form of a pattern; `a{1000}` needs a quarter of them, `\\pL{1000}` thirty times as many."""

_COMPARED_IN_A_UNIT: Final = 32
"""Characters times instructions."""
_LONG: Final = 2000
"""Units: half a millisecond, or more by now than a switch to another thread takes."""


class BadPattern(ValueError):
    """A pattern that is none, or too large."""


class Pattern:
    """A regular expression (RE2) that must match a whole text.  Raises BadPattern where it is none, or too large."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > LONGEST_PATTERN:
            raise BadPattern(f"a pattern has at most {LONGEST_PATTERN} characters, not {len(pattern)}")
        options = re2.Options()
        options.max_mem, options.log_errors, options.never_capture = _MEMORY, False, True
        try:
            compiled: Any = re2.compile(pattern, options)
        except re2.error as error:
            raise BadPattern(str(error)) from None
        finally:
            re2.purge()  # a client's pattern is not worth remembering
        self._match: Callable[[str], object | None] = compiled.fullmatch
        self._instructions: int = max(compiled.programsize, 1)

    def matches(self, text: str, pace: Pace) -> Steps[bool]:
        """Whether it matches all of `text`."""
        units = len(text) * self._instructions // _COMPARED_IN_A_UNIT
        if units < _LONG:
            pace.left -= units
            return self._match(text) is not None
        return (yield from elsewhere(partial(self._match, text))) is not None
