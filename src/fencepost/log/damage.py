"""The errors of files of a partition that are not as they were written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from fencepost.node_log import get_logger
from fencepost.protocol.errors import ErrorCode

logger = get_logger(__name__)

MOST_FILES: Final = 10
"""Damaged files of one partition that are named in the log."""


class FileDamaged(Exception):
    """A file cannot be read, is shorter than what was written to it, or has something else in it.

    Whoever asked for what stands there gets `error`; whatever stands elsewhere is served.  It is KAFKA_STORAGE_ERROR,
    which consumers try again, where the disk does not give it, and CORRUPT_MESSAGE, which they tell their users, where
    it gives something else, as in Apache Kafka.
    """

    def __init__(self, path: Path, wrong: str, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        super().__init__(f"{path} {wrong}")
        self.path, self.wrong, self.error = path, wrong, error


def not_written(directory: Path, why: FileDamaged | OSError) -> FileDamaged:
    """The error of a partition that takes no append: KAFKA_STORAGE_ERROR, as CORRUPT_MESSAGE means the batch itself."""
    if isinstance(why, FileDamaged):
        return FileDamaged(why.path, why.wrong)
    return FileDamaged(directory, f"does not take a write: {why.strerror or why}")


class DamageNotes:
    """Says of each damaged file once that it is."""

    def __init__(self) -> None:
        self._said: set[Path] = set()

    def say(self, damaged: FileDamaged) -> None:
        if damaged.path not in self._said and len(self._said) < MOST_FILES:
            self._said.add(damaged.path)
            error = damaged.error.name
            logger.error("what cannot be read or written is refused (%s), the rest is served: %s", error, damaged)

    def manages(self, directory: Path, action: Callable[[], bool]) -> bool:
        """The result of `action`; False, which is logged, where a damaged file in that directory prevents it."""
        try:
            return action()
        except (FileDamaged, OSError) as why:
            self.say(not_written(directory, why))
            return False
