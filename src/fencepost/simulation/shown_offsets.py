"""What answers show of a partition is durable, and no last stable offset passes an open transaction (facts §6.8).

Looked at in every answer to Fetch and ListOffsets when it is made, apart from what the node says of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from fencepost.broker.metadata.topics import Topics
from fencepost.log.partition import Partition
from fencepost.protocol.batch import headers
from fencepost.protocol.messages.list_offsets import LATEST
from fencepost.protocol.types import Isolation

_CONSUMER: Final = -1
"""Who asks is a consumer, and no broker."""


class Watching(Protocol):
    """The log as watchers know it, apart from the answers."""

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition; None if there is none, or it is offline."""
        ...

    def first_unsynced(self, at: tuple[str, int]) -> int | None:
        """The first offset that a power loss might take; None if there is none."""
        ...

    def tell_stable(self, topic: str, index: int, stable: int, start: int) -> None:
        """Note that an answer has the last stable offset of a partition, and the start of its log."""
        ...


def _fetched(request: Any, response: Any, topics: Topics, log: Watching) -> str | None:  # noqa: ARG001
    for topic in response.responses:
        name = topic.topic
        if not name:
            known = topics.by_id.get(topic.topic_id)
            if known is None:
                continue
            name = known.name
        for data in topic.partitions:
            log.tell_stable(name, data.partition_index, data.last_stable_offset, data.log_start_offset)
            unsynced = log.first_unsynced((name, data.partition_index))
            if unsynced is None:
                continue
            if data.high_watermark > unsynced:
                return f"{name}-{data.partition_index} has the high watermark {data.high_watermark}"
            for _, header in headers(data.records or b""):
                if header.last_offset >= unsynced:
                    return f"{name}-{data.partition_index} shows offset {header.last_offset}"
    return None


def _listed(request: Any, response: Any, topics: Topics, log: Watching) -> str | None:  # noqa: ARG001
    """The first offset in a ListOffsets answer that a power loss might take, in words; None if there is none."""
    asked = {
        (topic.name, wanted.partition_index): wanted.timestamp
        for topic in request.topics
        for wanted in topic.partitions
    }
    is_committed = request.isolation_level == Isolation.READ_COMMITTED and request.replica_id == _CONSUMER
    for topic in response.topics:
        for told in topic.partitions:
            at = topic.name, told.partition_index
            partition = log.partition(*at)
            if told.error_code or told.offset < 0 or partition is None:
                continue
            if asked[at] == LATEST and is_committed:
                log.tell_stable(*at, told.offset, partition.log_start_offset)
            unsynced = log.first_unsynced(at)
            if unsynced is not None and told.offset + (asked[at] >= 0) > unsynced:
                return f"{topic.name}-{told.partition_index} is told to have offset {told.offset}"
    return None


#: api -> what an answer shows that is not durable, None if all is; given the request, the answer and what is known
SHOWN: Final[Mapping[int, Callable[[Any, Any, Topics, Watching], str | None]]] = {1: _fetched, 2: _listed}
