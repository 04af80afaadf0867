"""Has the process of a node keep some of the memory that it frees, instead of asking for it again at once.

The C library gives the top of the heap back to the system whenever twice as much of it is free as the largest block
that was freed so far.  A node reads a few megabytes for each large answer and frees them when that has left, so the
system cleared the same pages for every answer: two thirds of what reading 1 KB records cost a node.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

KEPT: Final = 32 * 1024 * 1024
"""Bytes of free memory at the top of the heap that are kept, and of the largest block that is taken from the heap: a
larger one is the system's again as soon as it is freed.  glibc takes no more for the second."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""The numbers of these two settings in glibc's malloc.h."""
_THEIRS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables by which whoever runs the node chooses these settings himself."""

LOOK_SECONDS: Final = 10
_STATM: Final = Path("/proc/self/statm")
_FREE_IS: Final = 8
"""`fordblks` is the ninth of the ten numbers of glibc's struct mallinfo2."""


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


class _MallocInfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [("sizes", ctypes.c_size_t * 10)]


def is_to_be_given_back(free: int, resident: int, least: int) -> bool:
    """Whether the heap holds much more than is to be kept, and more than when that was last given back.  All in bytes.

    `free`: of the heap, whether the system has taken the pages back or not, for which `resident` and `least` are: what
    the process has now, and the least that it has had at a look since it last gave something back.
    """
    return free > 2 * KEPT and resident > least + KEPT


class FreedMemory:
    """Gives free memory between blocks in use back to the system, every 10 seconds, from `start` to `stop`.

    glibc itself takes from the top of the heap only: one small block up there keeps hundreds of megabytes below it that
    were answers once.
    """

    def __init__(self) -> None:
        self._least = 0
        self._timer: asyncio.TimerHandle | None = None
        library = ctypes.CDLL(None)
        self._info, self._trim = library.mallinfo2, library.malloc_trim
        self._info.restype = _MallocInfo
        self._trim.argtypes = [ctypes.c_size_t]

    def start(self) -> None:
        """Look every 10 seconds from now on; needs a running event loop."""
        self._least = _resident()
        self._look_later()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._look_later()
        resident = _resident()
        if is_to_be_given_back(self._info().sizes[_FREE_IS], resident, self._least):
            self._trim(KEPT)
            self._least = _resident()
        else:
            self._least = min(self._least, resident)


def freed_memory(environ: Mapping[str, str]) -> FreedMemory | None:
    """Have the process keep some of the memory that it frees; the FreedMemory for the rest, None if it cannot be."""
    if not keep_freed_memory(environ):
        return None
    try:
        return FreedMemory()
    except AttributeError:  # before glibc 2.33
        return None


def _resident() -> int:
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
