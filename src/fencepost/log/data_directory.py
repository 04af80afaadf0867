"""The data directory of a node: taking it, and what lies in it."""

from __future__ import annotations

from collections.abc import Callable, Container
from pathlib import Path

from fencepost.log import checkpoint_files
from fencepost.log.disk import DirectoryInUse, Disk

FORMAT_VERSION = 1


class DirectoryUnusable(Exception):
    """The data directory cannot be used; the message says why and what to do."""


def take(disk: Disk, root: Path, inner: Path) -> Callable[[], None]:
    """Make the directory if need be (`inner` is one in it), and lock it; returns what releases it.

    Raises DirectoryUnusable: locked by a live process, unreadable, or of a newer format.
    """
    try:
        disk.make_directory(inner)
        if checkpoint_files.is_fresh(disk, root):
            for parent in root.parents:
                disk.sync_directory(parent)
        release = disk.lock(root / ".lock")
    except DirectoryInUse:
        raise DirectoryUnusable(
            f"the data directory {root} is used by another running broker: stop it, or choose another --data"
        ) from None
    except OSError as error:
        raise DirectoryUnusable(f"the data directory {root} cannot be used: {error.strerror or error}") from error
    try:
        disk.sync_directory(root)
        checkpoint_files.check_version(disk, root, FORMAT_VERSION, DirectoryUnusable)
    except BaseException:
        release()
        raise
    return release


def remove_strays(disk: Disk, root: Path, ours: Container[str]) -> None:
    """Remove what deleted topics left behind when the node ended in between; `ours` are those that are in use."""
    for name in disk.list(root):
        a_partition = name.rpartition("-")[2].isdigit() or name.endswith("-delete")
        if a_partition and name not in ours and checkpoint_files.only_ours(disk, root / name):
            disk.remove_tree(root / name)
