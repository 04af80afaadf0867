"""Standard output of a command, which may be full, or closed by whoever read it."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Self, TextIO


class StandardOutput:
    """Stands for `sys.stdout` while a command runs: remembers why nothing can be printed any more.

    From then on what is printed goes nowhere, so that the end of the process is quiet.  There need not be any.
    """

    def __init__(self) -> None:
        self._inner: TextIO | None = sys.stdout
        self.failure: OSError | None = None
        """The error because of which nothing is printed any more; None: all was printed."""

    def __enter__(self) -> Self:
        if isinstance(self._inner, io.TextIOWrapper):
            self._inner.reconfigure(errors="backslashreplace")  # a name of a file may be anything
        if self._inner is not None:
            sys.stdout = self
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout = self._inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, text: str) -> int:
        """Write; the number of characters.  Raises OSError the first time that it fails, then drops all text."""
        try:
            return 0 if self._inner is None else self._inner.write(text)
        except OSError as error:
            self._give_up(error)
            raise

    def flush(self) -> None:
        """Flush.  Raises OSError the first time that it fails, and does nothing from then on."""
        try:
            if self._inner is not None:
                self._inner.flush()
        except OSError as error:
            self._give_up(error)
            raise

    def _give_up(self, error: OSError) -> None:
        assert self._inner is not None
        self.failure = error
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), self._inner.fileno())


def say(line: str, must_be_read: bool = True) -> OSError | None:
    """Print a line at once; the error if it was not printed, else None: raised, it could be taken for another's.

    `must_be_read`: whether that fails the command.
    """
    try:
        print(line, flush=True)
    except OSError as error:
        if isinstance(sys.stdout, StandardOutput) and not must_be_read:
            sys.stdout.failure = None
        return error
    return None
