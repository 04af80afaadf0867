"""The property that a sentence of a checker is about: the sentence without what differs from run to run."""

from __future__ import annotations

import re
from typing import Final

_TIME: Final = re.compile(r"(?:^|: )(\d+\.\d{6}) ")
_NAMES: Final = re.compile(r"(?:\S*\d\S*?|None)(?=[,;:]?(?:\s|$))")


def property_of(sentence: str) -> str:
    """The property that a sentence of a checker is about: the sentence without what differs from case to case.

    Names and numbers, which have digits, are left out, and so is what follows a colon: it tells more of this one case.
    """
    first = _TIME.sub("", sentence, count=1) if _TIME.match(sentence) else sentence
    first = first.partition(": ")[0]
    return _NAMES.sub("_", first)


def time_of(sentence: str) -> float | None:
    """The time that a sentence begins with, in seconds; None if it has none."""
    found = _TIME.search(sentence)
    return None if found is None else float(found[1])
