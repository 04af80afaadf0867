"""Requests for records of one leader."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final, NamedTuple

from fencepost.client.cluster import Cluster
from fencepost.client.fetch_session import SessionRequest, Wanted
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.fetch_sessions import TOPIC_IDS_SINCE
from fencepost.protocol.messages import FetchRequest, FetchResponse
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic, PartitionData
from fencepost.protocol.types import ZERO_UUID, Isolation, TopicPartition

#: Another node leads the partition by now, or nobody does, or the topic is another one.
LEADER_MOVED: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
)


class FetchSettings(NamedTuple):
    """The fields that are the same in all Fetch requests of a reader.  Sizes are in bytes."""

    max_wait_ms: int
    """Milliseconds that a node may wait for `min_bytes`."""
    min_bytes: int
    max_bytes: int
    max_partition_bytes: int
    isolation: Isolation


def fetch_request(asked: SessionRequest, settings: FetchSettings, max_wait_ms: int) -> FetchRequest:
    """The Fetch for `asked`: the partitions that it names, each from an offset on, and those that it forgets."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        isolation_level=settings.isolation,
        session_id=asked.session_id,
        session_epoch=asked.epoch,
        topics=_named(asked.named, settings.max_partition_bytes),
        forgotten_topics_data=_forgotten(asked),
    )


def _named(named: Mapping[TopicPartition, Wanted], max_bytes: int) -> list[FetchTopic]:
    by_topic: dict[tuple[str, uuid.UUID], list[FetchPartition]] = {}
    for at, (topic_id, offset, epoch) in named.items():
        by_topic.setdefault((at.topic, topic_id), []).append(
            FetchPartition(
                partition=at.partition, fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=max_bytes
            )
        )
    return [
        FetchTopic(topic=name, topic_id=topic_id, partitions=wanted) for (name, topic_id), wanted in by_topic.items()
    ]


def _forgotten(asked: SessionRequest) -> list[ForgottenTopic]:
    by_topic: dict[tuple[str, uuid.UUID], list[int]] = {}
    for at, topic_id in asked.forgotten:
        by_topic.setdefault((at.topic, topic_id), []).append(at.partition)
    return [
        ForgottenTopic(topic=name, topic_id=topic_id, partitions=partitions)
        for (name, topic_id), partitions in by_topic.items()
    ]


def aborted_in(found: PartitionData, isolation: Isolation) -> list[tuple[int, int]] | None:
    """Producer id and first offset of each aborted transaction among the records; None with READ_UNCOMMITTED."""
    if isolation is Isolation.READ_UNCOMMITTED:
        return None
    return [(entry.producer_id, entry.first_offset) for entry in found.aborted_transactions or ()]


async def fetch_partition(
    cluster: Cluster,
    leader: int,
    at: TopicPartition,
    position: int,
    isolation: Isolation,
    *,
    max_bytes: int,
    topic_id: uuid.UUID | None = None,
) -> PartitionData:
    """Ask a leader once for one partition; its part of the answer.  Raises ConnectionLostError.

    It is without records where the answer has none of the partition: a broker that throttles this client says nothing
    of any (KIP-219), nor does one that refuses the request as a whole.

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
    answer: FetchResponse = await cluster.call(leader, request, most=most, least=least)
    for topic in answer.responses:
        for found in topic.partitions:
            return found
    return PartitionData(partition_index=at.partition, error_code=answer.error_code, high_watermark=-1)
