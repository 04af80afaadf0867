"""One topic: its id, partitions and settings, and the JSON of it in the metadata store."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fencepost.broker.metadata.store import MetadataDamaged, Versioned
from fencepost.broker.metadata.topic_rules import INTERNAL, LARGEST_COUNT
from fencepost.log.data_directory import DeletedTopic
from fencepost.log.offline import OfflinePartition
from fencepost.log.partition import Partition
from fencepost.protocol.messages.metadata import MetadataResponsePartition

PREFIX: Final = "topic/"
DELETED: Final = "deleted-topic/"
"""Ids of deleted topics, with names and partition counts, until nothing of them could be taken for another one's."""


class NewTopic(NamedTuple):
    """A topic that somebody wants made."""

    name: str
    partitions: int
    settings: Mapping[str, str]


@dataclass(slots=True, eq=False)
class Topic:
    """A topic of the cluster, as this node holds it."""

    name: str
    topic_id: uuid.UUID
    partitions: list[Partition | OfflinePartition]
    count: int
    """Partitions that the store knows of: more than there are while it grows."""
    settings: dict[str, str] = field(default_factory=dict)
    """The settings given for it."""
    version: int = 0
    coming: list[Partition | OfflinePartition] = field(default_factory=list)
    """Partitions that are made but not shown to anybody yet."""
    described: list[MetadataResponsePartition] = field(default_factory=list)
    """What clients are told of the first of its partitions: to describe thousands anew for each would be much work."""
    growth: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while partitions are added."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL


def described_topic(topic_id: uuid.UUID, count: int, settings: Mapping[str, str]) -> bytes:
    """A topic as it is to be in the store, under its name."""
    return json.dumps({"id": str(topic_id), "partitions": count, "settings": dict(settings)}).encode()


def deletion(topic: Topic) -> dict[str, tuple[bytes | None, int]]:
    """The changes of the store that delete a topic, and note that it is deleted: a start may have to finish that."""
    return {
        PREFIX + topic.name: (None, topic.version),
        f"{DELETED}{topic.topic_id}": (f"{topic.name} {topic.count}".encode(), 0),
    }


def stored_topic(key: str, stored: Versioned) -> Topic:
    """A topic as it is in the store.  Raises MetadataDamaged."""
    try:
        described = json.loads(stored.value)
        topic_id, count, settings = uuid.UUID(described["id"]), int(described["partitions"]), described["settings"]
        return Topic(key.removeprefix(PREFIX), topic_id, [], count, dict(settings), stored.version)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _unreadable(key) from error


def deleted_topic(key: str, stored: Versioned) -> tuple[uuid.UUID, DeletedTopic]:
    """The id of a deleted topic, and its name and partitions.  Raises MetadataDamaged.

    An older Fencepost noted its name only: then it may have had LARGEST_COUNT partitions.
    """
    try:
        name, _, count = stored.value.decode().partition(" ")
        return uuid.UUID(key.removeprefix(DELETED)), DeletedTopic(name, int(count or LARGEST_COUNT))
    except ValueError as error:
        raise _unreadable(key) from error


def _unreadable(key: str) -> MetadataDamaged:
    return MetadataDamaged(f"it is damaged: what it has under {key!r} cannot be read")
