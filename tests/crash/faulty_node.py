"""`fencepost serve` on a disk that fails when it is told to: `main([FAULT, PATTERN, TIMES, "serve", ...])`.

The disk is the machine's own.  From SIGUSR1 on the next TIMES uses of files with PATTERN in their paths meet FAULT.
"""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fencepost import cli
from fencepost.broker import broker
from fencepost.log.disk import DiskFull, File, LocalDisk, SyncDone
from fencepost.protocol.types import Buffer

FAULTS = ("EIO at a sync", "EIO at a write", "ENOSPC at a write", "EIO at a read", "a short read", "a flipped bit")


class Fault:
    """What befalls which files, and how often yet."""

    def __init__(self, what: str, pattern: str, times: int) -> None:
        assert what in FAULTS
        self.what = what
        self._pattern = pattern
        self._left = 0
        self._times = times

    def begin(self, *_: object) -> None:
        self._left = self._times

    def befalls(self, path: Path, *whats: str) -> bool:
        if self.what not in whats or self._left == 0 or self._pattern not in str(path):
            return False
        self._left -= 1
        return True


class FaultyFile:
    """A file of the machine's disk."""

    def __init__(self, inner: File, path: Path, fault: Fault) -> None:
        self.inner = inner
        self.path = path
        self._fault = fault
        self.size, self.truncate, self.release, self.close = inner.size, inner.truncate, inner.release, inner.close
        self.reopen = inner.reopen

    def pwrite(self, data: Buffer, at: int) -> None:
        if self._fault.befalls(self.path, "ENOSPC at a write"):
            raise DiskFull(errno.ENOSPC, "no space is left on the device")
        if self._fault.befalls(self.path, "EIO at a write"):
            self.inner.pwrite(bytes(data)[: len(data) // 2], at)
            raise OSError(errno.EIO, "half of it was written")
        self.inner.pwrite(data, at)

    def allocate(self, size: int) -> None:
        if self._fault.befalls(self.path, "ENOSPC at a write"):
            raise DiskFull(errno.ENOSPC, "no space is left on the device")
        self.inner.allocate(size)

    def pread(self, count: int, at: int) -> bytes:
        if self._fault.befalls(self.path, "EIO at a read"):
            raise OSError(errno.EIO, "it cannot be read")
        data = self.inner.pread(count, at)
        if data and self._fault.befalls(self.path, "a short read"):
            return data[: len(data) // 2]
        if data and self._fault.befalls(self.path, "a flipped bit"):
            changed = bytearray(data)
            changed[len(data) // 2] ^= 4
            return bytes(changed)
        return data


class FaultyDisk(LocalDisk):
    """The machine's disk, and a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self._fault = fault

    def open(self, path: Path) -> File:
        return FaultyFile(super().open(path), path, self._fault)

    def open_directory(self, path: Path) -> File:
        return FaultyFile(super().open_directory(path), path, self._fault)

    def _inner(self, files: Sequence[File]) -> list[File]:
        """Those of the machine's disk.  Raises OSError if one of them cannot be synced."""
        found = [file for file in files if isinstance(file, FaultyFile)]
        if any(self._fault.befalls(file.path, "EIO at a sync") for file in found):
            raise OSError(errno.EIO, "it cannot be synced")
        return [file.inner for file in found]

    def sync(self, files: Sequence[File], done: SyncDone) -> None:
        try:
            super().sync(self._inner(files), done)
        except OSError as error:
            asyncio.get_running_loop().call_soon(done, error)

    def sync_now(self, files: Sequence[File]) -> None:
        super().sync_now(self._inner(files))


def main(arguments: Sequence[str]) -> int:
    """The exit code of the node."""
    what, pattern, times, *command = arguments
    chosen = Fault(what, pattern, int(times))
    signal.signal(signal.SIGUSR1, chosen.begin)
    broker.LocalDisk = partial(FaultyDisk, chosen)  # type: ignore[assignment,attr-defined]
    return cli.main(command)
