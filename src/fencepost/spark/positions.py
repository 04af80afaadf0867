"""Where a stream stands, as Spark keeps it in a checkpoint: a pure type.

The offsets are written as Spark's own Kafka source writes them.  Beside them stands, under names that no topic can
have, what tells one position from another with the same numbers: the cluster, and the ids of the topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fencepost.protocol.types import TopicPartition

CLUSTER: Final = "@cluster"
TOPICS: Final = "@topics"
BEGAN: Final = "@began"
LARGEST: Final = 2**63 - 1
"""Offset or time of the protocol."""


class Positions(NamedTuple):
    """Of each partition the offset of the next record to read."""

    offsets: Mapping[TopicPartition, int]
    cluster_id: str = ""
    """Empty: not known, as where Spark's own Kafka source wrote them."""
    topic_ids: Mapping[str, str] = {}
    """Of the topics whose ids are known."""
    began: Positions | None = None
    """Where the query began, in the end of its first micro-batch: Spark writes down no other place for it."""

    def encode(self) -> dict[str, Any]:
        """As Spark is given it: what can be written as JSON, the same for the same positions."""
        fields: dict[str, Any] = {}
        for (topic, number), offset in sorted(self.offsets.items()):
            fields.setdefault(topic, {})[str(number)] = offset
        if self.cluster_id:
            fields[CLUSTER] = self.cluster_id
        if self.topic_ids:
            fields[TOPICS] = dict(sorted(self.topic_ids.items()))
        if self.began is not None:
            fields[BEGAN] = self.began.encode()
        return fields

    @classmethod
    def decode(cls, fields: Mapping[str, Any] | None) -> Positions:
        """Raises ValueError, TypeError or AttributeError if it is none."""
        fields = fields or {}
        offsets: dict[TopicPartition, int] = {}
        for topic, numbers in fields.items():
            if topic.startswith("@"):
                continue
            for number, offset in numbers.items():
                at = TopicPartition(topic, int(number))
                if type(offset) is not int or offset > LARGEST or at in offsets:
                    raise ValueError(f"{topic}-{number} is at {offset!r}, which is no offset, or there twice")
                offsets[at] = offset
        began = fields.get(BEGAN)
        ids = {str(topic): str(known) for topic, known in fields.get(TOPICS, {}).items()}
        return cls(offsets, str(fields.get(CLUSTER, "")), ids, None if began is None else cls.decode(began))

    def is_in_another_topic(self, name: str, other: Positions) -> bool:
        """Whether `name` is another topic here than there: it was deleted, and made anew."""
        here, there = self.topic_ids.get(name), other.topic_ids.get(name)
        return here is not None and there is not None and here != there
