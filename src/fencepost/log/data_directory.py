"""The data directory of a node: taking it, and telling what in it is ours to remove from what is not.

A directory is the user's.  A partition is removed only if its topic is known to be deleted: by its name, which is
`<topic>-<partition>.<topic id>-delete` from then on, or because its topic id is one of those that the metadata store
says were deleted.  Everything else that nobody knows is named in the log and left.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from fencepost.log import checkpoint_files
from fencepost.log.checkpoint_files import (
    KAFKA_FILE,
    PARTITION_METADATA,
    PartitionIdentity,
    index_of,
    kafka_uuid,
    read_identity,
    read_topic_id,
)
from fencepost.log.disk import DirectoryInUse, Disk, DiskFull, NothingLeft, Withheld
from fencepost.log.file_names import numbered
from fencepost.log.offline import PartitionDamaged
from fencepost.node_log import get_logger

logger = get_logger(__name__)

FORMAT_VERSION = 1
COMMIT_LOG: Final = "commit-log"
"""The directory in it that has files as long as a node lives."""
LOCK: Final = ".lock"
_NOT_OURS_ALONE: Final = (LOCK, "cleaner-offset-checkpoint", "lost+found")
"""Apache Kafka has files of the first two names, too, and every ext4 has the last."""
LONGEST_NAME: Final = 255
"""Bytes that file systems let a name have."""

_PARTITION = re.compile(r"(.+)-[0-9]+")
_DELETED = re.compile(r".+-[0-9]+\.([0-9a-f]{32})-delete")
_PARTITION_FILE = re.compile(
    r"[0-9]{20}\.(log|index|timeindex|txnindex|checksums|snapshot|window)(\.deleted|\.cleaned)?|[0-9]{20}\.[0-9]{20}\.swap"
    r"|partition\.metadata|leader-epoch-checkpoint(\.tmp)?"
)
_NODE_FILE = re.compile(
    r"\.lock|commit-log|(fencepost\.(version|properties)|cleaner-offset-checkpoint)(\.tmp)?|metadata\.sqlite(-journal|-wal|-shm)?|lost\+found"
)


class DirectoryUnusable(Exception):
    """The data directory cannot be used; the message says why and what to do."""


def is_gone(disk: Disk, root: Path) -> bool:
    """Whether the directory of a node that started is not where it was: what is written from then on may be in none."""
    try:
        return not disk.list(root / COMMIT_LOG)
    except OSError:  # it may not be looked into, or there is no descriptor for that
        return False


def take(disk: Disk, root: Path, inner: Path) -> Callable[[], None]:
    """Make the directory if need be (`inner` is one in it), and lock it; returns what releases it.

    Raises DirectoryUnusable: of Apache Kafka, locked by a live process, unreadable, or of a newer format.
    """
    if disk.exists(root / KAFKA_FILE):
        raise DirectoryUnusable(
            f"the data directory {root} is one of Apache Kafka, for it has {KAFKA_FILE}; nothing in it was touched: "
            "choose another --data, and copy the topics from broker to broker with a client"
        )
    try:
        disk.make_directory(inner)
        disk.check_rights(inner)  # before anything is written elsewhere
        if checkpoint_files.is_fresh(disk, root):
            for parent in root.parents:
                disk.sync_directory(parent)
        release = disk.lock(root / LOCK)
    except DirectoryInUse:
        raise _in_use(root) from None
    except OSError as error:
        raise DirectoryUnusable(f"the data directory {root} cannot be used: {what_is_wrong(error, root)}") from error
    try:
        disk.sync_directory(root)
        checkpoint_files.check_version(disk, root, FORMAT_VERSION, DirectoryUnusable)
        if disk.is_open_to_others(root):
            logger.warning(
                "every user of this machine may look into the data directory %s: chmod o= it, if none is to", root
            )
    except BaseException:
        release()
        raise
    return release


def check_free(disk: Disk, root: Path) -> None:
    """Raises DirectoryUnusable if a live process has locked the directory; nothing is written."""
    with suppress(OSError):
        if disk.exists(root / LOCK):
            try:
                disk.lock(root / LOCK)()
            except DirectoryInUse:
                raise _in_use(root) from None


def _in_use(root: Path) -> DirectoryUnusable:
    return DirectoryUnusable(
        f"the data directory {root} is used by another running broker: stop it, or choose another --data"
    )


def mark(disk: Disk, root: Path) -> None:
    """Say in a directory that was taken, and is usable, what its format is."""
    checkpoint_files.write_version(disk, root, FORMAT_VERSION)


def is_foreign(disk: Disk, root: Path) -> bool:
    """Whether there are directories of partitions in it, and nothing that says that a node ever took it.

    One of Apache Kafka is none: `take` says what that is.
    """
    return (
        disk.exists(root)
        and not disk.exists(root / KAFKA_FILE)
        and not any(_NODE_FILE.fullmatch(name) and name not in _NOT_OURS_ALONE for name in disk.list(root))
        and bool(partitions_in(disk, root, {}))
    )


def what_is_wrong(error: OSError, root: Path) -> str:
    """A sentence about a start that is not possible: what is wrong, with which file, and what to do."""
    if isinstance(error, DiskFull):
        return f"{error.strerror or error}; free some space, then start again"
    if isinstance(error, Withheld):
        return f"{error}; then start again"
    if isinstance(error, NothingLeft):
        return f"{error.strerror or error}; raise the limit of open files, then start again"
    return (
        f"{error.filename or root}: {error.strerror or error}; see to it that the node can read and write it, put back "
        "a copy of it, or move it away if it is not the node's; then start again"
    )


# Partitions


def claim(disk: Disk, directory: Path, topic_id: uuid.UUID, is_logged: Callable[[], bool]) -> None:
    """Make the directory of a partition, or make sure that the one which is there is this topic's.

    `is_logged`: whether the commit log says that it is this topic's, which counts where its file says nothing.

    Raises PartitionDamaged, or OSError where the rights to its files are missing, and nothing is changed.
    """
    if disk.exists(directory) and not disk.is_directory(directory):
        raise PartitionDamaged(f"{directory} is no directory: move it away, put back a copy of the partition's there")
    try:
        found, index = read_identity(disk, directory)
    except ValueError as error:
        if isinstance(error.__cause__, PermissionError):
            raise error.__cause__ from None
        raise PartitionDamaged(
            f"{directory / PARTITION_METADATA} cannot be read ({error}): if the directory is this topic's, write "
            f"'topic_id: {kafka_uuid(topic_id)}' into the file, else move the directory away; then start again"
        ) from None
    if found not in (None, topic_id):
        raise PartitionDamaged(
            f"{directory / PARTITION_METADATA} has topic id {kafka_uuid(found)}, and the topic is known by the id "
            f"{kafka_uuid(topic_id)}: if the directory is this topic's, write that into the file, else move the "
            "directory away; then start again"
        )
    if index not in (None, index_of(directory)):
        raise PartitionDamaged(
            f"{directory / PARTITION_METADATA} says that the directory is of partition {index}: if it is in the place "
            f"of another one, put each back into its own, else take the line 'partition: {index}' out of the file; "
            "then start again"
        )
    if found is None and _has_records(disk, directory) and disk.exists(directory / PARTITION_METADATA):
        if not is_logged():
            raise PartitionDamaged(
                f"{directory / PARTITION_METADATA} is empty, and nothing else says whose the records beside it are: if "
                f"they are this topic's, write 'topic_id: {kafka_uuid(topic_id)}' into the file, else move the "
                "directory away; then start again"
            )
        logger.info(
            "%s was empty and is written again: by the commit log the directory is of this id",
            directory / PARTITION_METADATA,
        )
    disk.make_directory(directory)
    if found is None:
        checkpoint_files.write_partition_metadata(disk, directory, topic_id)
    elif index is None:
        with suppress(OSError):  # an older version's, which is served without it
            checkpoint_files.add_index(disk, directory)


def _has_records(disk: Disk, directory: Path) -> bool:
    if not disk.exists(directory):
        return False
    for name, _ in numbered(disk.list(directory), ".log"):
        file = disk.open(directory / name)
        try:
            if file.size():
                return True
        finally:
            file.close()
    return False


def is_of(disk: Disk, directory: Path, topic_id: bytes) -> bool:
    """Whether this is a directory that nothing says is another topic's."""
    try:
        return disk.is_directory(directory) and read_topic_id(disk, directory) in (None, uuid.UUID(bytes=topic_id))
    except ValueError:
        return False


def is_in_its_place(disk: Disk, directory: Path, topic_id: bytes) -> bool:
    """Whether `is_of`, and nothing says that it is of another partition of that topic."""
    return is_of(disk, directory, topic_id) and read_identity(disk, directory).partition in (None, index_of(directory))


def deleted_name(directory: str, topic_id: bytes) -> str:
    """The name for the directory of a deleted partition, with as much of the topic's name as there is room for."""
    topic, _, index = directory.rpartition("-")
    rest = f"-{index}.{topic_id.hex()}-delete"
    return topic[: LONGEST_NAME - len(rest)] + rest


def remove_partition(disk: Disk, directory: Path) -> str:
    """Remove a partition's files, and its directory; why that stays, if it does, else nothing.

    What somebody else has put there is left, and so is then the directory.
    """
    try:
        names = disk.list(directory)
        left = [each for each in names if not _PARTITION_FILE.fullmatch(each) or disk.is_directory(directory / each)]
        for name in names:
            if name not in left:
                disk.remove(directory / name)
        if left:
            return f"{directory} of a deleted topic stays, for somebody has put {_listed(left)} there"
        disk.remove_directory(directory)
    except OSError as error:
        return f"{directory} of a deleted topic cannot be removed: {error}"
    return ""


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A directory that is a partition's by its name."""

    topic: str
    index: int
    topic_id: uuid.UUID | None
    """What it says of itself, or else what the commit log says of it; None if neither can be told."""
    logged: bool
    """Whether the commit log knows it, with this id."""
    unreadable: bool = False
    """Whether there is a `partition.metadata` that does not say what its id is."""
    misplaced: bool = False
    """Whether it says that it is the partition of another number."""


def partitions_in(disk: Disk, root: Path, logged: Mapping[str, uuid.UUID]) -> list[FoundPartition]:
    """All directories that are partitions by their names; `logged`: those that the commit log knows."""
    found = []
    for name in disk.list(root):
        topic, _, index = name.rpartition("-")
        if not _PARTITION.fullmatch(name) or not disk.is_directory(root / name) or index != str(int(index)):
            continue
        try:
            said = read_identity(disk, root / name)
        except ValueError:
            said = PartitionIdentity(None, None)
        topic_id = said.topic_id or logged.get(name)
        known = topic_id is not None and logged.get(name) == topic_id
        unreadable = said.topic_id is None and disk.exists(root / name / PARTITION_METADATA)
        misplaced = said.partition not in (None, int(index))
        found.append(FoundPartition(topic, int(index), topic_id, known, unreadable, misplaced))
    return found


class Survey(NamedTuple):
    """Entries of a data directory that are no partition in use."""

    deleted: list[str]
    """Directories that deleted topics left behind when the node ended in between."""
    strays: list[str]
    """Entries that nobody knows: not ours to remove."""


class DeletedTopic(NamedTuple):
    """A topic that is known to be deleted."""

    name: str
    partitions: int
    """How many it had: what has a larger number was never its own."""


def survey(disk: Disk, root: Path, in_use: Container[str], deleted: Mapping[uuid.UUID, DeletedTopic]) -> Survey:
    """Look at everything in a data directory, and change nothing.

    `in_use`: names of the partitions' directories.  `deleted`: by id, the topics that are known to be deleted.
    """
    found = Survey([], [])
    for name in disk.list(root):
        if name in in_use or _NODE_FILE.fullmatch(name):
            continue
        if _is_deleted(disk, root / name, deleted):
            found.deleted.append(name)
        elif not name.startswith(".") or _PARTITION.match(name):
            found.strays.append(name)
    return found


def _is_deleted(disk: Disk, directory: Path, deleted: Mapping[uuid.UUID, DeletedTopic]) -> bool:
    if not disk.is_directory(directory):
        return False
    try:
        topic_id = read_topic_id(disk, directory)
    except ValueError:
        return False
    named = _DELETED.fullmatch(directory.name)
    if named:
        return topic_id in (None, uuid.UUID(named[1]))
    # A power loss may have taken the id; and a copy under another name has it, too.
    topics = deleted.values() if topic_id is None else filter(None, [deleted.get(topic_id)])
    return any(_is_partition_of(topic, directory.name) for topic in topics)


def _is_partition_of(topic: DeletedTopic, directory: str) -> bool:
    index = directory.removeprefix(f"{topic.name}-")
    return index != directory and index.isdecimal() and index == str(int(index)) and int(index) < topic.partitions


def strays_sentence(root: Path, left: list[str]) -> str:
    """A sentence about strays."""
    return (
        f"what is of no topic that is known here is left as it is in {root}: {_listed(left)}; move it elsewhere, "
        "and if there are partitions among it that should be known see docs/operating.md"
    )


def _listed(names: list[str]) -> str:
    # Somebody else chose them, and a log line is one line.
    shown = ", ".join(name if name.isprintable() else repr(name) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
