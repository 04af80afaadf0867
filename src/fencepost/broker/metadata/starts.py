"""The number of starts of a node, in the metadata and beside the commit log: so a copy of an earlier start is told.

Everything in a data directory goes together.  Of an older commit log the segments would be cut to what it knows, and
older metadata would give out producer ids again that are in use, so that records of one producer are taken for
repetitions of another one's.  The directory as a whole may be as old as it likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from fencepost.broker.metadata.store import MetadataStore
from fencepost.log import checkpoint_files
from fencepost.log.data_directory import DirectoryUnusable
from fencepost.log.storage import Storage
from fencepost.node_log import get_logger

logger = get_logger(__name__)

_BEGUN: Final = "starts-begun"
"""Key of the number of starts, written before the one beside the commit log."""
_DONE: Final = "starts-done"
"""Key of the number of starts, and of the first generation of the commit log in the last one, written after both."""


class Known(NamedTuple):
    """The starts known, 0 for none: begun and complete ones by the metadata, and the number beside the commit log."""

    begun: int
    done: int
    generation: int
    """The first generation of the commit log in the last start, which was there."""
    beside_log: int
    """The number of starts beside the commit log."""
    newest_generation: int
    """The newest generation of the commit log that is there."""

    @property
    def next_number(self) -> int:
        """The number of this start: there was none with it, whichever of the two is an older copy."""
        return max(self.begun, self.beside_log) + 1

    @property
    def log_is_older(self) -> bool:
        """Whether the commit log is of an earlier start; where there is none at all, the segments are read alone."""
        behind = self.beside_log < self.done or self.newest_generation < self.generation
        return self.newest_generation > 0 and behind

    @property
    def metadata_is_older(self) -> bool:
        """Whether the metadata is of an earlier start."""
        return self.beside_log > self.begun


def check(store: MetadataStore, storage: Storage) -> Known:
    """The starts before this one.  Raises DirectoryUnusable if the commit log is older, or that cannot be told.

    Nothing is changed.
    """
    begun, done = _numbers(store, _BEGUN, 1), _numbers(store, _DONE, 2)
    beside_log = checkpoint_files.read_starts(storage.disk, storage.commit_log.directory)
    if beside_log is None:
        raise DirectoryUnusable(
            f"{storage.commit_log.directory / checkpoint_files.STARTS_FILE} is damaged, so it cannot be told whether "
            f"{storage.commit_log.directory} and the metadata belong together; nothing was changed: put back a copy of "
            f"that file, or, if neither of the two is a copy of an earlier start, write {begun[0]} into it"
        )
    known = Known(begun[0], done[0], done[1], beside_log, max(storage.commit_log.generations(), default=0))
    if known.log_is_older:
        raise DirectoryUnusable(
            f"{storage.commit_log.directory} is older than the rest of {storage.path}, or lacks its newest files: it "
            f"is of start {known.beside_log} and ends with generation {known.newest_generation}, there were start "
            f"{known.done} and generation {known.generation}; nothing was changed: put back the one that belongs "
            "to this directory, or move it away, then every whole batch in the segment files is kept "
            "(docs/operating.md)"
        )
    return known


def begin(store: MetadataStore, storage: Storage, known: Known, beside: Mapping[str, str]) -> None:
    """Count this start, before the commit log gets a generation of it.  Raises NothingLeft, StorageFailed.

    `beside`: keys and values that hold from this start on, and are written at once with its number.
    """
    number = known.next_number
    _write(store, {_BEGUN: str(number), **beside})
    storage.space.attempt(lambda: checkpoint_files.write_starts(storage.disk, storage.commit_log.directory, number))


def finish(store: MetadataStore, storage: Storage) -> None:
    """Note that this start is complete: the commit log has a durable generation of it.

    Raises NothingLeft, StorageFailed.
    """
    (number,) = _numbers(store, _BEGUN, 1)
    _write(store, {_DONE: f"{number} {storage.commit_log.generation}"})


def _numbers(store: MetadataStore, key: str, count: int) -> list[int]:
    found = store.get(key)
    return [0] * count if found is None else [int(number) for number in found.value.split()]


def _write(store: MetadataStore, texts: Mapping[str, str]) -> None:
    known = {key: store.get(key) for key in texts}
    versions = {key: 0 if found is None else found.version for key, found in known.items()}
    store.write({key: (text.encode(), versions[key]) for key, text in texts.items()})
