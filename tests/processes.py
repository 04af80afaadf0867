"""Processes that tests start: none of them outlives its test, whatever becomes of that."""

from __future__ import annotations

from typing import IO, Any, Protocol, TypeVar


class Begun(Protocol):
    """What is used of `subprocess.Popen`."""

    @property
    def stdin(self) -> IO[Any] | None: ...

    @property
    def stdout(self) -> IO[Any] | None: ...

    @property
    def stderr(self) -> IO[Any] | None: ...

    def kill(self) -> None: ...

    def wait(self) -> int: ...


P = TypeVar("P", bound=Begun)

_begun: list[Begun] = []


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
