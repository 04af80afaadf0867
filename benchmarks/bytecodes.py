"""Run `fencepost` and count the bytecodes of its main thread, by function.

    python benchmarks/bytecodes.py FILE serve ...

At SIGUSR1 the counts so far are written to FILE.  They are the same on a busy machine and on an idle one, but what is
done in C, by the operating system, and by other threads is not in them.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any


def read_counts(path: Path, patience: float = 10) -> dict[str, int]:
    """What was written there, once it is.  Raises TimeoutError."""
    until = time.monotonic() + patience
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{path} was not written")
        time.sleep(0.001)
    counts: dict[str, int] = json.loads(path.read_text())
    return counts


def _count(path: Path) -> None:
    counts: Counter[CodeType] = Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        elif event == "opcode":
            counts[frame.f_code] += 1
        return trace

    def write(*_: object) -> None:
        sys.settrace(None)
        named: Counter[str] = Counter()
        for code, count in counts.items():
            if code.co_filename != __file__:
                named[f"{Path(code.co_filename).name}:{code.co_firstlineno} {code.co_qualname}"] += count
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(named))
        beside.rename(path)
        sys.settrace(trace)

    signal.signal(signal.SIGUSR1, write)
    sys.settrace(trace)


if __name__ == "__main__":
    _count(Path(sys.argv.pop(1)))
    from fencepost.cli import main

    sys.exit(main())
