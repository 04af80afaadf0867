"""A simulated disk that fails: single files that give errors, and bytes that change behind everybody's back."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from enum import Enum
from pathlib import Path
from random import Random
from typing import Literal

from fencepost.log.disk import File
from fencepost.simulation.disk import SimulatedDisk, SimulatedFile
from fencepost.simulation.disk_layers import Content, Node


def _files(at: Path, node: Node) -> Iterator[Path]:
    if isinstance(node, Content):
        yield at
        return
    for name, inside in node.cached.items():
        yield from _files(at / name, inside)


class Wrong(Enum):
    """The ways in which reads of a file can be wrong."""

    FLIPPED = "a bit is flipped in what reads give"
    SHORT = "reads give less than there is"


class FaultyDisk(SimulatedDisk):
    """A `SimulatedDisk` whose files can be made to raise OSError, and whose bytes can be changed."""

    def __init__(self, random: Random, capacity: int | None = None) -> None:
        super().__init__(random, capacity)
        self._faults: dict[tuple[Node, str], int] = {}
        self._wrong: dict[Node, tuple[Wrong, Random]] = {}
        self.was_wrong = False
        """Whether any file was ever made to give what is not there."""

    def copy(self, luck: Random | None = None) -> FaultyDisk:
        """A disk with the same contents, and the same luck unless it is given.  Nobody may be using this one."""
        assert not self._locks, "nobody uses it"
        copied = deepcopy(self)
        copied._random = luck or copied._random
        return copied

    def fail(self, path: Path, use: Literal["read", "write", "sync"], error: int = errno.EIO) -> None:
        """Have every such use of the file that is there now raise OSError with this errno."""
        self._faults[self._content_at(path), use] = error

    def heal(self) -> None:
        """End all faults: every use succeeds, and reads give what is there."""
        self._faults.clear()
        self._wrong.clear()

    def give_wrong(self, path: Path, how: Wrong, chance: Random) -> None:
        """Let every second read of the file that is there now give one flipped bit, or less than there is."""
        self._wrong[self._content_at(path)] = how, chance
        self.was_wrong = True

    def given(self, node: Node, data: bytes) -> bytes:
        wrong = self._wrong.get(node) if self._wrong else None
        if wrong is None or not data or wrong[1].random() < 0.5:
            return data
        how, chance = wrong
        at = chance.randrange(len(data))
        if how is Wrong.SHORT:
            return data[:at]
        return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]

    @contextmanager
    def spared(self) -> Iterator[None]:
        """A block in which no faults are met: for who looks at the disk from outside the world."""
        former, self._faults, self._wrong = (self._faults, self._wrong), {}, {}
        try:
            yield
        finally:
            self._faults, self._wrong = former

    def files(self) -> list[Path]:
        """The paths of all files, in order."""
        return sorted(_files(Path("/"), self.root))

    def meet(self, use: str, node: Node) -> None:
        error = self._faults.get((node, use)) if self._faults else None
        if error is not None:
            raise OSError(error, errno.errorcode[error])

    def targets_of(self, files: Sequence[File]) -> tuple[list[tuple[SimulatedFile, int]], OSError | None]:
        targets, error = super().targets_of(files)
        for file, _ in targets if self._faults else ():
            try:
                self.meet("sync", file.node)
            except OSError as fault:
                error = error or fault
        return targets, error

    def bytes_at(self, path: Path) -> bytes:
        """The bytes of a file, read without faults."""
        return bytes(self._content_at(path).cached)

    def overwrite(self, path: Path, data: bytes) -> None:
        """Put other bytes in a file: handles that are open see them, and a power loss keeps them."""
        content = self._content_at(path)
        content.do(len(data), None)
        content.do(0, data)
        content.settle(content.done())

    def _content_at(self, path: Path) -> Content:
        node = self.node_at(path)
        assert isinstance(node, Content), f"{path} is no file"
        return node
