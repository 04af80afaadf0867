"""The producers of a partition on disk (facts §6.10): `<offset>.snapshot`, as of the records before that offset.

Apache Kafka's format has room for one batch per producer.  The whole window of five goes to a file beside it,
`<offset>.window`, which Kafka's tools do not look at; without it a snapshot still loads, with one batch each.  Its CRC
goes on from that of the offset and the snapshot: neither file is believed in the place of another one of its kind.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from struct import error as StructError

from crc32c import crc32c

from fencepost.log.disk import Disk, File, NothingLeft, closed_on_failure
from fencepost.log.file_names import numbered, numbered_path
from fencepost.log.producer_state import BatchMetadata, ProducerEntry
from fencepost.protocol.types import NO_OFFSET, Offset

_VERSION = 1
_FRONT = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_WINDOW_ENTRY = Struct(">qqh")
_BATCH = Struct(">iqiq")


def snapshot_path(directory: Path, offset: Offset) -> Path:
    """The path of the snapshot as of an offset."""
    return numbered_path(directory, offset, ".snapshot")


def _window_path(directory: Path, offset: Offset) -> Path:
    """The path of the windows that belong to the snapshot as of an offset."""
    return numbered_path(directory, offset, ".window")


def encode_snapshot(entries: list[ProducerEntry]) -> bytes:
    """Apache Kafka's file: the last batch of each producer."""
    body = bytearray((len(entries)).to_bytes(4, "big"))
    for entry in entries:
        last = entry.batches[-1] if entry.batches else BatchMetadata(-1, NO_OFFSET, 0, entry.last_timestamp)
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if entry.open_first_offset is None else entry.open_first_offset,
        )
    return _VERSION.to_bytes(2, "big") + crc32c(bytes(body)).to_bytes(4, "big") + bytes(body)


def decode_snapshot(data: bytes) -> list[ProducerEntry] | None:
    """The producers; None if the file is damaged."""
    try:
        version, crc, count = _FRONT.unpack_from(data)
        if version != _VERSION or crc32c(data[6:]) != crc or len(data) != _FRONT.size + count * _ENTRY.size:
            return None
    except StructError:
        return None
    entries = []
    for at in range(_FRONT.size, len(data), _ENTRY.size):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = _ENTRY.unpack_from(data, at)
        entry = ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, None if first < 0 else first)
        if sequence >= 0:
            entry.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
        entries.append(entry)
    return entries


def binding(offset: Offset, snapshot: bytes) -> int:
    """The CRC from which that of the window goes on which belongs to these bytes, as of this offset."""
    return crc32c(snapshot, crc32c(offset.to_bytes(8, "big")))


def encode_window(entries: list[ProducerEntry], bound_to: int) -> bytes:
    """All remembered batches of each producer, and when it was last heard of.  `bound_to`: see `binding`."""
    body = bytearray()
    for entry in entries:
        body += _WINDOW_ENTRY.pack(entry.producer_id, entry.last_seen, len(entry.batches))
        for batch in entry.batches:
            body += _BATCH.pack(*batch)
    return crc32c(bytes(body), bound_to).to_bytes(4, "big") + bytes(body)


def add_window(entries: list[ProducerEntry], data: bytes, bound_to: int) -> bool:
    """Complete loaded producers with their windows; a damaged file changes nothing, and False is returned.

    One that an older Fencepost wrote is bound to nothing (0).
    """
    if len(data) < 4 or int.from_bytes(data[:4], "big") not in (crc32c(data[4:], bound_to), crc32c(data[4:])):
        return False
    by_id = {entry.producer_id: entry for entry in entries}
    at = 4
    while at < len(data):
        producer_id, last_seen, count = _WINDOW_ENTRY.unpack_from(data, at)
        at += _WINDOW_ENTRY.size
        batches = [BatchMetadata(*_BATCH.unpack_from(data, at + n * _BATCH.size)) for n in range(count)]
        at += count * _BATCH.size
        entry = by_id.get(producer_id)
        if entry is not None:
            entry.last_seen = last_seen
            entry.batches.clear()
            entry.batches.extend(batches)
    return True


def write_snapshot(disk: Disk, directory: Path, offset: Offset, entries: list[ProducerEntry]) -> list[File]:
    """Write both files; returns them open, to be synced and closed by the caller."""
    path = snapshot_path(directory, offset)
    snapshot = encode_snapshot(entries)
    window = encode_window(entries, binding(offset, snapshot))
    with closed_on_failure() as files:
        for target, data in ((path, snapshot), (_window_path(directory, offset), window)):
            files.append(disk.open(target))
            files[-1].truncate(0)
            files[-1].pwrite(data, 0)
    return files


def read_snapshot(disk: Disk, directory: Path, offset: Offset, whole: bool = True) -> list[ProducerEntry] | None:
    """The producers as of `offset`; None if there is no usable snapshot.

    `whole`: without the windows it is none either; else it has one batch of each producer then.
    """
    path = snapshot_path(directory, offset)
    snapshot, window = _read(disk, path), _read(disk, _window_path(directory, offset))
    entries = decode_snapshot(snapshot)
    if entries is not None and not add_window(entries, window, binding(offset, snapshot)) and whole:
        return None
    return entries


def open_snapshot(disk: Disk, directory: Path, offset: Offset) -> list[File]:
    """Both files as they are, open, to be synced and closed by the caller; nothing where there is no snapshot."""
    with closed_on_failure() as files:
        for each in (snapshot_path(directory, offset), _window_path(directory, offset)):
            if disk.exists(each):
                files.append(disk.open(each))
    return files


def snapshot_exists(disk: Disk, directory: Path, offset: Offset) -> bool:
    """Whether there is a snapshot as of this offset, good or not."""
    return disk.exists(snapshot_path(directory, offset))


def snapshot_offsets(disk: Disk, directory: Path) -> list[Offset]:
    """The offsets that have a snapshot, ascending."""
    return [Offset(offset) for _, offset in numbered(disk.list(directory), ".snapshot")]


def remove_snapshot(disk: Disk, directory: Path, offset: Offset) -> None:
    """Remove the snapshot as of this offset, and what stands beside it."""
    disk.remove(snapshot_path(directory, offset))
    disk.remove(_window_path(directory, offset))


def _read(disk: Disk, path: Path) -> bytes:
    """The whole file; nothing if it is missing or cannot be read."""
    if not disk.exists(path):
        return b""
    try:
        file = disk.open(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()
    except NothingLeft:
        raise
    except OSError:
        return b""
