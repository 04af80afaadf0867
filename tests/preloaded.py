"""Processes that begin at once: forked from one that has imported what a node needs, which is most of a node's start.

For tests that start nodes again and again.  What a command does from its first line on is asked in `tests/cli`.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import IO, Final, NoReturn

from tests.processes import begun

_ROOT: Final = Path(__file__).parents[1]
_IMPORTED: Final = ("fencepost.cli.serve", "tests.crash.faulty_node")
_LOOK_SECONDS: Final = 0.005

_line: socket.socket | None = None
_forking: subprocess.Popen[bytes] | None = None
_one_request: Final = Lock()


class Preloaded:
    """A process that was forked: what tests use of `subprocess.Popen`."""

    stdin = stderr = None

    def __init__(self, pid: int, stdout: IO[str]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None

    def send_signal(self, how: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, how)  # its number is nobody else's before `wait`

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, -n for signal n.  Raises TimeoutExpired."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            self.returncode = _ask({"wait": self.pid})
            if end is not None and self.returncode is None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self.returncode


def preloaded(function: str, arguments: Sequence[str], said: Path | None = None) -> Preloaded:
    """Call `package.module.function` with the arguments in a process of its own; what it returns is the exit code.

    Its standard error is added to `said`.
    """
    ours, theirs = os.pipe()
    errors = os.dup(2) if said is None else os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        pid = _ask({"call": function, "arguments": list(arguments)}, theirs, errors)
    finally:
        os.close(theirs)
        os.close(errors)
    assert pid is not None
    return begun(Preloaded(pid, os.fdopen(ours)))


def _ask(request: dict[str, object], *descriptors: int) -> int | None:
    global _line, _forking
    with _one_request:
        if _line is None:
            _line, theirs = socket.socketpair()
            with theirs:  # it ends when this process does, and all that it forked with it
                command = [sys.executable, "-m", "tests.preloaded", str(theirs.fileno())]
                _forking = subprocess.Popen(command, cwd=_ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        socket.send_fds(_line, [json.dumps(request).encode()], descriptors)
        answer = json.loads(_line.recv(1024))
    assert answer is None or isinstance(answer, int)
    return answer


def _fork(line: socket.socket, function: str, arguments: list[str], descriptors: Sequence[int]) -> int:
    pid = os.fork()
    if pid == 0:
        line.close()
        for number, descriptor in enumerate(descriptors, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        # Anew: what the parent has of these may have been a file.
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="backslashreplace", write_through=True)
        _call(function, arguments)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def _call(function: str, arguments: list[str]) -> NoReturn:
    code = 1
    try:
        module, _, name = function.rpartition(".")
        code = getattr(importlib.import_module(module), name)(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _exit_code(pid: int) -> int | None:
    """Looks once, a little later; None: it has not ended."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        time.sleep(_LOOK_SECONDS)
        ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _serve(line: socket.socket) -> None:
    """Answer until the test process has ended."""
    forked = set[int]()
    while True:
        request, descriptors, *_ = socket.recv_fds(line, 65536, 2)
        if not request:
            break
        asked = json.loads(request)
        if "call" in asked:
            pid = _fork(line, asked["call"], asked["arguments"], descriptors)
            forked.add(pid)
            answer: int | None = pid
        else:
            answer = _exit_code(asked["wait"])
            if answer is not None:
                forked.discard(asked["wait"])
        line.sendall(json.dumps(answer).encode())
    for pid in forked:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    for needed in _IMPORTED:
        importlib.import_module(needed)
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as of_the_tests:
        _serve(of_the_tests)
