"""A disk that holds few descriptors open, however many files there are.

Who opens a file here has it for as long as he likes; its descriptor goes when others need the room and comes back with
its next use.  One that was not used lately is given up first.

A file that was written to keeps its descriptor until it is synced, or it is synced before: Linux tells a failed
write-back to every descriptor that is open then, but to one that is opened later only while nobody was told yet and the
inode has stayed in memory, which it need not where nobody has it open.  Such a sync that fails is told to everybody who
syncs the file afterwards.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import TypeVar

from fencepost.log.disk import Disk, File, NoDescriptors, Room, SyncDone
from fencepost.log.interruption import Interruption
from fencepost.protocol.types import Buffer

T = TypeVar("T")

USUAL = 512
"""Descriptors, where nobody says how many there may be."""
_LOOKED_AT = 64
"""Files among which one is looked for that can be closed without a sync."""


def _split(path: Path) -> tuple[str, str]:
    """The directory that a path is in, and its name there."""
    directory, slash, name = str(path).rpartition("/")
    return directory or slash, name


class _Directory:
    """A directory with open files in it: when it is renamed, they are found again."""

    __slots__ = ("files", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.files: dict[_File, None] = {}


class _File:
    """A `File` whose descriptor comes and goes.  Several threads may use it."""

    __slots__ = ("_all", "_closed", "_file", "dirty", "failure", "name", "opened", "pins", "place", "used")

    def __init__(self, all_files: OpenFiles, place: _Directory, name: str, file: File) -> None:
        self._all = all_files
        self._file = file
        self._closed = False
        self.place = place
        self.name = name
        self.opened: File | None = file
        """None while it has no descriptor."""
        self.pins: list[None] = []
        """One for each use that is under way.  Who uses it pins it before he looks at `opened`; who wants its
        descriptor sets `opened` to None before he looks for pins: so one of them always sees the other."""
        self.dirty = False
        """Whether it was written to since its last sync."""
        self.used = True
        """Whether it was used since it was last looked at for closing."""
        self.failure: OSError | None = None
        """The error with which it could not be synced when its descriptor was needed."""

    def pwrite(self, data: Buffer, at: int) -> None:
        self.pins.append(None)
        try:
            self.dirty = self.used = True
            (self.opened or self.reopened()).pwrite(data, at)
        finally:
            self.pins.pop()

    def pread(self, count: int, at: int) -> bytes:
        if self._all.interruption is not None:
            self._all.interruption.check()
        self.pins.append(None)
        try:
            self.used = True
            return (self.opened or self.reopened()).pread(count, at)
        finally:
            self.pins.pop()

    def size(self) -> int:
        self.pins.append(None)
        try:
            return (self.opened or self.reopened()).size()
        finally:
            self.pins.pop()

    def truncate(self, size: int) -> None:
        self.pins.append(None)
        try:
            self.dirty = True
            (self.opened or self.reopened()).truncate(size)
        finally:
            self.pins.pop()

    def allocate(self, size: int) -> None:
        self.pins.append(None)
        try:
            self.dirty = True
            (self.opened or self.reopened()).allocate(size)
        finally:
            self.pins.pop()

    def reopened(self) -> File:
        """This file, with a descriptor again.  Only for who has pinned it.  Raises OSError if it is closed."""
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed")
        return self._all.reopen(self, self._file)

    def release(self) -> None:
        self._all.release(self)

    def reopen(self, path: Path) -> None:
        """Does nothing: the next use of the file opens it."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._all.forget(self)
            self.opened = None
            self._file.close()


class OpenFiles:
    """A `Disk` over another one that closes the descriptors of files that were not used lately.

    `limit`: descriptors that it may hold; more only while more are in use at one moment.  `interruption`: looked at
    before each read, as long as there is one.
    """

    def __init__(self, disk: Disk, limit: int = USUAL, interruption: Interruption | None = None) -> None:
        self._disk = disk
        self.interruption = interruption
        self._limit = limit
        self._lock = RLock()
        """Held to use what is below, and to open and give up descriptors."""
        self._open: OrderedDict[_File, None] = OrderedDict()
        """Files with a descriptor, roughly from the one longest not used."""
        self._directories: dict[str, _Directory] = {}
        """Directories by their paths, as text: to look a `Path` up takes longer than the rest of opening a file."""

    # Descriptors

    def open(self, path: Path) -> File:
        return self._opened(*_split(path), lambda: self._disk.open(path))

    def open_directory(self, path: Path) -> File:
        return self._opened(str(path), "", lambda: self._disk.open_directory(path))

    def _opened(self, directory: str, name: str, opening: Callable[[], File]) -> File:
        if self.interruption is not None:
            self.interruption.check()
        with self._lock:
            file = self._with_room(opening)
            place = self._directories.get(directory)
            if place is None:
                place = self._directories[directory] = _Directory(directory)
            opened = _File(self, place, name, file)
            place.files[opened] = self._open[opened] = None
            return opened

    def _with_room(self, opening: Callable[[], T]) -> T:
        """Do what needs a descriptor; where there is none for it, with that of another."""
        with self._lock:
            if len(self._open) >= self._limit:
                self._give_one_up()
            while True:
                try:
                    return opening()
                except NoDescriptors:
                    if not self._give_one_up():
                        raise

    def reopen(self, file: _File, inner: File) -> File:
        with self._lock:
            if file.opened is None:

                def opening() -> File:
                    inner.reopen(Path(file.place.path, file.name))
                    return inner

                file.opened = self._with_room(opening)
                self._open[file] = None
            return inner

    def _give_one_up(self) -> bool:
        """Take the descriptor of a file that was not used lately and needs no sync; of another if there is none."""
        for _ in range(2):
            for file in list(islice(self._open, _LOOKED_AT)):
                self._open.move_to_end(file)
                if file.used or file.dirty:
                    file.used = False
                elif self._give_up(file):
                    return True
        return any(self._give_up(file) for file in list(self._open))

    def _give_up(self, file: _File) -> bool:
        """Take a file's descriptor, unless it is in use."""
        opened, file.opened = file.opened, None
        if file.pins or opened is None:
            file.opened = opened
            return False
        if file.dirty:
            try:
                self._disk.sync_now([opened])
            except OSError as error:
                file.failure = file.failure or error
            file.dirty = False
        opened.release()
        del self._open[file]
        return True

    def release(self, file: _File) -> None:
        with self._lock:
            if file in self._open:
                self._give_up(file)

    def forget(self, file: _File) -> None:
        """Forget a file that was closed."""
        with self._lock:
            self._open.pop(file, None)
            place = file.place
            place.files.pop(file, None)
            if not place.files and self._directories.get(place.path) is place:
                del self._directories[place.path]

    @property
    def count(self) -> int:
        """The number of descriptors that are held."""
        return len(self._open)

    # Syncs

    def sync(self, files: Sequence[File], done: SyncDone) -> None:
        if len(files) == 1:
            self._sync_one(files[0], done)
            return
        parts = self._parts(files)

        def go_on(error: OSError | None) -> None:
            part = next(parts, None) if error is None else None
            if part is None:
                done(error)
                return
            try:
                opened = self._begin(part)
            except OSError as failure:
                done(failure)
                return

            def synced(failure: OSError | None) -> None:
                self._end(part, failure is not None)
                go_on(failure)

            self._disk.sync(opened, synced)

        go_on(None)

    def _sync_one(self, file: File, done: SyncDone) -> None:
        """The usual case, of the commit log, in few steps."""
        assert isinstance(file, _File)
        pinned = file

        def synced(failure: OSError | None) -> None:
            pinned.pins.pop()
            pinned.dirty |= failure is not None
            done(failure)

        pinned.pins.append(None)
        failure = pinned.failure
        if failure is None:
            try:
                opened = pinned.opened or pinned.reopened()
            except OSError as error:
                failure = error
        if failure is not None:
            synced(failure)
            return
        pinned.dirty = False
        self._disk.sync((opened,), synced)

    def sync_now(self, files: Sequence[File]) -> None:
        for part in self._parts(files):
            opened = self._begin(part)
            failed = True
            try:
                self._disk.sync_now(opened)
                failed = False
            finally:
                self._end(part, failed)

    def _parts(self, files: Sequence[File]) -> Iterator[list[_File]]:
        """The files in parts, small enough for all of one to be open while they are synced."""
        most = max(self._limit // 2, 2)
        for start in range(0, len(files), most):
            part = []
            for file in files[start : start + most]:
                assert isinstance(file, _File)
                part.append(file)
            yield part

    def _begin(self, part: list[_File]) -> list[File]:
        """Pin and open the files of a part.  Raises OSError: one cannot be opened, or an earlier sync of it failed."""
        opened: list[File] = []
        for file in part:
            file.pins.append(None)
        try:
            for file in part:
                if file.failure is not None:
                    raise file.failure
                opened.append(file.opened or file.reopened())
                file.dirty = False
        except OSError:
            self._end(part, failed=True)
            raise
        return opened

    def _end(self, part: list[_File], failed: bool) -> None:
        for file in part:
            file.pins.pop()
            file.dirty |= failed

    # Names

    def rename(self, old: Path, new: Path) -> None:
        with self._lock:
            self._disk.rename(old, new)
            directory = self._directories.pop(str(old), None)
            if directory is not None:
                directory.path = str(new)
                self._directories[directory.path] = directory
            (outer, name), (new_outer, new_name) = _split(old), _split(new)
            parent = self._directories.get(outer)
            if parent is not None and outer == new_outer:
                for file in parent.files:
                    if file.name == name:
                        file.name = new_name

    def sync_directory(self, path: Path) -> None:
        self._with_room(lambda: self._disk.sync_directory(path))

    # The rest is the disk's

    def exists(self, path: Path) -> bool:
        return self._disk.exists(path)

    def is_directory(self, path: Path) -> bool:
        return self._disk.is_directory(path)

    def check_rights(self, path: Path) -> None:
        self._disk.check_rights(path)

    def is_open_to_others(self, path: Path) -> bool:
        return self._disk.is_open_to_others(path)

    def list(self, path: Path) -> list[str]:
        return self._with_room(lambda: self._disk.list(path))

    def make_directory(self, path: Path) -> None:
        self._disk.make_directory(path)

    def remove(self, path: Path) -> None:
        self._disk.remove(path)

    def remove_directory(self, path: Path) -> None:
        self._disk.remove_directory(path)

    def room(self, path: Path) -> Room | None:
        return self._disk.room(path)

    def lock(self, path: Path) -> Callable[[], None]:
        return self._with_room(lambda: self._disk.lock(path))
