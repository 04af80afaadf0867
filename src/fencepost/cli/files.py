"""Reads the files that a command is given, and opens those to write before the work, so that it is not in vain."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from fencepost.cli import Refused
from fencepost.cli.properties import properties_of


class Output:
    """A file that is opened at once and written when all is done; until then it stays as it was."""

    def __init__(self, option: str, path: str) -> None:
        """Open the file.  Raises Refused if it cannot be written."""
        self._option, self.path = option, path
        try:
            self._file = open(path, "ab")  # noqa: SIM115 - it is closed when it is written
        except OSError as error:
            raise self._refused(error) from None

    def is_at(self, path: str) -> bool:
        """Whether it is the file at `path`.  Raises OSError if there is none."""
        return os.path.samestat(os.fstat(self._file.fileno()), os.stat(path))

    def write(self, parts: Iterable[str]) -> None:
        """Replace what the file has by these parts, and close it.  Raises Refused if it cannot be written."""
        try:
            with self._file as file:
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    file.truncate(0)
                for part in parts:
                    file.write(part.encode())
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> Refused:
        return Refused(f"{self._option} {self.path}: it cannot be written: {error.strerror or error}")


def lines_of(path: str) -> list[bytes]:
    """The lines of a file, each with its end.  Raises Refused if it cannot be read."""
    try:
        return Path(path).read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise Refused(f"{path}: it cannot be read: {error.strerror or error}") from None


def properties_in(option: str, path: str) -> dict[str, str]:
    """The settings in a properties file that an option names.  Raises Refused, which names both."""
    try:
        return properties_of([line.decode("utf-8-sig") for line in lines_of(path)])
    except Refused as refused:
        raise Refused(f"{option} {refused}") from None
    except UnicodeDecodeError:
        raise Refused(f"{option} {path}: it is no text in UTF-8") from None
