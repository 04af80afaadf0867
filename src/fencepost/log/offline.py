"""Partitions that are known but cannot be used: damaged on disk, or with a directory that is another topic's.

Only that partition is out of service (requests get KAFKA_STORAGE_ERROR, as in Apache Kafka): the node runs on, nothing
in its directory is changed or removed, and what the commit log still has for it is kept there for a later start.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from fencepost.log.settings import LogSettings
from fencepost.protocol.types import LeaderEpoch


class PartitionDamaged(Exception):
    """A partition cannot be opened.  The message is a sentence: which file, what is wrong, and what to do about it."""


@dataclass(slots=True)
class OfflinePartition:
    """A partition that cannot be used, and why.  Requests about it get KAFKA_STORAGE_ERROR."""

    topic: str
    index: int
    topic_id: uuid.UUID
    leader_epoch: LeaderEpoch
    settings: LogSettings
    directory: Path
    reason: str
    """What is wrong and what to do, for people."""
