"""The names that a topic may have, the changes that it allows, and the errors of others."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Final

from fencepost.broker.compaction import JOURNAL_SEGMENT_BYTES
from fencepost.broker.metadata.settings import LARGEST_COUNT as LARGEST_COUNT
from fencepost.broker.metadata.settings import BadSetting, check_topic_settings
from fencepost.log.disk import DiskFull, NothingLeft, Withheld
from fencepost.node_log import get_logger
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import CONSUMER_OFFSETS, TRANSACTION_STATE

logger = get_logger(__name__)

INTERNAL: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE)
_JOURNAL: Final = {"cleanup.policy": "compact", "segment.bytes": str(JOURNAL_SEGMENT_BYTES)}
#: compression.type=uncompressed is Apache Kafka's for the journal of transactions; both are compacted.
INTERNAL_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    CONSUMER_OFFSETS: {**_JOURNAL, "compression.type": "producer"},
    TRANSACTION_STATE: {
        **_JOURNAL,
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
    },
}
_FEW_MARKS: Final = 7
"""Dots and underscores of a name from which on to look through all names takes less than to try all that are alike."""
MOST_AT_ONCE: Final = 10_000
"""Partitions of the topics that one request may make.  (Kafka's MAX_PARTITIONS_PER_BATCH)"""
NO_LEADER: Final = -1
"""The id in place of the leader's while a partition is offline."""

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


def topic_name_error(name: str) -> ErrorCode | None:
    """INVALID_TOPIC_EXCEPTION if a topic cannot be called that."""
    legal = _NAME.match(name) and name not in (".", "..")
    return None if legal else ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicRefused(Exception):
    """A change that is not made, with its error code and a sentence."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


def check_name(name: str, known: Sequence[Collection[str]]) -> None:
    """Raises TopicRefused if a new topic cannot be called that, beside the `known` ones.

    Names that differ in dots and underscores only are one name to metrics; as in Apache Kafka there is one of them,
    but for the broker's own topics, which must be there.
    """
    if topic_name_error(name) is not None:
        why = "a topic name has 1 to 249 letters, digits, dots, underscores and hyphens"
        raise TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a topic name: {why}")
    if any(name in names for names in known):
        raise TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if ("." in name or "_" in name) and name not in INTERNAL:
        alike = _alike(name, known)
        if alike is not None:
            why = f"{name!r} is too much like {alike!r}: they differ in dots and underscores only"
            raise TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, why)


def _alike(name: str, known: Sequence[Collection[str]]) -> str | None:
    """One of the `known` names that differs from this one in dots and underscores only."""
    marks = name.count(".") + name.count("_")
    if marks < _FEW_MARKS:
        others = map("".join, product(*("._" if each in "._" else each for each in name)))
        return next((each for each in others if any(each in names for names in known)), None)
    as_metrics = name.replace(".", "_")
    return next((each for names in known for each in names if each.replace(".", "_") == as_metrics), None)


def check_new_count(name: str, count: int) -> None:
    """Raises TopicRefused if a new topic cannot have so many partitions."""
    if not 1 <= count <= LARGEST_COUNT:
        raise TopicRefused(
            ErrorCode.INVALID_PARTITIONS, f"{count} partitions for {name!r}: there may be 1 to {LARGEST_COUNT}"
        )


def check_growth(name: str, have: int, count: int) -> None:
    """Raises TopicRefused if a topic of `have` partitions cannot grow to `count`."""
    if not have < count <= LARGEST_COUNT:
        message = f"topic {name!r} has {have} partitions: {count} is not between {have + 1} and {LARGEST_COUNT}"
        raise TopicRefused(ErrorCode.INVALID_PARTITIONS, message)


def taken(path: object) -> TopicRefused:
    """The refusal of a change where somebody else's files are in the place of a partition."""
    why = f"{path} is there and is no partition of this cluster: move it elsewhere, then try again"
    return TopicRefused(ErrorCode.KAFKA_STORAGE_ERROR, why)


def unforgotten(name: str) -> TopicRefused:
    """The refusal of a topic while groups cannot forget what they committed of a deleted one of its name."""
    why = (
        f"what groups committed of an earlier topic {name!r} cannot be removed: free some space on the disk, "
        "or see to the partition of __consumer_offsets that is offline"
    )
    return TopicRefused(ErrorCode.KAFKA_STORAGE_ERROR, why)


def nothing_left(name: str, error: NothingLeft) -> TopicRefused:
    """The refusal of a change of this topic for which there is no room, no descriptor or no metadata."""
    if isinstance(error, DiskFull):
        return TopicRefused(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"no space is left on the disk for topic {name!r}, or it can have no more files (inodes): free some",
        )
    what = "be written down" if isinstance(error, Withheld) else "have its files"
    return TopicRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"topic {name!r} cannot {what}: {error}")


def checked(settings: Mapping[str, str | None]) -> dict[str, str]:
    """The settings of a topic, if it can have them.  Raises TopicRefused."""
    try:
        check_topic_settings(settings)
    except BadSetting as error:
        raise TopicRefused(ErrorCode.INVALID_CONFIG, str(error)) from None
    return {name: value for name, value in settings.items() if value is not None}


def usable(topic: str, stored: Mapping[str, str]) -> dict[str, str]:
    """The stored settings of a topic without those that an older version took and this one does not."""
    kept: dict[str, str] = {}
    for name, value in stored.items():
        try:
            kept |= checked({name: value})
        except TopicRefused as refused:
            logger.warning("topic %s: %s; its default counts until it is set anew", topic, refused)
    try:
        check_internal(topic, kept)
    except TopicRefused as refused:
        logger.warning("%s: it is compacted from now on", refused)
        kept["cleanup.policy"] = _JOURNAL["cleanup.policy"]
    return kept


def check_internal(topic: str, settings: Mapping[str, str]) -> None:
    """Raises TopicRefused for settings by which the broker's own topics would lose what is not superseded."""
    if topic in INTERNAL and settings.get("cleanup.policy") != _JOURNAL["cleanup.policy"]:
        why = "positions and transactions that are still needed would be deleted by age or size"
        raise TopicRefused(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} is compact and stays so: {why}")
