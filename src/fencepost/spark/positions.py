"""The positions of a stream, as Spark keeps them in a checkpoint: a pure type.

The offsets are written as Spark's own Kafka source writes them.  Beside them stands, under names that no topic can
have, what tells one position from another with the same numbers: the cluster, and the ids of the topics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from fencepost.protocol.types import TopicPartition

CLUSTER: Final = "@cluster"
TOPICS: Final = "@topics"
BEGAN: Final = "@began"
FIRSTS: Final = "@firsts"
EPOCHS: Final = "@epochs"
FILES: Final = "@files"
"""Beside an offset of Spark's source of files: a digest of the files of that batch."""
OF_THE_END: Final = (BEGAN, FIRSTS, EPOCHS)
"""The names in the end of a micro-batch that are no positions."""
LARGEST: Final = 2**63 - 1
"""The largest offset or time of the protocol."""
LARGEST_PARTITION: Final = 2**31 - 1


class Positions(NamedTuple):
    """The positions of a stream: of each partition the offset of the next record to read, and which log that is in."""

    offsets: Mapping[TopicPartition, int]
    cluster_id: str = ""
    """The id of the cluster; empty: not known, as where Spark's own Kafka source wrote them."""
    topic_ids: Mapping[str, str] = {}
    """Topic -> id, where it is known."""
    began: Positions | None = None
    """Where the query began, in the end of its first micro-batch: Spark writes down no other place for it."""
    firsts: Mapping[TopicPartition, int] = {}
    """In the end of a micro-batch, where the partitions begin that are read for the first time in it."""
    epochs: Mapping[TopicPartition, int] = {}
    """Leader epochs that were seen to lead when the log held all before the offset; where one is known (KIP-320)."""

    def encode(self) -> dict[str, Any]:
        """The positions in the form that Spark is given: a JSON object, the same for the same positions."""
        fields: dict[str, Any] = _by_topic(self.offsets)
        if self.cluster_id:
            fields[CLUSTER] = self.cluster_id
        if self.topic_ids:
            fields[TOPICS] = dict(sorted(self.topic_ids.items()))
        if self.began is not None:
            fields[BEGAN] = self.began.encode()
        if self.firsts:
            fields[FIRSTS] = _by_topic(self.firsts)
        if self.epochs:
            fields[EPOCHS] = _by_topic(self.epochs)
        return fields

    @property
    def alone(self) -> Positions:
        """These positions without `began` and `firsts`, which only the end of a micro-batch has."""
        return self._replace(began=None, firsts={})

    @classmethod
    def decode(cls, fields: Mapping[str, Any] | None) -> Positions:
        """The positions that `encode` gave.  Raises ValueError, TypeError or AttributeError for anything else."""
        fields = fields or {}
        began = fields.get(BEGAN)
        ids = {str(topic): str(known) for topic, known in fields.get(TOPICS, {}).items()}
        return cls(
            _offsets(fields),
            str(fields.get(CLUSTER, "")),
            ids,
            None if began is None else cls.decode(began),
            _offsets(fields.get(FIRSTS, {})),
            _offsets(fields.get(EPOCHS, {})),
        )

    def is_in_another_topic(self, name: str, other: Positions) -> bool:
        """Whether `name` is another topic here than there: it was deleted, and made anew."""
        here, there = self.topic_ids.get(name), other.topic_ids.get(name)
        return here is not None and there is not None and here != there


def positions_in_topics(offsets: Any) -> Positions | None:
    """The offsets of a source as positions in topics; None if it counts something else, as Spark's source of files."""
    try:
        return Positions.decode(offsets)
    except (ValueError, TypeError, AttributeError):
        return None


def without(names: Collection[str], fields: Any) -> Any:
    """A JSON value without the fields of these names, however deep."""
    if isinstance(fields, Mapping):
        return {name: without(names, inner) for name, inner in fields.items() if name not in names}
    return fields


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for (topic, number), offset in sorted(offsets.items()):
        fields.setdefault(topic, {})[str(number)] = offset
    return fields


def _offsets(fields: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Offsets by partition, from JSON.  Raises ValueError, TypeError or AttributeError if these are none."""
    offsets: dict[TopicPartition, int] = {}
    for topic, numbers in fields.items():
        if topic.startswith("@"):
            continue
        for number, offset in numbers.items():
            at = TopicPartition(topic, _partition(number))
            if type(offset) is not int or offset > LARGEST or at in offsets:
                raise ValueError(f"{topic}-{number} is at {offset!r}, which is no offset, or there twice")
            offsets[at] = offset
    return offsets


def _partition(text: str) -> int:
    """The number of a partition.  Raises ValueError for blanks, underscores and signs, which `int` takes, too."""
    if not (text.isascii() and text.isdecimal()) or int(text) > LARGEST_PARTITION:
        raise ValueError(f"{text!r} is no partition")
    return int(text)
