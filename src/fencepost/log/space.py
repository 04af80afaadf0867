"""The space on the disk: a reserve for what must be possible on a full one, and a warning before it is full.

Deleting a topic, lowering its retention, a checkpoint, a stop and a start write a little before they can free anything.
For them a file with nothing in it holds some space, which it lets go while they need it.  As long as it does not have
all of it back, nobody else gets any.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from fencepost.log.disk import Disk, DiskFull, File, NothingLeft, Room
from fencepost.node_log import get_logger
from fencepost.protocol.types import Milliseconds
from fencepost.runtime import Clock

logger = get_logger(__name__)
T = TypeVar("T")

NAME: Final = ".reserve"
_MEBIBYTE: Final = 1024 * 1024
_USUAL: Final = 4 * _MEBIBYTE
_CHECKPOINT_PER_PARTITION: Final = 20 * 1024
"""Three indexes and two files about its producers, each in a block of its own."""
AT_ONCE: Final = 16 * _MEBIBYTE
"""More of the reserve is not taken in one step while the node serves: a disk in memory writes zeros for all of it."""
_LITTLE: Final = 1024 * _MEBIBYTE
"""Less than this is worth a warning, on a disk of which it is less than a tenth."""
_BETWEEN_WARNINGS_MS: Final = 600_000
_LEAST_UNWATCHED: Final = _MEBIBYTE // 4
"""Bytes that are written before a disk that gets full is looked at again."""
_PER_PARTITION: Final = 16 * 1024
"""A directory and three small files, each in a block of its own."""
_FILES_PER_PARTITION: Final = 4
_FEW_FILES: Final = 64
"""Files; a disk that may have fewer is as good as full: a checkpoint of a few partitions makes as many."""


def reserved(total: int, partitions: int) -> int:
    """Bytes of a disk of `total` bytes to hold in reserve: for a checkpoint of so many partitions, and more."""
    return min(max(total // 8, _MEBIBYTE), _USUAL + partitions * _CHECKPOINT_PER_PARTITION)


class Space:
    """Keeps a reserve of the disk's space, and says who may write as it runs out.

    Where the disk does not say how large it is (a simulated one may not) nothing is reserved.
    """

    def __init__(self, disk: Disk, root: Path, clock: Clock) -> None:
        self._disk = disk
        self._root = root
        self._clock = clock
        self._file: File | None = None
        self.size = 0
        """Bytes of the reserve when it is whole."""
        self.is_whole = True
        """Whether the reserve has all of its space."""
        self._warned: dict[bool, Milliseconds] = {}
        """When it was last said that little is left (False), and that producers are refused (True)."""
        self._unwatched = 0
        """Bytes that may be written before there may be little left."""
        self._let_go = 0
        """Bytes of the reserve that was there at the start, until there is one again."""

    @property
    def _path(self) -> Path:
        return self._root / NAME

    def room(self) -> Room | None:
        """The room that the disk has; None if it does not say, or the directory cannot be asked."""
        try:
            return self._disk.room(self._root)
        except OSError:
            return None

    # The reserve

    def open(self) -> None:
        """Let the reserve go, at the start, when nobody else has the directory: everything is free for it."""
        if self._disk.exists(self._path):
            self._let_go = self._held()
            self._disk.remove(self._path)

    def _held(self) -> int:
        try:
            file = self._disk.open(self._path)
        except OSError:  # it is no reserve, or there is no descriptor to be had: it goes in any case
            return 0
        try:
            return file.size()
        finally:
            file.close()

    def hold(self, partitions: int) -> bool:
        """Take the reserve, as far as there is space; whether there may be more to take in a next step.

        At a start all of it, later some of what it lacks.
        """
        room, begins = self.room(), self._file is None
        self._let_go = 0
        size = 0 if room is None else reserved(room.total, partitions)
        grows = self.is_whole and size > self.size
        if grows:
            self.size, self.is_whole = size if begins else min(size, self.size + AT_ONCE), False
        had_some = self._take(self.size if begins else AT_ONCE)
        return had_some and (not self.is_whole or (grows and self.size < size))

    def close(self) -> None:
        """The reserve stays on the disk for the next start, with all that can be had back of what it let go.

        A start that was refused puts back what was there.
        """
        if self._let_go:
            self.size, self.is_whole, self._let_go = self._let_go, False, 0
        self._take(self.size)
        if self._file is not None:
            self._file.close()
            self._file = None

    def refill(self) -> bool:
        """Try to have some more of the reserve again; whether all of it is there."""
        self._take(AT_ONCE)
        return self.is_whole

    def _take(self, most: int) -> bool:
        """Take `most` bytes of what is lacking, if there is room for all that is; whether it was had, or none lacks."""
        if self.is_whole:
            return True
        try:
            if self._file is None:
                self._file = self._disk.open(self._path)
            held, room = self._file.size(), self.room()
            if room is not None and room.free < self.size - held:
                return False  # the disk would find out only when it has filled all that is free, and gives it back
            self._file.allocate(min(self.size, held + most))
        except OSError:
            return False
        self.is_whole = held + most >= self.size
        return True

    def attempt(self, action: Callable[[], T]) -> T:
        """Do what must be possible on a full disk: if need be a second time, with the reserve.

        Raises DiskFull if that is not enough.
        """
        try:
            return action()
        except DiskFull:
            if self._file is None or not self.size:
                raise
            self.is_whole = False
            self._file.truncate(0)
            try:
                return action()
            finally:
                self.refill()

    def manages(self, action: Callable[[], object]) -> bool:
        """Call `action` as `attempt` does; whether there was room, and descriptors, for it."""
        try:
            self.attempt(action)
        except NothingLeft:
            return False
        return True

    def must_be_left(self) -> None:
        """Raises DiskFull for who may not use the reserve, as long as that is not whole."""
        if not self.is_whole and not self.refill():
            raise DiskFull(errno.ENOSPC, "what is left on the disk is kept for deletions")

    def is_ample(self, partitions: int) -> bool:
        """Whether much more is free than the reserve needs; asked at the start, when that is let go."""
        room = self.room()
        return room is None or room.free >= 4 * reserved(room.total, partitions)

    # Who is told

    @property
    def is_short(self) -> bool:
        """Whether nothing that could be freed should wait."""
        room = self.room()
        return not self.is_whole or (room is not None and (room.free < self.size or _has_few_files(room)))

    def has_room_for(self, partitions: int) -> bool:
        """Whether so many new partitions would fit, empty."""
        room = self.room()
        if room is None:
            return True
        files = room.free_files is None or room.free_files >= partitions * _FILES_PER_PARTITION
        return self.refill() and files and room.free >= partitions * _PER_PARTITION

    def refused(self, why: NothingLeft) -> None:
        """Note that a write was not taken, and warn if it was for lack of space."""
        if isinstance(why, DiskFull):
            self.watch(refused=True)

    def written(self, count: int) -> None:
        """Count what is written, and `watch` where it may have left little: a disk can be full within a second."""
        self._unwatched -= count
        if self._unwatched < 0:
            self.watch()

    def watch(self, refused: bool = False) -> None:
        """Warn while there is little left, and where somebody was refused for it, each every ten minutes at most."""
        self._unwatched = _LEAST_UNWATCHED
        now = self._clock.now()
        if not self._may_warn(now, refused or not self.is_whole):
            return
        room = self.room()
        if room is None:
            return
        least = min(room.total // 10, _LITTLE)
        self._unwatched = max(room.free - least, _LEAST_UNWATCHED)
        refused = refused or not self.refill()
        if (refused or room.free < least or _has_few_files(room)) and self._may_warn(now, refused):
            self._warned |= {True: now, False: now} if refused else {False: now}
            self._warn(room, refused)

    def _may_warn(self, now: Milliseconds, refused: bool) -> bool:
        # A clock that was set back must not keep it quiet.
        return not 0 <= now - self._warned.get(refused, now + 1) < _BETWEEN_WARNINGS_MS

    def _warn(self, room: Room, refused: bool) -> None:
        full = "; producers are refused with KAFKA_STORAGE_ERROR" if refused else ""
        files = f" and can have {room.free_files} more files" if _has_few_files(room) else ""
        logger.warning(
            "the disk of %s has %d of %d MiB left%s%s: delete topics or records, lower retention.ms or "
            "retention.bytes, or make it larger",
            self._root,
            room.free // _MEBIBYTE,
            room.total // _MEBIBYTE,
            files,
            full,
        )


def _has_few_files(room: Room) -> bool:
    return room.free_files is not None and room.free_files < _FEW_FILES
