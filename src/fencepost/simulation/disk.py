"""A disk in memory that loses what was not synced.

The twin of `LocalDisk`.  Two layers are kept of everything: what the kernel shows (the page cache) and what a power
loss leaves.  A write, a truncation, or the creation, renaming or removal of a directory entry reaches the second layer
when its file or directory is synced; until then a power loss keeps or loses each of them on its own, and of a write
perhaps only some sectors.  Real file systems lose less: what is right here is right there.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from fencepost.log.disk import DirectoryInUse, DiskFull, File, NoDescriptors, Room, SyncDone
from fencepost.protocol.types import Buffer
from fencepost.simulation.disk_layers import Content, Directory, Node

SLOWEST_SYNC = 0.002
"""Seconds of virtual time that a sync takes at most."""


class PowerCut(BaseException):
    """The machine is off: see `SimulatedDisk.cut_power_after`.  Nothing that runs on it may catch this."""


class SimulatedFile:
    """An open file of a simulated disk."""

    def __init__(self, disk: SimulatedDisk, node: Node) -> None:
        disk.take_descriptor()
        self._disk = disk
        self._life = disk.life
        self._closed = False
        self.node = node

    def error(self) -> OSError | None:
        """The error of every use of this handle; None if it can be used."""
        if self._closed or self._life != self._disk.life:
            return OSError(errno.EBADF, "the file is closed")
        return None

    def _content(self) -> Content:
        if self._closed or self._life != self._disk.life:
            raise OSError(errno.EBADF, "the file is closed")
        assert isinstance(self.node, Content)
        return self.node

    def pwrite(self, data: Buffer, at: int) -> None:
        content, disk = self._content(), self._disk
        disk.operate()
        disk.meet("write", content)
        if disk.capacity is not None:
            disk.take_space(at + len(data) - len(content.cached))
        content.do(at, bytes(data))

    def pread(self, count: int, at: int) -> bytes:
        self._disk.meet("read", content := self._content())
        return self._disk.given(content, bytes(content.cached[at : at + count]))

    def size(self) -> int:
        return len(self._content().cached)

    def truncate(self, size: int) -> None:
        content = self._content()
        self._disk.operate()
        if size != len(content.cached):
            content.do(size, None)

    def allocate(self, size: int) -> None:
        content = self._content()
        self._disk.operate()
        if size > len(content.cached):
            self._disk.take_space(size - len(content.cached))
            content.do(size, None)

    def release(self) -> None:
        self.close()

    def reopen(self, path: Path) -> None:
        if self._life == self._disk.life and self._closed:
            node = self._disk.node_at(path)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            self._disk.take_descriptor()
            self.node, self._closed = node, False

    def close(self) -> None:
        if not self._closed and self._life == self._disk.life:
            self._disk.descriptors_used -= 1
        self._closed = True


class SimulatedDisk:
    """A `Disk` in memory of which a power loss takes what was not synced.

    The same seed and the same calls give the same losses.

    `capacity`: bytes that all files together may have; `descriptors`: how many of them may be open; None for no limit.
    """

    def __init__(self, random: Random, capacity: int | None = None, descriptors: int | None = None) -> None:
        self._random = random
        self.root = Directory()
        """The directory that everything on the disk is in."""
        self._locks: dict[Path, object] = {}
        self._fuse: int | None = None
        self.capacity = capacity
        self.descriptors = descriptors
        self.descriptors_used = 0
        self.sync_error: OSError | None = None
        """If set, every sync fails with it."""
        self._syncs_until_failure: int | None = None
        self.slowest_sync = SLOWEST_SYNC
        self.sync_failed = False
        """Whether the sync that `fail_sync_after` told of has failed."""
        self.life = 0
        """The number of crashes so far: handles of an earlier life are dead."""

    # Faults

    def crash(self) -> None:
        """Have all handles, locks and syncs under way fail from now on, as kill -9 does; the page cache survives."""
        self.life += 1
        self.descriptors_used = 0
        self._locks.clear()
        self._fuse = None

    def power_loss(self) -> None:
        """Crash as `crash` does, and keep or lose each part of what was not synced on its own."""
        self.crash()
        self.root.lose(self._random)

    def meet(self, use: str, node: Node) -> None:
        """Called before each "read" and "write" of a file.  Nothing here; a disk that has faults raises OSError."""

    def given(self, node: Node, data: bytes) -> bytes:  # noqa: ARG002 - as it is where nothing is wrong
        """The bytes that a read gives for these; the same ones here, a disk that has faults gives others."""
        return data

    def cut_power_after(self, operations: int) -> None:
        """Raise PowerCut at that operation that would change the disk, and from then on, until the next crash."""
        self._fuse = operations

    def fail_sync_after(self, syncs: int) -> None:
        """Let so many syncs of files or directories succeed, and the next one fail; later ones succeed again."""
        self._syncs_until_failure, self.sync_failed = syncs, False

    def _sync_error(self) -> OSError | None:
        if self._syncs_until_failure is not None:
            self._syncs_until_failure -= 1
            if self._syncs_until_failure < 0:
                self._syncs_until_failure, self.sync_failed = None, True
                return OSError(errno.EIO, "I/O error")
        return self.sync_error

    @property
    def off(self) -> bool:
        """Whether the power was cut (`cut_power_after`) and nobody called `crash` or `power_loss` since."""
        return self._fuse is not None and self._fuse <= 0

    def operate(self) -> None:
        if self._fuse is not None:
            self._fuse -= 1
            if self._fuse <= 0:
                raise PowerCut

    def used(self) -> int:
        """Bytes that all files have together."""
        return _size(self.root)

    def take_space(self, more: int) -> None:
        if self.capacity is not None and more > 0 and self.used() + more > self.capacity:
            raise DiskFull(errno.ENOSPC, "no space left on the simulated disk")

    def take_descriptor(self) -> None:
        if self.descriptors is not None and self.descriptors_used >= self.descriptors:
            raise NoDescriptors(errno.EMFILE, "too many open files on the simulated disk")
        self.descriptors_used += 1

    # Disk

    def open(self, path: Path) -> File:
        parent, name = self._parent(path)
        node = parent.cached.get(name)
        if node is None:
            self.operate()
            node = Content()
            parent.do({name: node})
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
        return SimulatedFile(self, node)

    def open_directory(self, path: Path) -> File:
        return SimulatedFile(self, self._directory(path))

    def sync(self, files: Sequence[File], done: SyncDone) -> None:
        targets, error = self.targets_of(files)
        error, life = error or self._sync_error(), self.life

        def complete() -> None:
            if life != self.life or self.off:
                return
            failure = error or next(filter(None, (file.error() for file, _ in targets)), None)
            if failure is None:
                for file, upto in targets:
                    file.node.settle(upto)
            done(failure)

        loop = asyncio.get_running_loop()
        if self._random.random() < 0.3:
            loop.call_soon(complete)
        else:
            loop.call_later(self._random.uniform(0, self.slowest_sync), complete)

    def sync_now(self, files: Sequence[File]) -> None:
        self.operate()
        targets, error = self.targets_of(files)
        failure = error or self._sync_error()
        if failure is not None:
            raise failure
        for file, upto in targets:
            file.node.settle(upto)

    def targets_of(self, files: Sequence[File]) -> tuple[list[tuple[SimulatedFile, int]], OSError | None]:
        """Each file with how many of its operations so far a sync makes durable; and the error of an unusable one."""
        targets, error = [], None
        for file in files:
            assert isinstance(file, SimulatedFile)
            error = error or file.error()
            targets.append((file, file.node.done()))
        return targets, error

    def sync_directory(self, path: Path) -> None:
        self.operate()
        error = self._sync_error()
        if error is not None:
            raise error
        directory = self._directory(path)
        directory.settle(directory.done())

    def exists(self, path: Path) -> bool:
        return self.node_at(path) is not None

    def is_directory(self, path: Path) -> bool:
        return isinstance(self.node_at(path), Directory)

    def check_rights(self, path: Path) -> None:
        """Raises nothing: everybody has all rights."""

    def is_open_to_others(self, path: Path) -> bool:  # noqa: ARG002
        """False: there is nobody else."""
        return False

    def list(self, path: Path) -> list[str]:
        node = self.node_at(path)
        return sorted(node.cached) if isinstance(node, Directory) else []

    def make_directory(self, path: Path) -> None:
        directory = self.root
        for name in _names(path):
            node = directory.cached.get(name)
            if node is None:
                self.operate()
                node = Directory()
                directory.do({name: node})
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
            directory = node

    def remove(self, path: Path) -> None:
        *outer, name = _names(path)
        parent = self._node(outer)
        if isinstance(parent, Directory) and name in parent.cached:
            self.operate()
            parent.do({name: None})

    def remove_directory(self, path: Path) -> None:
        node = self.node_at(path)
        if isinstance(node, Directory) and node.cached:
            raise OSError(errno.ENOTEMPTY, "the directory is not empty", str(path))
        self.remove(path)

    def rename(self, old: Path, new: Path) -> None:
        assert old.parent == new.parent, "a renaming within one directory"
        parent = self._directory(old.parent)
        node = parent.cached.get(old.name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(old))
        self.operate()
        parent.do({old.name: None, new.name: node})

    def room(self, path: Path) -> Room | None:  # noqa: ARG002 - there is one disk
        if self.capacity is None:
            return None
        return Room(max(self.capacity - self.used(), 0), self.capacity, None)

    def lock(self, path: Path) -> Callable[[], None]:
        if path in self._locks:
            raise DirectoryInUse(str(path))
        self.open(path).close()
        holder = self._locks[path] = object()

        def release() -> None:
            if self._locks.get(path) is holder:
                del self._locks[path]

        return release

    def node_at(self, path: Path) -> Node | None:
        return self._node(_names(path))

    def _node(self, names: Sequence[str]) -> Node | None:
        node: Node | None = self.root
        for name in names:
            if not isinstance(node, Directory):
                return None
            node = node.cached.get(name)
        return node

    def _parent(self, path: Path) -> tuple[Directory, str]:
        """The directory that a path is in, and its name there.  Raises FileNotFoundError if there is none."""
        *outer, name = _names(path)
        parent = self._node(outer)
        if not isinstance(parent, Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path.parent))
        return parent, name

    def _directory(self, path: Path) -> Directory:
        node = self.node_at(path)
        if not isinstance(node, Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        return node


def _names(path: Path) -> Sequence[str]:
    """The names of the directories on the way to a path, and its own."""
    parts = path.parts
    return parts[1:] if parts[:1] == ("/",) else parts


def _size(node: Node) -> int:
    if isinstance(node, Content):
        return len(node.cached)
    return sum(map(_size, node.cached.values()))
