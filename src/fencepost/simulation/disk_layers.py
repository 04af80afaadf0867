"""The files and directories of a simulated disk, each as the kernel shows it and as a power loss leaves it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

SECTOR = 512


class Content:
    """The bytes of a file.  An operation is (position, bytes), or (size, None) for a truncation."""

    def __init__(self) -> None:
        self.cached = bytearray()
        self._durable = bytearray()
        self._operations: list[tuple[int, bytes | None]] = []
        self._settled = 0

    def do(self, at: int, data: bytes | None) -> None:
        _change(self.cached, at, data)
        self._operations.append((at, data))

    def done(self) -> int:
        """The number of operations so far."""
        return self._settled + len(self._operations)

    def settle(self, upto: int) -> None:
        """Make the first `upto` operations durable."""
        count = max(upto - self._settled, 0)
        if not count:
            return
        for at, data in self._operations[:count]:
            _change(self._durable, at, data)
        del self._operations[:count]
        self._settled += count

    def lose(self, random: Random) -> None:
        chance = random.choice((0.0, 0.2, 0.8, 1.0))
        for at, data in self._operations:
            if data is None:
                if random.random() < chance:
                    _change(self._durable, at, None)
                continue
            for start, end in _sectors(at, len(data)):
                if random.random() < chance:
                    _change(self._durable, at + start, data[start:end])
        self._settled += len(self._operations)
        self._operations = []
        self.cached = bytearray(self._durable)


class Directory:
    """The entries of a directory.  An operation sets names (a renaming sets two) to a node, or to None."""

    def __init__(self) -> None:
        self.cached: dict[str, Node] = {}
        self._durable: dict[str, Node] = {}
        self._operations: list[dict[str, Node | None]] = []
        self._settled = 0

    def do(self, change: dict[str, Node | None]) -> None:
        _enter(self.cached, change)
        self._operations.append(change)

    def done(self) -> int:
        return self._settled + len(self._operations)

    def settle(self, upto: int) -> None:
        count = max(upto - self._settled, 0)
        for change in self._operations[:count]:
            _enter(self._durable, change)
        del self._operations[:count]
        self._settled += count

    def lose(self, random: Random) -> None:
        chance = random.choice((0.0, 0.5, 1.0))
        kept: list[dict[str, Node | None]] = []
        named: set[str] = set()
        for change in reversed(self._operations):
            # What was done to a name later is not there without what was done to it before.
            if random.random() < chance or not named.isdisjoint(change):
                kept.append(change)
                named.update(change)
        for change in reversed(kept):
            _enter(self._durable, change)
        self._settled += len(self._operations)
        self._operations = []
        self.cached = dict(self._durable)
        for name in sorted(self.cached):
            self.cached[name].lose(random)


Node = Content | Directory


def _change(content: bytearray, at: int, data: bytes | None) -> None:
    size = len(content)
    if at == size and data is not None:
        content += data  # mostly
        return
    if data is None:
        del content[at:]
    elif at < size:
        content[at : at + len(data)] = data
        return
    if size < at:
        content.extend(bytes(at - size))
    if data is not None:
        content += data


def _enter(entries: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _sectors(at: int, count: int) -> Iterator[tuple[int, int]]:
    """The parts of a write that reach the disk on their own: (start, end) within its bytes."""
    start = 0
    while start < count:
        end = min((at + start) // SECTOR * SECTOR + SECTOR - at, count)
        yield start, end
        start = end
