"""Files: the interface of a disk, and the disk of this machine.  The one place that opens files.

`Disk` is all that storage asks of a disk; the simulator has a twin that loses unsynced writes.  A sync reports to a
callback, even where it is done at once: what may happen in between is then the same everywhere.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from fencepost.protocol.types import Buffer

SyncDone = Callable[[OSError | None], None]

DIRECTORY_MODE: Final = 0o750
"""The mode of what is made in the data directory, and of it: records are nobody else's.  A umask may be stricter."""
FILE_MODE: Final = 0o640


class NothingLeft(OSError):
    """Space, descriptors or the right to write are used up or withheld now, perhaps not later; nothing was done."""


class DiskFull(NothingLeft):
    """No space is left on the device."""


class NoDescriptors(NothingLeft):
    """The process, or the machine, may have no more files open."""


class Withheld(NothingLeft):
    """Another process holds a lock on a file, or it may not be written to.  The message says what to do."""


class DirectoryInUse(Exception):
    """A live process holds the directory."""


class Room(NamedTuple):
    """The space that is left on a disk."""

    free: int
    """Bytes that the process may still use."""
    total: int
    """Bytes of the whole disk."""
    free_files: int | None
    """The number of files that it can have besides; None if that has no limit."""


class File(Protocol):
    """An open file."""

    def pwrite(self, data: Buffer, at: int) -> None:
        """Write all of data at a position.  Raises DiskFull, OSError."""
        ...

    def pread(self, count: int, at: int) -> bytes:
        """Up to `count` bytes from position `at` on; fewer only at the end of the file."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Make sure that the first `size` bytes have their space, zeros where nothing was written.  Raises DiskFull."""
        ...

    def release(self) -> None:
        """Give its descriptor up.  Until `reopen` it can only be closed."""
        ...

    def reopen(self, path: Path) -> None:
        """Have a descriptor again, of the file that is at `path` now.  Raises NoDescriptors, FileNotFoundError."""
        ...

    def close(self) -> None: ...


class closed_on_failure:
    """A list for files that are opened one after the other: where something fails meanwhile, they are closed."""

    __slots__ = ("_files",)

    def __init__(self) -> None:
        self._files: list[File] = []

    def __enter__(self) -> list[File]:
        return self._files

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for file in self._files:
                file.close()


class Disk(Protocol):
    """The interface of a disk: all that storage asks of one."""

    def open(self, path: Path) -> File:
        """Open for reading and writing; an empty file is made where there is none.

        Raises DiskFull, NoDescriptors; OSError for what is no file, and for a symbolic link to nothing.
        """
        ...

    def open_directory(self, path: Path) -> File:
        """A directory, only to be synced: that makes the creation, renaming and removal of its files durable."""
        ...

    def sync(self, files: Sequence[File], done: SyncDone) -> None:
        """Make everything written to these files durable, then call `done`: at once or later, from the event loop.

        They must stay open until then.
        """
        ...

    def sync_now(self, files: Sequence[File]) -> None:
        """Make everything written to these files durable, and wait: at start and stop, where nobody else does."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Sync a directory: `open_directory`, `sync_now` and `close` in one."""
        ...

    def exists(self, path: Path) -> bool: ...

    def is_directory(self, path: Path) -> bool: ...

    def check_rights(self, path: Path) -> None:
        """Raises OSError if this process may not make and remove files in a directory."""
        ...

    def is_open_to_others(self, path: Path) -> bool:
        """Whether the mode of a directory gives rights to who is neither its owner nor in its group."""
        ...

    def list(self, path: Path) -> list[str]:
        """Names in a directory, sorted; none if it does not exist."""
        ...

    def make_directory(self, path: Path) -> None:
        """Make a directory, and its parents; durable once its parent directory is synced."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; no error if there is none."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory (of a symbolic link only the link); no error if there is none."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Atomically, over a file that may be there."""
        ...

    def room(self, path: Path) -> Room | None:
        """The space that is left on the disk that holds a directory; None if it does not say."""
        ...

    def lock(self, path: Path) -> Callable[[], None]:
        """Hold a lock file for as long as this process lives; returns what releases it.  Raises DirectoryInUse."""
        ...


class _LocalFile:
    __slots__ = ("fd", "sync", "unsynced")

    def __init__(self, fd: int, sync: Callable[[int], None] = os.fdatasync) -> None:
        self.fd = fd
        self.sync = sync
        self.unsynced = 0
        """Bytes written since the last sync began, or a few more."""

    def pwrite(self, data: Buffer, at: int) -> None:
        self.unsynced += len(data)
        try:
            written = os.pwrite(self.fd, data, at)
            while written < len(data):
                written += os.pwrite(self.fd, memoryview(data)[written:], at + written)
        except OSError as error:
            raise _translated(error) from error

    def pread(self, count: int, at: int) -> bytes:
        data = os.pread(self.fd, count, at)
        while 0 < len(data) < count and (more := os.pread(self.fd, count - len(data), at + len(data))):
            data += more
        return data

    def size(self) -> int:
        return os.lseek(self.fd, 0, os.SEEK_END)  # asked before every append: four times as fast as fstat

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self.fd, 0, size)
        except OSError as error:
            raise _translated(error) from error

    def release(self) -> None:
        self.close()

    def reopen(self, path: Path) -> None:
        self.fd = _open(path, _DIRECTORY if self.sync is os.fsync else os.O_RDWR)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise _translated(error) from error


def _open_file(path: Path) -> int:
    """Open a file, or make one, but not where a symbolic link leads to none.  Raises OSError, also for a pipe."""
    try:
        fd = _open(path, os.O_RDWR)
    except FileNotFoundError:
        if path.is_symlink():
            raise
        return _open(path, os.O_RDWR | os.O_CREAT)
    if stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "Is a pipe", str(path))
    return fd


def _translated(error: OSError) -> OSError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(str(error))
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return NoDescriptors(str(error))
    return error


_LITTLE: Final = 64 * 1024
"""Bytes of one file that may be synced in place."""
_AT_ONCE_SECONDS: Final = 0.001
"""A sync of a little is done in place as long as the one before it took no longer."""


class LocalDisk:
    """The machine's disk.

    A sync of a little of one file (the commit log alone) is done in place, as long as the disk is quick at it: it then
    takes about as long as handing it to a thread and being woken again would.  What takes longer goes to one thread, so
    that others are served, and what they write is written, meanwhile; and is done in place where none can be started.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._taken = 0.0
        """Seconds that the last sync of a little took."""

    def open(self, path: Path) -> File:
        return _LocalFile(_open_file(path))

    def open_directory(self, path: Path) -> File:
        return _LocalFile(_open(path, _DIRECTORY), os.fsync)

    def sync(self, files: Sequence[File], done: SyncDone) -> None:
        loop = asyncio.get_running_loop()
        is_little = len(files) == 1 and _local(files[0]).unsynced <= _LITTLE
        if is_little and self._taken <= _AT_ONCE_SECONDS:
            done(self._sync_a_little(files, loop.time))
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="disk-sync")
        try:
            sync = partial(self._sync_a_little, clock=loop.time) if is_little else _sync_all
            begun = loop.run_in_executor(self._thread, sync, files)
        except RuntimeError:
            # No thread can be started.  What was asked of it must not be done some time later, and its error be lost.
            self._thread = None
            done(_sync_in_turn(files))
            return
        begun.add_done_callback(lambda f: done(f.result()))

    def _sync_a_little(self, files: Sequence[File], clock: Callable[[], float]) -> OSError | None:
        begun = clock()
        error = _sync_in_turn(files)
        self._taken = clock() - begun
        return error

    def sync_now(self, files: Sequence[File]) -> None:
        error = _sync_all(files)
        if error is not None:
            raise error

    def sync_directory(self, path: Path) -> None:
        directory = self.open_directory(path)
        try:
            self.sync_now([directory])
        finally:
            directory.close()

    def exists(self, path: Path) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def check_rights(self, path: Path) -> None:
        if not os.access(path, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def is_open_to_others(self, path: Path) -> bool:
        return bool(path.stat().st_mode & stat.S_IRWXO)

    def list(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _translated(error) from error

    def make_directory(self, path: Path) -> None:
        try:
            _make_directory(path)
        except OSError as error:
            raise _translated(error) from error

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        try:
            path.unlink() if path.is_symlink() else path.rmdir()
        except FileNotFoundError:
            pass

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def room(self, path: Path) -> Room | None:
        found = os.statvfs(path)
        files = found.f_favail if found.f_files else None
        return Room(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, files)

    def lock(self, path: Path) -> Callable[[], None]:
        fd = _open_file(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise DirectoryInUse(str(path)) from None
        return lambda: os.close(fd)


def make_file(path: Path) -> None:
    """Make an empty file that others cannot read, if there is none, for a library that would make a laxer one."""
    os.close(_open_file(path))


def _make_directory(path: Path) -> None:
    if not path.parent.exists():
        _make_directory(path.parent)
    path.mkdir(DIRECTORY_MODE, exist_ok=True)


_MANY = 16
"""From so many files on they are synced by several threads: a file system makes a few of them durable in one go."""
_THREADS = 8


def _sync_all(files: Sequence[File]) -> OSError | None:
    if len(files) < _MANY:
        return _sync_in_turn(files)
    errors: list[OSError | None] = []
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="disk-sync") as pool:
        try:
            for number in range(_THREADS):
                pool.submit(lambda part: errors.append(_sync_in_turn(part)), files[number::_THREADS])
        except RuntimeError:  # not so many threads can be started
            pass
    if len(errors) < _THREADS:
        errors.append(_sync_in_turn(files))
    # An error is told once: whoever was told of it must be heard.
    return next(filter(None, errors), None)


def _sync_in_turn(files: Sequence[File]) -> OSError | None:
    try:
        for file in map(_local, files):
            if file.fd < 0:
                return OSError(errno.EBADF, "the file is closed")
            file.unsynced = 0
            file.sync(file.fd)
    except OSError as error:
        return error
    return None


def _local(file: File) -> _LocalFile:
    assert isinstance(file, _LocalFile)
    return file
