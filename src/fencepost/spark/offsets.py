"""What the source asks the cluster: which partitions there are, and where they begin and end."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError
from fencepost.client.fetcher import list_offsets
from fencepost.client.group import Group
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Isolation, TopicPartition
from fencepost.spark.options import EARLIEST, LATEST, Bound, SourceOptions


async def partitions_of(cluster: Cluster, options: SourceOptions) -> list[TopicPartition]:
    """The partitions that are to be read, sorted.  Raises BrokerError if a topic is not there."""
    if options.partitions is not None:
        return list(options.partitions)
    topics = list(options.topics)
    if options.pattern is not None:
        answer = await cluster.refresh(None)
        names = [topic.name for topic in answer.topics if topic.name and not topic.is_internal]
        topics = [name for name in names if re.fullmatch(options.pattern, name)]
    found = []
    for name in sorted(topics):
        cluster.forget_topic(name)  # it may have grown
        view = await cluster.topic(name, cluster.deadline(f"looking up topic {name!r}"), create=False)
        found += [TopicPartition(name, number) for number in view.leaders]
    return found


async def resolve(
    cluster: Cluster, partitions: Sequence[TopicPartition], bound: Bound, options: SourceOptions
) -> dict[TopicPartition, int]:
    """The offsets that a bound means now."""
    if not partitions:
        return {}
    if bound.timestamp is not None:
        by_time = await list_offsets(cluster, partitions, bound.timestamp, options.isolation)
        late = [at for at, (offset, _) in by_time.items() if offset < 0]
        ends = await list_offsets(cluster, late, LATEST, options.isolation) if late else {}
        return {at: ends[at][0] if at in ends else by_time[at][0] for at in partitions}
    wanted = {at: bound.by_partition.get(at, bound.otherwise) for at in partitions}
    found = {at: offset for at, offset in wanted.items() if offset >= 0}
    for which in (EARLIEST, LATEST):
        rest = [at for at, offset in wanted.items() if offset == which]
        if rest:
            answers = await list_offsets(cluster, rest, which, options.isolation)
            found |= {at: offset for at, (offset, _) in answers.items()}
    return found


async def pinned(cluster: Cluster, application_id: str, first: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The offsets where this application began: kept as positions of a group of its own, the first time as given.

    Spark asks again for the initial offsets after a restart before the first batch is committed; the answer must not
    have moved, or that batch would be another one.  A partition that its topic got meanwhile begins at its beginning.
    """
    group = Group(
        cluster,
        f"{application_id}/initial",
        None,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        heartbeat_interval_ms=3000,
    )
    known = await group.committed(list(first))
    begun = {at.topic for at, found in known.items() if found is not None}
    added = [at for at in first if known.get(at) is None and at.topic in begun]
    if added:
        earliest = await list_offsets(cluster, added, EARLIEST, Isolation.READ_UNCOMMITTED)
        first = first | {at: offset for at, (offset, _) in earliest.items()}
    missing = {at: OffsetAndMetadata(offset) for at, offset in first.items() if known.get(at) is None}
    if missing:
        await group.commit(missing, {})
    return {at: (known.get(at) or missing[at]).offset for at in first}


def lost(at: TopicPartition, wanted: int, available: int) -> BrokerError:
    """Records that were to be read are gone."""
    return BrokerError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{at.topic}-{at.partition} was to be read from offset {wanted}, but begins at {available}: records are lost "
        'to this query. Set .option("failOnDataLoss", "false") to go on without them',
    )
