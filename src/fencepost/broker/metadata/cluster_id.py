"""The id of the cluster, in the metadata and in the data directory, so that neither is taken for another cluster's.

Apache Kafka has it in `meta.properties`; here it is in `fencepost.properties`, so that a directory of the one is never
taken for one of the other.
"""

from __future__ import annotations

import base64
import random
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fencepost.broker.metadata.store import MetadataStore
from fencepost.log import checkpoint_files
from fencepost.log.data_directory import DirectoryUnusable
from fencepost.log.disk import Disk

_KEY: Final = "cluster-id"
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")


def new_cluster_id(chance: random.Random) -> str:
    """A random UUID in the form that Apache Kafka writes."""
    fresh = uuid.UUID(int=chance.getrandbits(128), version=4)
    return base64.urlsafe_b64encode(fresh.bytes).decode().rstrip("=")


def check_cluster(store: MetadataStore, disk: Disk, root: Path) -> str | None:
    """The id of the cluster, None if neither the metadata nor the directory has one.

    Raises DirectoryUnusable where they disagree, or what the directory has cannot be read; nothing is changed.
    """
    path = root / checkpoint_files.CLUSTER_FILE
    known, found = store.get(_KEY), checkpoint_files.read_cluster_id(disk, root)
    in_metadata = None if known is None else known.value.decode(errors="replace")
    if found is None:
        return in_metadata
    if not _CLUSTER_ID.fullmatch(found):
        of = "" if in_metadata is None else f" (its cluster is {in_metadata})"
        raise DirectoryUnusable(
            f"{path} is damaged: put back a copy of it; or, if {root}/metadata.sqlite is this directory's own{of}, "
            "remove it, and the next start makes it again"
        )
    if in_metadata not in (None, found):
        raise DirectoryUnusable(
            f"{root}/metadata.sqlite is of cluster {in_metadata}, and {root} is of cluster {found} ({path.name}); "
            f"nothing was changed: put back this directory's own metadata.sqlite (or {path.name}, if that is wrong), "
            "or move the metadata.sqlite away and start once with --rebuild-metadata (docs/operating.md)"
        )
    return found


def settle_cluster(
    store: MetadataStore, disk: Disk, root: Path, chance: random.Random, attempt: Callable[[Callable[[], None]], None]
) -> str:
    """See to it that both have the same id: what one of them has, or a new one.  `attempt` writes on a full disk.

    The metadata is written first: of a start that ends in between the next one makes up for the rest.
    Raises as `check_cluster`, and NothingLeft.
    """
    cluster_id = check_cluster(store, disk, root) or new_cluster_id(chance)
    if store.get(_KEY) is None:
        store.write({_KEY: (cluster_id.encode(), 0)})
    if checkpoint_files.read_cluster_id(disk, root) is None:
        attempt(lambda: checkpoint_files.write_cluster_id(disk, root, cluster_id))
    return cluster_id
