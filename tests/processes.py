"""Processes that tests start: none of them outlives its test, whatever becomes of that."""

from __future__ import annotations

import subprocess
from typing import Any, TypeVar

P = TypeVar("P", bound="subprocess.Popen[Any]")

_begun: list[subprocess.Popen[Any]] = []


def begun(process: P) -> P:
    """The process, which `end_all` ends if nobody has by then: `tests/conftest.py` asks for that behind every test."""
    _begun.append(process)
    return process


def end_all() -> None:
    """Kill what is left, wait for it and close its pipes."""
    while _begun:
        process = _begun.pop()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
