"""The small text files that Apache Kafka keeps beside the segments, and the version of the whole directory."""

from __future__ import annotations

import base64
import re
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from fencepost.log.disk import Disk, NothingLeft
from fencepost.protocol.types import LeaderEpoch, Offset

_VERSION_FILE = "fencepost.version"
CLUSTER_FILE = "fencepost.properties"
KAFKA_FILE = "meta.properties"
"""What every log directory of Apache Kafka has, and none of ours."""
STARTS_FILE = "starts"
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"
_LEADER_EPOCHS = re.compile(r"0\n[0-9]+\n([0-9]{1,10} [0-9]{1,19}\n)*")
_SHOWN = 20
"""Letters of what a damaged file says."""
_KAFKA_UUID = re.compile(r"[A-Za-z0-9_-]{22}")
_INDEX_OF_NAME: Final = re.compile(r".+-([0-9]+)")
_INDEX_LINE: Final = re.compile(r"^partition: ([0-9]{1,10})\n", re.MULTILINE)
"""Whole, with its end: half of a number is another one."""


def _read(disk: Disk, path: Path) -> str | None:
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return file.pread(file.size(), 0).decode(errors="replace")
    finally:
        file.close()


def _write(disk: Disk, path: Path, text: str) -> None:
    """Replace a file as a whole."""
    fresh = path.with_name(path.name + ".tmp")
    file = disk.open(fresh)
    try:
        file.truncate(0)
        file.pwrite(text.encode(), 0)
        disk.sync_now([file])
    finally:
        file.close()
    disk.rename(fresh, path)


def is_fresh(disk: Disk, root: Path) -> bool:
    """Whether this directory has no version yet: nobody has got as far as `write_version`."""
    return not disk.exists(root / _VERSION_FILE)


def check_version(disk: Disk, root: Path, ours: int, refusal: type[Exception]) -> None:
    """Refuse a directory that a newer Fencepost has written, or whose version cannot be read; nothing is changed.

    Raises `refusal`.
    """
    found = _read(disk, root / _VERSION_FILE)
    if not found:
        return
    if re.fullmatch(r"[0-9]{1,9}\n?", found) is None:
        raise refusal(
            f"{root / _VERSION_FILE} is damaged, it says {found[:_SHOWN]!r}: put back a copy of it, or write {ours} "
            "into it, if no newer Fencepost wrote the directory"
        )
    if int(found) > ours:
        raise refusal(
            f"the data directory {root} has format {found.strip()!r}, this Fencepost knows up to {ours}: "
            "use the newer Fencepost that wrote it, or another --data"
        )


def write_version(disk: Disk, root: Path, ours: int) -> None:
    """Mark a directory as ours that has passed every check, if it is not marked."""
    if not _read(disk, root / _VERSION_FILE):
        _write(disk, root / _VERSION_FILE, f"{ours}\n")


def write_cluster_id(disk: Disk, root: Path, cluster_id: str) -> None:
    """Write `fencepost.properties`: which cluster the directory is of."""
    _write(disk, root / CLUSTER_FILE, f"version=1\ncluster.id={cluster_id}\n")


def read_cluster_id(disk: Disk, root: Path) -> str | None:
    """The cluster id in `fencepost.properties`; None if there is no file, empty if it says none.  Raises OSError."""
    text = _read(disk, root / CLUSTER_FILE)
    if text is None:
        return None
    return next((line.removeprefix("cluster.id=") for line in text.splitlines() if line.startswith("cluster.id=")), "")


def write_starts(disk: Disk, directory: Path, number: int) -> None:
    """Write `starts` beside the commit log: how often the node was started.  Durable when `directory` is synced."""
    _write(disk, directory / STARTS_FILE, f"{number}\n")


def read_starts(disk: Disk, directory: Path) -> int | None:
    """The number in `starts`; 0 if there is no such file, None if it has no number.  Raises OSError."""
    text = _read(disk, directory / STARTS_FILE)
    if text is None:
        return 0
    return int(text) if re.fullmatch(r"[0-9]{1,18}\n?", text) else None


def kafka_uuid(identifier: uuid.UUID) -> str:
    """A uuid in the form that Apache Kafka writes."""
    return base64.urlsafe_b64encode(identifier.bytes).decode().rstrip("=")


def uuid_of(text: str) -> uuid.UUID | None:
    """The uuid that Apache Kafka writes so; None if there is none."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "==")) if _KAFKA_UUID.fullmatch(text) else None


class PartitionIdentity(NamedTuple):
    """The partition that a directory is of, by what is in it; None where that is not said."""

    topic_id: uuid.UUID | None
    partition: int | None


def index_of(directory: Path) -> int | None:
    """The number of a partition by the name of its directory; None if that has none."""
    found = _INDEX_OF_NAME.fullmatch(directory.name)
    return int(found[1]) if found else None


def write_partition_metadata(disk: Disk, directory: Path, topic_id: uuid.UUID) -> None:
    """Write `partition.metadata`: the topic id and, in a line that Apache Kafka does not read, the partition's number.

    It is synced by the first checkpoint that has records of the partition: until then the commit log knows them.
    """
    file = disk.open(directory / PARTITION_METADATA)
    try:
        file.truncate(0)
        file.pwrite(f"version: 0\ntopic_id: {kafka_uuid(topic_id)}{_index_line(directory)}".encode(), 0)
    finally:
        file.close()


def _index_line(directory: Path) -> str:
    index = index_of(directory)
    return "" if index is None else f"\npartition: {index}\n"


def add_index(disk: Disk, directory: Path) -> None:
    """Add the number of the partition to a `partition.metadata` of an older version, without it.  Raises OSError."""
    text = _read(disk, directory / PARTITION_METADATA) or ""
    file = disk.open(directory / PARTITION_METADATA)
    try:
        # Behind what is there: whatever a power loss leaves of this, the topic id stays.
        file.pwrite(_index_line(directory).encode(), len(text.rstrip("\0\n").encode()))
    finally:
        file.close()


def read_topic_id(disk: Disk, directory: Path) -> uuid.UUID | None:
    """The topic id in `partition.metadata`; None and ValueError as `read_identity`."""
    return read_identity(disk, directory).topic_id


def read_identity(disk: Disk, directory: Path) -> PartitionIdentity:
    """The content of `partition.metadata`; nothing if it was never written (a power loss may leave it empty, or zeros).

    Raises ValueError if it is damaged, or no file that can be read.
    """
    try:
        text = (_read(disk, directory / PARTITION_METADATA) or "").strip("\0")
    except NothingLeft:
        raise
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if not text:
        return PartitionIdentity(None, None)
    numbers = _INDEX_LINE.findall(text)
    # Of a line that was added a power loss may leave zeros.
    for line in text.replace("\0", "\n").splitlines():
        name, _, value = line.partition(": ")
        if name == "topic_id" and (found := uuid_of(value)) is not None:
            # The last one: where half of a number was left, the whole stands in a line behind it.
            return PartitionIdentity(found, int(numbers[-1]) if numbers else None)
    raise ValueError("there is no line 'topic_id: ' with 22 letters behind it")


def write_leader_epochs(disk: Disk, directory: Path, epochs: list[tuple[LeaderEpoch, Offset]]) -> None:
    """Write `leader-epoch-checkpoint`: each leader epoch with its first offset."""
    _write(disk, directory / LEADER_EPOCHS, _leader_epochs_text(epochs))


def _leader_epochs_text(epochs: list[tuple[LeaderEpoch, Offset]]) -> str:
    return "".join(f"{line}\n" for line in ("0", len(epochs), *(f"{epoch} {offset}" for epoch, offset in epochs)))


def read_leader_epochs(disk: Disk, directory: Path) -> list[tuple[LeaderEpoch, Offset]] | None:
    """The content of the file; None if there is none, or if it is not one that `write_leader_epochs` wrote.

    Raises OSError if it cannot be read.
    """
    text = _read(disk, directory / LEADER_EPOCHS)
    if text is None or not _LEADER_EPOCHS.fullmatch(text):
        return None
    lines = (line.split(" ") for line in text.splitlines()[2:])
    epochs = [(LeaderEpoch(int(epoch)), Offset(int(offset))) for epoch, offset in lines]
    ascending = all(one[0] < following[0] and one[1] <= following[1] for one, following in pairwise(epochs))
    return epochs if ascending and _leader_epochs_text(epochs) == text else None
