"""The error of an option that is not known or cannot be used."""

from __future__ import annotations

from typing import Final

_LONGEST_SHOWN: Final = 200
"""Characters of an option that an error repeats."""


class BadOption(ValueError):
    """An option that cannot be used; the message says which, and what to do."""


def shown(text: str) -> str:
    """What an error repeats of an option: on one line, as JSON need not be, and of a long one the beginning."""
    line = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text[:_LONGEST_SHOWN])
    return line if len(text) <= _LONGEST_SHOWN else f"{line}..."
