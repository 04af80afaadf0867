"""What the generations of the commit log say together of a segment, and what a start makes of it on the disk."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import cast

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.log.log_doubles import ROOT
from tests.log.test_data_directory import put

from fencepost.log.checkpoint_files import write_partition_metadata
from fencepost.log.commit_log import CommitLog
from fencepost.log.commit_log_entries import (
    GENERATION,
    MAGIC,
    READY_ENTRY,
    Kind,
    NamedFile,
    bytes_entry,
    extent_entry,
    framed,
    remove_entry,
    start_entry,
    synced_entry,
)
from fencepost.log.data_directory import deleted_name
from fencepost.log.disk import Disk, File, NoDescriptors
from fencepost.log.replay import Replay, _joined
from fencepost.protocol.types import Offset
from fencepost.simulation.disk import SimulatedDisk

OURS, EARLIER = uuid.UUID(int=1), uuid.UUID(int=2)
SEGMENT = f"t-0/{0:020d}.log"
LATER = f"t-0/{7:020d}.log"
KEPT, NOT_KEPT = (READY_ENTRY.pack(Kind.READY, kept, False) for kept in (True, False))


class Generations:
    """The files of a commit log, as they were written."""

    def __init__(self, disk: Disk, generations: Sequence[Sequence[bytes]]) -> None:
        self._count = len(generations)
        disk.make_directory(self.path(0).parent)
        for number, entries in enumerate(generations, 1):
            front = GENERATION.pack(number)
            put(disk, self.path(number), MAGIC + front + b"".join(framed(each, crc32c(front)) for each in entries))

    def path(self, generation: int) -> Path:
        return ROOT / "commit-log" / f"{generation:020d}"

    def generations(self) -> list[int]:
        return [*range(1, self._count + 1)]


def replayed(*generations: Sequence[bytes], disk: SimulatedDisk | None = None) -> Replay:
    disk, replay = disk or SimulatedDisk(Random(1)), Replay()
    replay.read(disk, cast(CommitLog, Generations(disk, generations)))
    return replay


def named(number: int = 1, path: str = SEGMENT, size: int = 0, offset: int = 0, of: uuid.UUID = OURS) -> bytes:
    return NamedFile(number, size, Offset(offset), of.bytes, path).entry()


def with_segment(data: bytes, path: str = SEGMENT, seed: int = 1) -> SimulatedDisk:
    """A disk with a segment of ours, which is synced."""
    disk = SimulatedDisk(Random(seed))
    put(disk, ROOT / path, data)
    write_partition_metadata(disk, (ROOT / path).parent, OURS)
    disk.sync_now([disk.open(ROOT / path)])
    for directory in (ROOT.parent, ROOT, (ROOT / path).parent):
        disk.sync_directory(directory)
    return disk


def content(disk: Disk, path: str = SEGMENT) -> bytes:
    file = disk.open(ROOT / path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def noted(is_extent: bool, position: int, data: bytes) -> bytes:
    return extent_entry(1, position, len(data), crc32c(data)) if is_extent else bytes_entry(1, position, data)


WRITES = st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=5)), max_size=8)


@given(WRITES, st.integers(0, 8), st.booleans(), st.integers(0, 9))
def test_a_segment_has_every_noted_byte_and_ends_behind_the_last_also_after_a_power_loss(
    writes: list[tuple[bool, bytes]], checkpoint: int, torn: bool, seed: int
) -> None:
    """`checkpoint`: behind so many writes all was synced.  What was synced in the segment itself is noted by a sum."""
    whole = b"".join(data for _, data in writes)
    entries, position, on_disk = [named()], 0, bytearray(len(whole) + 3 * torn)
    for number, (is_extent, data) in enumerate(writes):
        if number == checkpoint:
            entries.append(synced_entry(1, position, Offset(number)))
        if is_extent or number < checkpoint:
            on_disk[position : position + len(data)] = data
        entries.append(noted(is_extent, position, data))
        position += len(data)
    disk = with_segment(bytes(on_disk), seed=seed)
    replay = replayed([*entries, KEPT], disk=disk)
    replay.apply(disk, ROOT)
    assert (replay.lost, replay.segments_of("t-0")[Offset(0)].size) == ({}, len(whole))
    assert content(disk) == whole
    disk.power_loss()
    assert content(disk) == whole


@given(WRITES, st.integers(0, 8), st.booleans(), st.booleans())
def test_what_is_said_again_of_a_partition_says_the_same(
    writes: list[tuple[bool, bytes]], checkpoint: int, is_removed: bool, starts: bool
) -> None:
    """Else one that is not served now could not be, later."""
    entries, position = [named(1), named(2, LATER, offset=7)], 0
    for number, (is_extent, data) in enumerate(writes):
        if number == checkpoint:
            entries.append(synced_entry(1, position, Offset(number)))
        entries.append(noted(is_extent, position, data))
        position += len(data)
    entries += [remove_entry(LATER)] * is_removed + [start_entry(Offset(3), "t-0")] * starts
    first = replayed([*entries, KEPT])
    again = replayed([*first.entries_of("t-0", count(5).__next__), KEPT])
    assert facts(again) == facts(first)
    on_disk = bytearray(position)
    position = 0
    for number, (is_extent, data) in enumerate(writes):
        if is_extent or number < checkpoint < len(writes):
            on_disk[position : position + len(data)] = data
        position += len(data)
    found = []
    for replay in (first, again):
        disk = with_segment(bytes(on_disk))
        put(disk, ROOT / LATER, b"")
        replay.apply(disk, ROOT)
        found.append((content(disk), replay.lost))
    assert found[0] == found[1] == (b"".join(data for _, data in writes), {})


def facts(replay: Replay) -> object:
    segments = replay.segments_of("t-0").items()
    return replay.starts, replay.directories(), {base: said(file) for base, file in segments}


def said(file: object) -> tuple[object, ...]:
    if getattr(file, "removed"):  # noqa: B009 - of whatever is there
        return ("removed",)
    return tuple(getattr(file, name) for name in ("size", "checkpoint_size", "checkpoint_offset", "extents"))


@pytest.mark.parametrize("generations", [[KEPT], [NOT_KEPT], [KEPT, NOT_KEPT], [NOT_KEPT, KEPT], [KEPT, KEPT]])
def test_sizes_are_known_where_no_generation_lacks_an_append(generations: list[bytes]) -> None:
    """Where one does, nothing is cut: there may be more than is noted."""
    kept = NOT_KEPT not in generations
    disk = with_segment(b"four and more")
    first, *more = [[ready] for ready in generations]
    replay = replayed([named(), bytes_entry(1, 0, b"four"), *first], *more, disk=disk)
    replay.apply(disk, ROOT)
    assert replay.complete == kept
    assert content(disk) == (b"four" if kept else b"four and more")


def test_what_a_checkpoint_was_noted_for_does_not_take_back_what_came_meanwhile() -> None:
    disk = with_segment(b"four")
    replay = replayed([named(), bytes_entry(1, 0, b"four"), bytes_entry(1, 4, b"more"), synced_entry(1, 4, Offset(1))])
    assert replay.segments_of("t-0")[Offset(0)].size == 8
    replay.ready = True
    replay.apply(disk, ROOT)
    assert content(disk) == b"fourmore"


@pytest.mark.parametrize("of", [OURS, EARLIER])
def test_what_was_removed_of_an_earlier_topic_is_nothing_of_the_next_one_of_its_name(of: uuid.UUID) -> None:
    """Where the same topic begins anew, it was removed."""
    replay = replayed([named(1, LATER, offset=7, of=of), remove_entry(LATER), named(2, of=OURS), KEPT])
    assert sorted(replay.segments_of("t-0")) == ([0, 7] if of == OURS else [0])


def test_files_of_a_topic_that_was_renamed_to_be_deleted_are_not_missed() -> None:
    """The rename may be on disk before the log can say so."""
    disk = SimulatedDisk(Random(1))
    put(disk, ROOT / deleted_name("t-0", OURS.bytes) / "x")
    replay = replayed([named(size=100, offset=9), KEPT], disk=disk)
    replay.apply(disk, ROOT)
    assert replay.lost == {}
    assert replay.directories() == set()
    assert not disk.exists(ROOT / "t-0")


def missing(disk: SimulatedDisk) -> None:
    disk.remove(ROOT / SEGMENT)


def shortened(disk: SimulatedDisk) -> None:
    file = disk.open(ROOT / SEGMENT)
    file.truncate(3)
    file.close()


def changed(disk: SimulatedDisk) -> None:
    file = disk.open(ROOT / SEGMENT)
    file.pwrite(b"?", 5)
    file.close()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (missing, "is missing and once had 8 bytes"),
        (shortened, "has 3 bytes and once had 4"),
        (changed, "has lost bytes 4 to 8"),
    ],
)
def test_a_partition_that_lacks_what_was_synced_is_left_as_it_is(
    damage: Callable[[SimulatedDisk], None], says: str
) -> None:
    disk = with_segment(b"fourmore")
    entries = [named(size=4, offset=1), extent_entry(1, 4, 4, crc32c(b"more")), bytes_entry(1, 8, b"last"), KEPT]
    damage(disk)
    before = content(disk) if disk.exists(ROOT / SEGMENT) else None
    replay = replayed(entries, disk=disk)
    replay.apply(disk, ROOT)
    (told,) = replay.lost.values()
    assert says in told and "put back a copy" in told
    assert (content(disk) if before is not None else None) == before


@pytest.mark.parametrize("error", [NoDescriptors(24, "none is left"), PermissionError(13, "not allowed")])
def test_a_start_is_refused_where_something_is_lacking_and_goes_on_without_what_cannot_be_opened(
    error: OSError,
) -> None:
    """A partition is not lost because the process has too many files open."""
    disk = with_segment(b"whole")
    replay = replayed([named(), bytes_entry(1, 0, b"whole"), KEPT], disk=disk)
    opened, open_file = list[Path](), disk.open

    def refuse(path: Path) -> File:
        if path == ROOT / SEGMENT:
            opened.append(path)
            if len(opened) > 1:  # the first look is whether all is there
                raise error
        return open_file(path)

    disk.open = refuse  # type: ignore[method-assign]
    with pytest.raises(NoDescriptors) if isinstance(error, NoDescriptors) else nullcontext():
        replay.apply(disk, ROOT)
    assert len(opened) == 2
    assert bool(replay.lost) == isinstance(error, PermissionError)


@given(st.lists(st.tuples(st.integers(0, 12), st.binary(min_size=1, max_size=6)), max_size=8))
def test_writes_that_are_joined_leave_the_same_bytes(writes: list[tuple[int, bytes]]) -> None:
    """Whether they lie side by side, apart, or one on the other; those side by side are one."""
    apart, together = bytearray(20), bytearray(20)
    for position, data in writes:
        apart[position : position + len(data)] = data
    joined = [*_joined((position, memoryview(data)) for position, data in writes)]
    for position, piece in joined:
        together[position : position + len(piece)] = piece
    assert together == apart
    beside = sum(at + len(data) == following for (at, data), (following, _) in pairwise(writes))
    assert len(joined) == len(writes) - beside
