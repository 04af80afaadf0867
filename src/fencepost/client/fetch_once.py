"""One Fetch of one partition, for those who read a range and are no consumer."""

from __future__ import annotations

import uuid
from typing import Any, Final

from fencepost.client.cluster import Cluster
from fencepost.protocol.messages import FetchRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.types import ZERO_UUID, Isolation, TopicPartition

TOPIC_IDS_SINCE: Final = 13
"""The version of Fetch that names topics by their ids, and no more by their names."""


async def fetch_partition(
    cluster: Cluster,
    leader: int,
    at: TopicPartition,
    position: int,
    isolation: Isolation,
    *,
    max_bytes: int,
    topic_id: uuid.UUID | None = None,
) -> Any:
    """Ask a leader once for one partition; its part of the answer.  Raises ConnectionLostError.

    `topic_id`: given, the leader answers of the topic with this id only; it must serve Fetch of TOPIC_IDS_SINCE.
    """
    wanted = FetchPartition(partition=at.partition, fetch_offset=position, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=at.topic, topic_id=topic_id or ZERO_UUID, partitions=[wanted])],
    )
    by_name, by_id = (TOPIC_IDS_SINCE - 1, 0), (None, TOPIC_IDS_SINCE)
    most, least = by_name if topic_id is None else by_id
    answer = await cluster.call(leader, request, most=most, least=least)
    return answer.responses[0].partitions[0]
