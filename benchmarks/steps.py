"""Run `fencepost` with the steps of its event loop measured: how long the longest one was, and in processor time.

    python -m benchmarks.steps FILE serve ...

On a machine that others use too, the time that a client waits is theirs as well; the processor time of a step is not.
"""

from __future__ import annotations

import asyncio
import mmap
import sys
import time
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from fencepost.cli import main

_LONGEST = Struct("=dd200p")


class Longest(NamedTuple):
    """The longest step, the one that took most of a processor, and what that one was."""

    wall_ms: float
    cpu_ms: float
    what: str


class LongestStep:
    """Shared by the node and who measures it, through a file."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_LONGEST.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _LONGEST.size)

    def take(self) -> Longest:
        """The longest since this was called last."""
        wall, cpu, what = _LONGEST.unpack_from(self._shared)
        self._shared[:] = bytes(_LONGEST.size)
        return Longest(wall * 1000, cpu * 1000, what.decode(errors="replace"))

    def measure(self) -> None:
        """Have every step of the event loops of this process measured."""
        run, wall, cpu, shared = asyncio.Handle._run, time.perf_counter, time.thread_time, self._shared
        longest = Struct("=dd")

        def measured(handle: asyncio.Handle) -> None:
            began, begun = wall(), cpu()
            run(handle)
            took, used = wall() - began, cpu() - begun
            most_wall, most_cpu = longest.unpack_from(shared)
            if used > most_cpu:
                _LONGEST.pack_into(shared, 0, max(took, most_wall), used, repr(handle).encode()[:199])
            elif took > most_wall:
                longest.pack_into(shared, 0, took, most_cpu)

        asyncio.Handle._run = measured  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    LongestStep(Path(sys.argv.pop(1))).measure()
    sys.exit(main())
