"""The positions of a micro-batch's sources as offsets of the application's group, by which others see its lag."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from fencepost.client.admin.offsets import list_group_offsets
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientError
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.types import TopicPartition
from fencepost.spark.positions import Positions, positions_in_topics
from fencepost.spark.progress import TOPIC, Progress

logger = logging.getLogger(__name__)

_WITHIN_MS: Final = 10_000


def topics_of(source_offsets: Sequence[Any]) -> set[str]:
    """The topics in which the sources with these offsets have positions."""
    return {at.topic for positions in _positions(source_offsets) for at in positions.offsets}


def group_offsets(
    source_offsets: Sequence[Any], cluster_id: str, topic_ids: Mapping[str, str]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets of a micro-batch to commit in the cluster `cluster_id`: those in topics that are known to be its own.

    `topic_ids`: name -> id of the topics that it has.  One of the same name may be another cluster's, or made anew.
    """
    return {
        at: OffsetAndMetadata(offset)
        for positions in _positions(source_offsets)
        if positions.cluster_id and positions.cluster_id == cluster_id
        for at, offset in positions.offsets.items()
        if offset >= 0 and at.topic in topic_ids
        if positions.topic_ids.get(at.topic, topic_ids[at.topic]) == topic_ids[at.topic]
    }


def _positions(source_offsets: Sequence[Any]) -> Iterator[Positions]:
    """The positions of the sources that read topics."""
    for offsets in source_offsets:
        found = positions_in_topics(offsets)
        if found is not None:
            yield found


async def positions_of(
    cluster: Cluster, application_id: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The committed offsets of the application's group in these partitions; none, and a log line, if asking fails."""
    deadline = cluster.deadline("reading the positions of the group", min(cluster.patience_ms, _WITHIN_MS))
    try:
        found = await list_group_offsets(cluster, application_id, partitions, deadline, stable=True)
    except ClientError as error:
        logger.warning("application %s: what was committed is not known by its group: %s", application_id, error)
        return {}
    return {at: position.offset for at, position in found.items() if position is not None}


def beyond(
    application_id: str,
    batch: Progress,
    starts: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
) -> str | None:
    """Why a batch without a progress record must not be written, as the group is beyond its start; None if it may be.

    `starts`: where it begins.  `committed`: the group's positions, which are committed in the transaction of a batch.
    """
    if all(offset <= starts[at] for at, offset in committed.items()):
        return None
    where = json.dumps(Positions(committed).encode(), separators=(",", ":"))
    return (
        f"batch {batch.batch_id} of application {application_id!r} was committed before the topic {TOPIC!r} was "
        f"deleted, without Spark knowing of it: the group {application_id!r} is at {where} already. Nothing was "
        f"written. Go on from there with a new checkpoint: give the source startingOffsets={where!r}. If another "
        "program committed that position, delete it from the group"
    )
