"""The name of a partition in the sentences of checkers."""

from __future__ import annotations

from fencepost.protocol.types import TopicPartition


def named(at: TopicPartition) -> str:
    """A partition as Kafka names its directory."""
    return f"{at.topic}-{at.partition}"
