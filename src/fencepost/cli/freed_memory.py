"""What the process of a node does with memory that it has freed: it keeps some, instead of asking for it again at once.

The C library gives the top of the heap back to the system whenever twice as much of it is free as the largest block
that was freed so far.  A node reads a few megabytes for each large answer and frees them when that has left, so the
system cleared the same pages for every answer: two thirds of what reading 1 KB records cost a node.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Final

KEPT: Final = 32 * 1024 * 1024
"""Bytes of free memory at the top of the heap that are kept, and of the largest block that is taken from the heap: a
larger one is the system's again as soon as it is freed.  glibc takes no more for the second."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Their numbers in glibc's malloc.h."""
_THEIRS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables by which whoever runs the node says it himself."""


def keep_freed_memory(environ: Mapping[str, str]) -> bool:
    """Have the process keep up to `KEPT` bytes; whether it will.

    It will not where `environ` says how memory is to be had, and where the C library is not glibc.
    """
    if any(name in environ for name in _THEIRS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    # Once one of them is set glibc no longer adapts the other.
    return bool(mallopt(_MMAP_THRESHOLD, KEPT)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))
