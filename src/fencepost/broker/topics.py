"""The topics of the cluster: their ids, partition counts and settings, durable in the metadata store."""

from __future__ import annotations

import json
import random
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fencepost.broker.metadata_store import MetadataStore
from fencepost.broker.settings import BadSetting, Settings, check_topic_settings
from fencepost.log.disk import DiskFull
from fencepost.log.offline import OfflinePartition
from fencepost.log.partition import Partition
from fencepost.log.storage import Storage
from fencepost.node_log import get_logger
from fencepost.protocol.errors import ErrorCode

logger = get_logger(__name__)

TRANSACTION_STATE: Final = "__transaction_state"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
INTERNAL: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE)
LARGEST_COUNT: Final = 10_000
NO_LEADER: Final = -1
"""In place of the node that leads a partition, while that is offline."""

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")
_PREFIX = "topic/"
_DELETED = "deleted-topic/"
"""Ids of topics that are deleted, with their names, until nothing of them could be taken for a partition."""


def topic_name_error(name: str) -> ErrorCode | None:
    """INVALID_TOPIC_EXCEPTION if a topic cannot be called that."""
    legal = _NAME.match(name) and name not in (".", "..")
    return None if legal else ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicRefused(Exception):
    """A change that is not made, with its error code and a sentence."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


def checked(settings: Mapping[str, str | None]) -> dict[str, str]:
    """The settings of a topic, if it can have them.  Raises TopicRefused."""
    try:
        check_topic_settings(settings)
    except BadSetting as error:
        raise TopicRefused(ErrorCode.INVALID_CONFIG, str(error)) from None
    return {name: value for name, value in settings.items() if value is not None}


def _usable(topic: str, stored: Mapping[str, str]) -> dict[str, str]:
    """The stored settings of a topic without those that an older version took and this one does not."""
    usable: dict[str, str] = {}
    for name, value in stored.items():
        try:
            usable |= checked({name: value})
        except TopicRefused as refused:
            logger.warning("topic %s: %s; its default counts until it is set anew", topic, refused)
    return usable


@dataclass(slots=True)
class Topic:
    """One topic."""

    name: str
    topic_id: uuid.UUID
    partitions: list[Partition | OfflinePartition]
    settings: dict[str, str] = field(default_factory=dict)
    """The settings given for it."""
    version: int = 0

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL


class Topics:
    """All topics, in memory and in the store."""

    def __init__(self, store: MetadataStore, storage: Storage, settings: Settings, chance: random.Random) -> None:
        self._store = store
        self._storage = storage
        self._settings = settings
        self._random = chance
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[uuid.UUID, Topic] = {}
        self._buried: dict[str, tuple[None, int]] = {}
        """Keys of deleted topics that need not be known any more; they go with the next change."""

    def load(self) -> None:
        """Open every topic that the store knows."""
        deleted = self._store.list(_DELETED)
        # When the storage has started nothing is left of these.
        self._buried = {key: (None, stored.version) for key, stored in deleted.items()}
        self._storage.deleted = {
            uuid.UUID(key.removeprefix(_DELETED)): stored.value.decode() for key, stored in deleted.items()
        }
        for key, stored in self._store.list(_PREFIX).items():
            described = json.loads(stored.value)
            name, topic_id = key.removeprefix(_PREFIX), uuid.UUID(described["id"])
            settings = _usable(name, described["settings"])
            self._open(name, topic_id, described["partitions"], settings, stored.version)

    def _open(self, name: str, topic_id: uuid.UUID, count: int, settings: Mapping[str, str], version: int) -> Topic:
        log_settings = self._settings.log_settings(settings)
        partitions = [self._storage.create_partition(name, topic_id, n, log_settings) for n in range(count)]
        topic = Topic(name, topic_id, partitions, dict(settings), version)
        self.by_name[name] = self.by_id[topic_id] = topic
        return topic

    def partition(self, name: str, index: int) -> Partition | None:
        return self._storage.partition(name, index)

    def check_new(self, name: str, count: int, settings: Mapping[str, str]) -> None:
        """Raises TopicRefused if such a topic cannot be made."""
        self.check_name(name)
        checked(settings)
        if not 1 <= count <= LARGEST_COUNT:
            raise TopicRefused(
                ErrorCode.INVALID_PARTITIONS, f"{count} partitions for {name!r}: there may be 1 to {LARGEST_COUNT}"
            )
        self._check_places(name, range(count))

    def _check_places(self, name: str, indexes: Iterable[int]) -> None:
        """Raises TopicRefused where somebody else's files are: no partition may take them for its own."""
        found = self._storage.in_the_way(name, indexes)
        if found is not None:
            why = f"{found} is there and is no partition of this cluster: move it elsewhere, then try again"
            raise TopicRefused(ErrorCode.KAFKA_STORAGE_ERROR, why)

    def check_name(self, name: str) -> None:
        """Raises TopicRefused if a new topic cannot be called that.

        Names that differ in dots and underscores only are one name to metrics; as in Apache Kafka there is one of them.
        """
        if topic_name_error(name) is not None:
            why = "a topic name has 1 to 249 letters, digits, dots, underscores and hyphens"
            raise TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a topic name: {why}")
        if name in self.by_name:
            raise TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if "." in name or "_" in name:
            alike = [known for known in self.by_name if known.replace(".", "_") == name.replace(".", "_")]
            if alike:
                why = f"{name!r} is too much like {alike[0]!r}: they differ in dots and underscores only"
                raise TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, why)

    def new_id(self) -> uuid.UUID:
        """An id that no topic has."""
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def create(self, name: str, count: int, settings: Mapping[str, str] | None = None) -> Topic:
        """Make a topic, durably.  Raises TopicRefused."""
        given = dict(settings or {})
        self.check_new(name, count, given)
        topic_id = self.new_id()
        if not self._save(name, topic_id, count, given, 0):
            raise TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        try:
            return self._open(name, topic_id, count, given, 1)
        except DiskFull as full:
            self._remove(name, topic_id, 1)
            raise _no_space(name) from full

    def ensure_internal(self, name: str) -> Topic:
        """The internal topic, made if it is not there yet."""
        known = self.by_name.get(name)
        if known is not None:
            return known
        # compression.type=uncompressed is Apache Kafka's for the journal of transactions; both are compacted.
        settings = {"cleanup.policy": "compact", "segment.bytes": str(100 * 1024 * 1024)}
        if name == TRANSACTION_STATE:
            settings |= {"compression.type": "uncompressed", "unclean.leader.election.enable": "false"}
        else:
            settings["compression.type"] = "producer"
        return self.create(name, self.internal_count(name), settings)

    def internal_count(self, name: str) -> int:
        """How many partitions the internal topic has, or will have: once it is there the setting has no say."""
        known = self.by_name.get(name)
        if known is not None:
            return len(known.partitions)
        of_transactions = name == TRANSACTION_STATE
        return self._settings.number(
            "transaction.state.log.num.partitions" if of_transactions else "offsets.topic.num.partitions"
        )

    def check_count(self, topic: Topic, count: int) -> None:
        """Raises TopicRefused if the topic cannot grow to `count` partitions."""
        have = len(topic.partitions)
        if not have < count <= LARGEST_COUNT:
            message = (
                f"topic {topic.name!r} has {have} partitions: {count} is not between {have + 1} and {LARGEST_COUNT}"
            )
            raise TopicRefused(ErrorCode.INVALID_PARTITIONS, message)

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Grow a topic to `count` partitions, durably.  Raises TopicRefused."""
        self.check_count(topic, count)
        have = len(topic.partitions)
        self._check_places(topic.name, range(have, count))
        self._replace(topic, count, topic.settings)
        log_settings = self._settings.log_settings(topic.settings)
        for index in range(have, count):
            topic.partitions.append(self._storage.create_partition(topic.name, topic.topic_id, index, log_settings))

    def change_settings(self, topic: Topic, settings: Mapping[str, str]) -> None:
        """Replace the settings of a topic, durably.  Raises TopicRefused."""
        checked(settings)
        self._replace(topic, len(topic.partitions), settings)
        topic.settings = dict(settings)
        for partition in topic.partitions:
            partition.settings = self._settings.log_settings(settings)

    def delete(self, topic: Topic) -> None:
        """Remove a topic, durably."""
        if not self._remove(topic.name, topic.topic_id, topic.version):
            raise TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} was changed meanwhile")
        del self.by_name[topic.name], self.by_id[topic.topic_id]

    def _remove(self, name: str, topic_id: uuid.UUID, version: int) -> bool:
        """Note durably that the topic is deleted, then have its partitions removed: a start may have to finish that."""
        key = f"{_DELETED}{topic_id}"
        if not self._write({_PREFIX + name: (None, version), key: (name.encode(), 0)}):
            return False
        if self._storage.delete_topic(name):
            self._buried[key] = (None, 1)
        return True

    def _write(self, changes: Mapping[str, tuple[bytes | None, int]]) -> bool:
        written = self._store.write({**self._buried, **changes})
        if written:
            self._buried = {}
        return written

    def _replace(self, topic: Topic, count: int, settings: Mapping[str, str]) -> None:
        if not self._save(topic.name, topic.topic_id, count, settings, topic.version):
            raise TopicRefused(ErrorCode.CONCURRENT_TRANSACTIONS, f"topic {topic.name!r} was changed meanwhile")
        topic.version += 1

    def _save(self, name: str, topic_id: uuid.UUID, count: int, settings: Mapping[str, str], version: int) -> bool:
        described = {"id": str(topic_id), "partitions": count, "settings": dict(settings)}
        try:
            return self._write({_PREFIX + name: (json.dumps(described).encode(), version)})
        except DiskFull as full:
            raise _no_space(name) from full


def _no_space(name: str) -> TopicRefused:
    return TopicRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"no space is left on the disk for topic {name!r}: free some")
