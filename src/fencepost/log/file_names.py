"""The names of our files in a directory: an offset or a generation in 20 digits, and what it is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

_NUMBER: Final = re.compile("[0-9]{20}")
_REMEMBERED: Final = 1024
"""Paths: a checkpoint asks for the same few again and again, and to make one takes longer than to open the file."""


def numbered(names: Iterable[str], *suffixes: str) -> list[tuple[str, int]]:
    """Those of `names` that are a number with one of `suffixes` and nothing else, each with its number.

    Whatever else ends in such a suffix (`notes.log`, a copy with a longer name) is somebody's, and is left as it is.
    """
    return [(name, int(name[:20])) for name in names if name[20:] in suffixes and _NUMBER.fullmatch(name[:20])]


@lru_cache(_REMEMBERED)
def numbered_path(directory: Path, number: int, suffix: str) -> Path:
    """The file of a directory whose name is this number with this suffix."""
    return directory / f"{number:020d}{suffix}"
