"""Reads one file of the commit log, and tells what a power loss has torn from what was damaged later.

Every sync begins with a DURABLE entry that names its own position, and is written after the sync before it has
succeeded.  So:

- An entry that is not whole, with a DURABLE anywhere behind it, was on disk once: the disk has damaged it.
- A DURABLE that stands at another position than it names was moved there with all around it: bytes were put in, or
  taken out, before it.  A power loss leaves what it tears where it was to be, and every file begins with zeros only.
- The same in a file that was followed by another: its last sync had succeeded before that was begun.
- A file that is shorter than a DURABLE in it says was cut.
- An entry that is not whole with no DURABLE behind it is of the last write.  Either its sync was cut off by a power
  loss, and nobody was told of it; or it had succeeded, and then the disk damaged these same bytes, while the mark that
  follows them was lost in a power loss (it has no sync of its own), or not written yet when the process was killed (it
  is written 40 ms at most after the last sync: `REST_SECONDS`).  These look the same.

Files of before there was DURABLE have none: of them it is only known that an entry is damaged if the one that follows
it, by its length, is whole, and that may have been a power loss too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from crc32c import crc32c

from fencepost.log.commit_log_entries import (
    DURABLE_ENTRY,
    DURABLE_SIZE,
    FRAME,
    GENERATION,
    HEADER_SIZE,
    MAGIC,
    Kind,
)

_ZEROS = bytes(64 * 1024)
_DURABLE = int(Kind.DURABLE)
_KIND_DURABLE = bytes((Kind.DURABLE,))
_DURABLE_START = FRAME.pack(DURABLE_ENTRY.size, 0)[:4]


class Ending(Enum):
    """The kinds of content behind the last whole entry."""

    CLEAN = auto()
    """Nothing."""
    TORN = auto()
    """A write that was never acknowledged."""


@dataclass
class Generation:
    """One file of the commit log."""

    entries: list[memoryview] = field(default_factory=list)
    """The payloads of the whole entries in order, without DURABLE."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """From where to where it is damaged: there is something whole behind each, or there was."""
    end: int = 0
    """Position behind the last whole entry."""
    ending: Ending = Ending.CLEAN
    torn_end: int = 0
    """Position behind the last byte that is not zero."""
    marked: bool = False
    """Whether there is a DURABLE in it."""


def read_generation(data: bytes, generation: int, newest: bool) -> Generation:
    """Take a file of the commit log apart.  `newest`: no other generation was begun after it."""
    front = GENERATION.pack(generation)
    found, seed, view = Generation(), crc32c(front), memoryview(data)
    found.torn_end = _end_of_content(data)
    least_size, at, moved, last = 0, HEADER_SIZE, 0, HEADER_SIZE
    goes_on = data[:HEADER_SIZE] == MAGIC + front
    first = _entry(view, at, seed)
    found.marked = first is not None and first[0] == Kind.DURABLE
    while True:
        if goes_on:
            for payload in _whole_entries(view, at, seed):
                if payload[0] == _DURABLE:
                    found.marked = True
                    _, position, size = DURABLE_ENTRY.unpack(payload)
                    least_size = max(least_size, size)
                    if at - position != moved:
                        # Whole entries were put in or taken out.
                        found.gaps.append((last, at))
                        moved = at - position
                    last = at
                else:
                    found.entries.append(payload)
                at += FRAME.size + len(payload)
            found.end = at
        resumed = _next_durable(data, found.end, found.torn_end, seed, moved)
        if resumed is not None:
            moved = resumed - _position_named(view, resumed)
        elif not found.marked:
            resumed = _next_by_length(view, at, seed)
        if resumed is None:
            break
        found.gaps.append((found.end, resumed))
        at, goes_on = resumed, True
    if len(data) < least_size:
        found.gaps.append((found.end, least_size))
    elif found.torn_end - found.end > DURABLE_SIZE:
        # Anything shorter is what a power loss left of a mark that stands alone.
        if found.marked and not newest:
            found.gaps.append((found.end, found.torn_end))
        else:
            found.ending = Ending.TORN
    return found


def _end_of_content(data: bytes) -> int:
    """Behind the last byte that is not zero: a file is allocated some megabytes ahead."""
    end = len(data)
    while end:
        start = max(end - len(_ZEROS), 0)
        if data[start:end] != _ZEROS[: end - start]:
            return start + len(data[start:end].rstrip(b"\0"))
        end = start
    return 0


def _whole_entries(view: memoryview, at: int, seed: int) -> list[memoryview]:
    """The payloads from `at` on, up to the first that is not whole."""
    found: list[memoryview] = []
    end, unpack, size = len(view), FRAME.unpack_from, FRAME.size
    while at + size <= end:
        length, crc = unpack(view, at)
        start = at + size
        at = start + length
        if length <= 0 or at > end:
            break
        payload = view[start:at]
        if crc32c(payload, seed) != crc:
            break
        found.append(payload)
    return found


def _entry(view: memoryview, at: int, seed: int) -> memoryview | None:
    """The payload of the entry at `at`; None if there is no whole one."""
    if at + FRAME.size > len(view):
        return None
    length, crc = FRAME.unpack_from(view, at)
    payload = view[at + FRAME.size : at + FRAME.size + max(length, 0)]
    if length <= 0 or len(payload) < length or crc32c(payload, seed) != crc:
        return None
    return payload


def _next_durable(data: bytes, behind: int, end: int, seed: int, moved: int) -> int | None:
    """Position of the first whole DURABLE behind `behind` that was written after what stands there; None without any.

    `moved`: by how much what was read last is moved.  One that is moved as far is looked for first; any other one only
    if it names a later position than what was read last: else it is a copy that somebody stored in a record.
    """
    view, at, elsewhere = memoryview(data), behind, None
    while (at := data.find(_DURABLE_START, at + 1, end)) >= 0:
        kind_at = at + FRAME.size
        if data[kind_at : kind_at + 1] == _KIND_DURABLE and _entry(view, at, seed) is not None:
            position = _position_named(view, at)
            if position == at - moved:
                return at
            if elsewhere is None and position >= behind - moved:
                elsewhere = at
    return elsewhere


def _position_named(view: memoryview, at: int) -> int:
    """The position that the DURABLE at `at` names."""
    position: int = DURABLE_ENTRY.unpack_from(view, at + FRAME.size)[1]
    return position


def _next_by_length(view: memoryview, at: int, seed: int) -> int | None:
    """Position of the entry that follows the one at `at`, if that one has a length and the following is whole."""
    if at + FRAME.size > len(view):
        return None
    length = FRAME.unpack_from(view, at)[0]
    following = at + FRAME.size + length
    return following if length > 0 and _entry(view, following, seed) is not None else None
