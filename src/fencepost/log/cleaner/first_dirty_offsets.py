"""`cleaner-offset-checkpoint`: up to where each log is clean.

Apache Kafka's file with the id of each topic, and a CRC-32C of everything before it as the last line.  What was noted
of a topic says nothing of one that was made later under its name: there all up to that offset would be taken for clean,
so that of a key which was deleted in that part the tombstone would go, and an older value stay.

To lose what the file says costs only work: without it everything is taken for dirty.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from crc32c import crc32c

from fencepost.log.checkpoint_files import kafka_uuid, uuid_of
from fencepost.log.cleaner.choice import first_dirty
from fencepost.log.disk import Disk, NothingLeft
from fencepost.protocol.types import Milliseconds, Offset

NAME: Final = "cleaner-offset-checkpoint"
_VERSION: Final = "1"
_LINE: Final = re.compile(r"(\S+) ([0-9]{1,10}) ([0-9]{1,19}) (\S+)", re.ASCII)


class LogId(NamedTuple):
    """A log, told from all others that ever had its name."""

    topic: str
    partition: int
    topic_id: uuid.UUID


class Log(Protocol):
    """The part of a partition that names its log and says which offsets it has."""

    topic: str
    index: int
    topic_id: uuid.UUID
    log_start_offset: Offset
    log_end_offset: Offset


def id_of(log: Log) -> LogId:
    """The name, number and topic id of a log."""
    return LogId(log.topic, log.index, log.topic_id)


def encode(offsets: Mapping[LogId, Offset]) -> bytes:
    """The bytes of a file that says these offsets."""
    lines = [f"{log.topic} {log.partition} {offsets[log]} {kafka_uuid(log.topic_id)}" for log in sorted(offsets)]
    text = ("\n".join([_VERSION, str(len(lines)), *lines]) + "\n").encode()
    return text + f"{crc32c(text):08x}\n".encode()


def decode(data: bytes) -> dict[LogId, Offset]:
    """The offsets that the bytes of a file say; nothing if they are not whole."""
    text, crc = data[:-9], data[-9:]
    if crc != f"{crc32c(text):08x}\n".encode():
        return {}
    lines = text.decode().split("\n")
    if lines[0] != _VERSION:
        return {}
    found: dict[LogId, Offset] = {}
    for line in lines[2:-1]:
        read = _LINE.fullmatch(line)
        topic_id = uuid_of(read[4]) if read is not None else None
        if read is None or topic_id is None:
            return {}
        found[LogId(read[1], int(read[2]), topic_id)] = Offset(int(read[3]))
    return found


def read(disk: Disk, root: Path) -> dict[LogId, Offset]:
    """The content of the file in a data directory; nothing if it is not there or not whole."""
    if not disk.exists(root / NAME):
        return {}
    file = disk.open(root / NAME)
    try:
        return decode(file.pread(file.size(), 0))
    finally:
        file.close()


def write(disk: Disk, root: Path, offsets: Mapping[LogId, Offset], done: Callable[[OSError | None], None]) -> None:
    """Replace the file as a whole, then call `done`.  Raises OSError where that is not begun."""
    fresh = root / (NAME + ".tmp")
    file = disk.open(fresh)
    try:
        file.truncate(0)
        file.pwrite(encode(offsets), 0)
    except OSError:
        file.close()
        raise

    def synced(error: OSError | None) -> None:
        file.close()
        if error is None:
            try:
                disk.rename(fresh, root / NAME)
            except OSError as failure:
                error = failure
        done(error)

    disk.sync([file], synced)


class FirstDirtyOffsets:
    """The first dirty offset of each log, in memory, and the file that has them as of the last `note`."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._root = root
        self._offsets = read(disk, root)
        self._noted = dict(self._offsets)
        self._note_after = 0
        self._is_writing = False

    def of(self, log: Log) -> Offset:
        """The first dirty offset of a log; its start offset where none is known that can be."""
        return first_dirty(self._offsets.get(id_of(log)), log.log_start_offset, log.log_end_offset)

    def cleaned(self, log: LogId, end: Offset) -> None:
        """Note that a log is clean before `end`."""
        self._offsets[log] = end

    def keep(self, find: Callable[[str, int], Log | None]) -> None:
        """Forget logs that are gone, and those that have less than was clean: an older copy may have been put back."""
        found = {log: find(log.topic, log.partition) for log in self._offsets}
        self._offsets = {
            log: offset
            for log, offset in self._offsets.items()
            if (there := found[log]) is not None and id_of(there) == log and offset <= there.log_end_offset
        }

    def note(self, at: Milliseconds, pause_ms: Milliseconds, failed: Callable[[OSError], None]) -> None:
        """Write down what has changed, at most once in `pause_ms`: to lose it costs only work.

        `at`: of a clock that is not set back.  `failed` is called where the disk does not take it, but not where it
        only has no room for it now.
        """
        if self._is_writing or self._offsets == self._noted or at < self._note_after:
            return  # a second one would take the first one's file away under its hands
        self._is_writing = True
        self._noted = dict(self._offsets)
        self._note_after = at + pause_ms

        def written(error: OSError | None) -> None:
            self._is_writing = False
            if isinstance(error, NothingLeft):
                self._noted = {}
            elif error is not None:
                failed(error)

        try:
            write(self._disk, self._root, self._offsets, written)
        except OSError as error:
            written(error)
