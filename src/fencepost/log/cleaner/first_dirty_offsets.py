"""`cleaner-offset-checkpoint`: up to where each log is clean, in Apache Kafka's format.

What it says is only worth work: without it everything is taken for dirty.  So a file that cannot be read is no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from fencepost.log.disk import Disk

NAME: Final = "cleaner-offset-checkpoint"

Key = tuple[str, int]


def encode(offsets: Mapping[Key, int]) -> bytes:
    """The file that says this."""
    lines = ["0", str(len(offsets)), *(f"{topic} {index} {offsets[topic, index]}" for topic, index in sorted(offsets))]
    return ("\n".join(lines) + "\n").encode()


def decode(data: bytes) -> dict[Key, int]:
    """What the file says; nothing if it is not whole."""
    lines = data.decode(errors="replace").split("\n")
    if lines[0] != "0" or lines[-1] != "" or lines[1:2] != [str(len(lines) - 3)]:
        return {}
    found: dict[Key, int] = {}
    for line in lines[2:-1]:
        topic, *numbers = line.split(" ")
        if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
            return {}
        found[topic, int(numbers[0])] = int(numbers[1])
    return found


def read(disk: Disk, root: Path) -> dict[Key, int]:
    """What the file in a data directory says; nothing if it is not there or not whole."""
    if not disk.exists(root / NAME):
        return {}
    file = disk.open(root / NAME)
    try:
        return decode(file.pread(file.size(), 0))
    finally:
        file.close()


def write(disk: Disk, root: Path, offsets: Mapping[Key, int], done: Callable[[OSError | None], None]) -> None:
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
