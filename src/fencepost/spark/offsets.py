"""The requests of a source to the cluster: which partitions there are, and where they begin and end."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, ClientError, TimedOutError
from fencepost.client.group import Group
from fencepost.client.group_offsets import GroupOffsets
from fencepost.client.positions import ends_of_epochs, list_offsets, list_offsets_and_epochs
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.list_offsets import EARLIEST, LATEST
from fencepost.protocol.types import ZERO_UUID, Isolation, TopicPartition
from fencepost.spark.losses import behind, gone, topic_is_not_there
from fencepost.spark.options import BadOption, Bound, SourceOptions
from fencepost.spark.positions import Positions
from fencepost.spark.progress import TOPIC as PROGRESS
from fencepost.spark.topic_lookups import look_up_anew

logger = logging.getLogger(__name__)

PINS: Final = "/initial"
"""The end of the name, behind the application's id, of the group that keeps where its sources began."""
_CATCHES_UP_WITHIN_MS: Final = 10_000
_RELEASED: Final = "released"
_REPORTED_WITHIN: Final = 5
"""Seconds after which reporting a position is given up."""


class Subscribed(NamedTuple):
    """The partitions that a source is to read, as the cluster has them now."""

    partitions: list[TopicPartition]
    """The partitions, sorted."""
    cluster_id: str
    topic_ids: dict[str, str]
    """Topic -> id, of the topics that have one; brokers before Apache Kafka 2.8 give none."""


async def subscribed(cluster: Cluster, options: SourceOptions) -> Subscribed:
    """The partitions that these options have a source read.  Raises BrokerError if a topic is not there."""
    found = []
    ids = {}
    names = await _topics(cluster, options)
    await look_up_anew(cluster, names)
    for name in names:
        deadline = cluster.deadline(f"looking up topic {name!r}")
        try:
            view = await cluster.topic(name, deadline, create=False)
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if options.pattern is not None:
                continue  # deleted since the pattern was looked at: what that means is told as of any that is gone
            raise topic_is_not_there(name) from None
        found += [TopicPartition(name, number) for number in view.leaders]
        if view.topic_id != ZERO_UUID:
            ids[name] = str(view.topic_id)
    wanted = found if options.partitions is None else list(options.partitions)
    return Subscribed(sorted(wanted), cluster.cluster_id, ids)


async def _topics(cluster: Cluster, options: SourceOptions) -> list[str]:
    if options.partitions is not None:
        return sorted({at.topic for at in options.partitions})
    if options.pattern is None:
        return sorted(options.topics)
    answer = await cluster.refresh(None)
    names = [topic.name for topic in answer.topics if topic.name and not topic.is_internal]
    return sorted(name for name in names if name != PROGRESS and re.fullmatch(options.pattern, name))


async def positions_of(cluster: Cluster, bounds: Sequence[Bound], options: SourceOptions) -> list[Positions]:
    """The positions that each of the bounds means now, all of the same partitions.  Raises BadOption, BrokerError."""
    found = await subscribed(cluster, options)
    try:
        resolved = [await resolve(cluster, found.partitions, bound, options) for bound in bounds]
    except BrokerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        # A topic was made anew meanwhile: its id says so.
        found = await subscribed(cluster, options)
        resolved = [await resolve(cluster, found.partitions, bound, options) for bound in bounds]
    return [Positions(each, found.cluster_id, found.topic_ids, epochs=epochs) for each, epochs in resolved]


async def ends_behind(cluster: Cluster, known: Positions, options: SourceOptions) -> Positions:
    """The ends of the logs, asked for when a position lies beyond what may be read.

    A node that has just started may know of less than the one before, topics too: it is given time to find the rest.
    """
    deadline = cluster.deadline("looking for the end of the logs", _CATCHES_UP_WITHIN_MS)
    while True:
        found = await subscribed(cluster, options)
        ends, epochs = await _latest(cluster, found.partitions, Isolation.READ_UNCOMMITTED)
        logs = Positions(ends, found.cluster_id, found.topic_ids, epochs=epochs)
        short, missing = behind(known, logs), gone(known, logs, options.pattern)
        try:
            if short or missing:
                await deadline.pause(f"{len(short)} partitions end before the position, {len(missing)} topics are gone")
                continue
        except TimedOutError:
            pass
        return logs


async def parted(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """By partition, the offset where this leader epoch, and the earlier ones, end in the log.

    A partition whose leader does not know the epoch is asked again for 10 seconds, then left out.
    """
    deadline = cluster.deadline("looking for leaders that know of leader epochs", _CATCHES_UP_WITHIN_MS)
    while True:
        told = await ends_of_epochs(cluster, epochs)
        try:
            if len(told) < len(epochs):
                for at in epochs.keys() - told.keys():
                    cluster.forget_topic(at.topic)
                await deadline.pause(f"{len(epochs) - len(told)} of {len(epochs)} are not known")
                continue
        except TimedOutError:
            pass
        return told


async def resolve(
    cluster: Cluster, partitions: Sequence[TopicPartition], bound: Bound, options: SourceOptions
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The offsets that a bound means now, and of those at the end of a log the leader epoch, where it is known.

    Raises BadOption if the bound does not fit the partitions.
    """
    bound.check(partitions)
    if not partitions:
        return {}, {}
    if bound.timestamp is not None or bound.timestamps:
        return await _at_times(cluster, {at: bound.time_of(at) for at in partitions}, bound, options), {}
    wanted = {at: bound.by_partition.get(at, bound.otherwise) for at in partitions}
    found = {at: offset for at, offset in wanted.items() if offset >= 0}
    firsts = [at for at, offset in wanted.items() if offset == EARLIEST]
    lasts = [at for at, offset in wanted.items() if offset == LATEST]
    if firsts:
        answers = await list_offsets(cluster, firsts, EARLIEST, options.isolation)
        found |= {at: offset for at, (offset, _) in answers.items()}
    ends, epochs = await _latest(cluster, lasts, options.isolation) if lasts else ({}, {})
    return found | ends, epochs


async def _latest(
    cluster: Cluster, partitions: Sequence[TopicPartition], isolation: Isolation
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The ends of partitions, and their leader epochs, where these are known."""
    answers = await list_offsets_and_epochs(cluster, partitions, LATEST, isolation)
    epochs = {at: listed.leader_epoch for at, listed in answers.items() if listed.leader_epoch >= 0}
    return {at: listed.offset for at, listed in answers.items()}, epochs


async def _at_times(
    cluster: Cluster, times: Mapping[TopicPartition, int], bound: Bound, options: SourceOptions
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for time in sorted(set(times.values())):
        asked = [at for at in times if times[at] == time]
        answers = await list_offsets(cluster, asked, time, options.isolation)
        found |= {at: offset for at, (offset, _) in answers.items() if offset >= 0}
    late = sorted(at for at in times if at not in found)
    if late and not bound.else_latest:
        at = late[0]
        raise BadOption(
            f"{bound.option}: {at.topic}-{at.partition} has no record that is not older than {times[at]}; "
            "with startingOffsetsByTimestampStrategy=latest it is read from its end on"
        )
    ends = await list_offsets(cluster, late, LATEST, options.isolation) if late else {}
    return found | {at: offset for at, (offset, _) in ends.items()}


async def pinned(
    cluster: Cluster, application_id: str, first: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets where this application began: kept as positions of a group of its own, the first time as given.

    Spark asks again for the initial offsets after a restart before the first batch is planned; the answer must not
    have moved, or rows were left out.  A partition that its topic got meanwhile begins at its beginning.
    """
    group = _group(cluster, f"{application_id}{PINS}")
    stored = await group.committed(list(first))
    known = {at: pin.offset for at, pin in stored.items() if pin is not None and pin.metadata != _RELEASED}
    begun = {at.topic for at in known}
    added = [at for at in first if at not in known and at.topic in begun]
    offsets = dict(first)
    if added:
        earliest = await list_offsets(cluster, added, EARLIEST, Isolation.READ_UNCOMMITTED)
        offsets |= {at: offset for at, (offset, _) in earliest.items()}
    missing = {at: OffsetAndMetadata(offset) for at, offset in offsets.items() if at not in known}
    if missing:
        await group.commit(missing, {})
    return offsets | known


async def release(cluster: Cluster, application_id: str, partitions: Sequence[TopicPartition]) -> None:
    """Mark the offsets that `pinned` keeps as released: the planned first micro-batch says itself where it begins.

    So a later query begins where it is told to.
    """
    group = _group(cluster, f"{application_id}{PINS}")
    stored = await group.committed(partitions)
    pins = {at: pin for at, pin in stored.items() if pin is not None and pin.metadata != _RELEASED}
    if pins:
        await group.commit({at: OffsetAndMetadata(pin.offset, _RELEASED) for at, pin in pins.items()}, {})


async def report(cluster: Cluster, group_id: str, positions: Positions) -> None:
    """Commit positions for a group, by which others see the lag of a stream.  A failure is logged, and not raised."""
    offsets = {at: OffsetAndMetadata(offset) for at, offset in positions.offsets.items() if offset >= 0}
    named = positions.topic_ids
    topic_ids = {at: uuid.UUID(named[at.topic]) for at in offsets if at.topic in named}
    try:
        async with asyncio.timeout(_REPORTED_WITHIN):
            await _group(cluster, group_id).commit(offsets, topic_ids)
    except (ClientError, TimeoutError) as error:
        logger.warning("positions of group %s: %s", group_id, str(error) or f"no answer within {_REPORTED_WITHIN} s")


def _group(cluster: Cluster, group_id: str) -> GroupOffsets:
    member = Group(
        cluster,
        group_id,
        None,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        heartbeat_interval_ms=3000,
    )
    return GroupOffsets(member)
