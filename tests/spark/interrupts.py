"""Ctrl-C, or a signal whose handler raises, at a chosen place of a function."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def interrupted(number: int, *functions: Callable[..., Any], each: str = "line") -> Iterator[None]:
    """Raise KeyboardInterrupt in these functions before the line of this number, or behind the call (`each="call"`).

    Python looks for signals behind calls, so that they come there.
    """
    codes = {function.__code__ for function in functions}
    calls = {(code, at.offset) for code in codes for at in dis.get_instructions(code) if at.opname.startswith("CALL")}
    left = number
    at: dict[FrameType, int] = {}
    """The instruction that each was carrying out."""

    def is_there(frame: FrameType, event: str) -> bool:
        if each == "line":
            return event == "line"
        if event != "opcode":
            return False
        before = at.get(frame, -1)
        at[frame] = frame.f_lasti
        return (frame.f_code, before) in calls

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code not in codes:
            return None
        frame.f_trace_opcodes = each == "call"
        if is_there(frame, event):
            left -= 1
            if left < 0:
                at.clear()
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
