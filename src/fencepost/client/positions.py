"""Where a partition begins and ends, and where reading begins that has no position, or whose position is gone."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.commit_order.position import after, behind_what_is_gone, position_of
from fencepost.client.errors import BrokerError, ConnectionLostError, MisuseError, NoOffsetError, UnreachableError
from fencepost.client.transactional_id import OffsetAndMetadata, with_metadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ListOffsetsRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.types import Isolation, TopicPartition

logger = logging.getLogger(__name__)

EARLIEST: Final = -2
LATEST: Final = -1
_RESETS: Final = {"earliest": EARLIEST, "latest": LATEST, "error": None}
_ISOLATIONS: Final = {
    "read_committed": Isolation.READ_COMMITTED,
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
}


def isolation_of(isolation_level: str) -> Isolation:
    """By the name of the setting.  Raises ValueError."""
    if isolation_level not in _ISOLATIONS:
        raise ValueError(f"isolation_level={isolation_level!r}: it must be one of {', '.join(_ISOLATIONS)}")
    return _ISOLATIONS[isolation_level]


class Positions:
    """Asks the leaders.  Every method raises BrokerError and TimedOutError."""

    def __init__(self, cluster: Cluster, auto_offset_reset: str, isolation: Isolation, in_commit_order: bool) -> None:
        if auto_offset_reset not in _RESETS:
            raise ValueError(f"auto_offset_reset={auto_offset_reset!r}: it must be one of {', '.join(_RESETS)}")
        self._cluster = cluster
        self._reset = _RESETS[auto_offset_reset]
        self._isolation = isolation
        self._in_commit_order = in_commit_order

    def checked(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions that are to be committed.  Raises MisuseError, PositionMetadataError."""
        number = next((at for at, position in offsets.items() if not isinstance(position, OffsetAndMetadata)), None)
        if self._in_commit_order and number is not None:
            raise MisuseError(
                f"in commit order an offset alone ({number[0]}-{number[1]}: {offsets[number]}) does not say what was "
                "delivered: commit(), or commit what next_offsets() gave. To have the group begin at an offset, and "
                "lose what transactions that are open there wrote before it, commit OffsetAndMetadata(offset)"
            )
        return {TopicPartition(*at): self.checked_one(TopicPartition(*at), given) for at, given in offsets.items()}

    def checked_one(self, at: TopicPartition, position: int | OffsetAndMetadata) -> OffsetAndMetadata:
        """A position that somebody gave.  Raises PositionMetadataError."""
        found = with_metadata(position)
        if self._in_commit_order:
            position_of(at, found)
        return found

    async def ends(
        self, partitions: Sequence[TopicPartition], which: int, *, led_only: bool = False
    ) -> dict[TopicPartition, int]:
        """The first offsets that are still there (EARLIEST), or where reading stops now (LATEST)."""
        found = await list_offsets(self._cluster, partitions, which, self._isolation, led_only=led_only)
        return {at: offset for at, (offset, _) in found.items()}

    async def for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int] | None]:
        """(offset, timestamp) of the first record that is not older than a time, None if there is none."""
        found: dict[TopicPartition, tuple[int, int] | None] = {}
        for at, time in times.items():
            answer = (await list_offsets(self._cluster, [TopicPartition(*at)], time, self._isolation))[at]
            found[at] = None if answer[0] < 0 else answer
        return found

    async def reset(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | OffsetAndMetadata]:
        """As `auto_offset_reset` says, without those that nobody leads; raises NoOffsetError if that is "error"."""
        if not partitions:
            return {}
        if self._reset is None:
            at = partitions[0]
            raise NoOffsetError(
                f"no position for {at.topic}-{at.partition}, and auto_offset_reset is 'error': seek() first"
            )
        if self._reset == LATEST and self._in_commit_order:
            stable = await list_offsets(self._cluster, partitions, LATEST, Isolation.READ_COMMITTED, led_only=True)
            ends = await self.ends(list(stable), LATEST, led_only=True)
            return {at: after(stable[at][0], end).committed() for at, end in ends.items()}
        return {**await self.ends(partitions, self._reset, led_only=True)}

    async def not_behind_the_end(
        self, committed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, int | OffsetAndMetadata]:
        """The same positions, or others where the log has lost its end: what comes next there was not delivered.

        In offset order the leader says so when it is asked for records; in commit order it is asked for earlier ones.
        Raises NoOffsetError, PositionMetadataError.
        """
        if not self._in_commit_order:
            return dict(committed)
        delivered = {at: position_of(at, position).delivered for at, position in committed.items()}
        asked = [at for at, position in committed.items() if delivered[at] > position.offset]
        ends = await self.ends(asked, LATEST) if asked else {}
        return {**committed, **await self.instead_of({at: committed[at] for at in asked if delivered[at] > ends[at]})}

    async def instead_of(
        self, lost: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> dict[TopicPartition, int | OffsetAndMetadata]:
        """Where to go on in partitions whose log does not hold what was to be fetched next; `lost`: the positions.

        In commit order, where all that is gone was looked at before, reading goes on behind it.  Raises NoOffsetError.
        """
        found: dict[TopicPartition, int | OffsetAndMetadata] = {}
        if self._in_commit_order:
            for at, log_start in (await self.ends(list(lost), EARLIEST) if lost else {}).items():
                kept = self._behind_what_is_gone(at, with_metadata(lost[at]), log_start)
                if kept is not None:
                    found[at] = kept
        anew = await self.reset([at for at in lost if at not in found])
        if self._in_commit_order:
            for at, position in anew.items():
                logger.warning(
                    "%s: the log has not what comes after %s any more: reading begins anew at %s, and what was kept of "
                    "open transactions is dropped",
                    *(at, with_metadata(lost[at]), with_metadata(position)),
                )
        return found | anew

    def _behind_what_is_gone(
        self, at: TopicPartition, lost: OffsetAndMetadata, log_start: int
    ) -> OffsetAndMetadata | None:
        position = position_of(at, lost)
        kept = behind_what_is_gone(position, log_start)
        if kept is None:
            return None
        gone = (
            f"{at}: the log begins at {log_start} now, and the oldest transaction that was open began at "
            f"{position.start}: what was written in between by transactions that are still open cannot be delivered"
        )
        if self._reset is None:
            raise NoOffsetError(
                f"{gone}. auto_offset_reset is 'error': to go on without it, seek() to {kept.committed()!r}; what was "
                "delivered before is not delivered again then"
            )
        logger.warning("%s. Everything else is.", gone)
        return kept.committed()


async def list_offsets(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    timestamp: int,
    isolation: Isolation,
    *,
    led_only: bool = False,
) -> dict[TopicPartition, tuple[int, int]]:
    """(offset, timestamp) by time: EARLIEST, LATEST, or the first record not older than so many milliseconds.

    `led_only`: without those that nobody leads now; else they are waited for.  Raises BrokerError, TimedOutError.
    """
    deadline = cluster.deadline("looking up offsets")
    found: dict[TopicPartition, tuple[int, int]] = {}
    while True:
        by_node, leaderless = await _by_leader(cluster, [at for at in partitions if at not in found], deadline)
        because: object = None
        for node, asked in by_node.items():
            try:
                answer = await deadline.within(cluster.call(node, _request(asked, timestamp, isolation), most=7))
            except (ConnectionLostError, UnreachableError) as lost:
                because = lost
                for at in asked:
                    cluster.forget_topic(at.topic)
                continue
            for topic in answer.topics:
                for part in topic.partitions:
                    error = ErrorCode(part.error_code)
                    if error.retriable:
                        because = error.name
                        cluster.forget_topic(topic.name)
                    elif error:
                        raise BrokerError(error, f"no offsets of {topic.name}-{part.partition_index} are told")
                    else:
                        found[TopicPartition(topic.name, part.partition_index)] = (part.offset, part.timestamp)
        if because is None and (led_only or not leaderless):
            return found
        for at in leaderless:
            because = because or f"nobody leads {at.topic}-{at.partition}"
            cluster.forget_topic(at.topic)
        await deadline.pause(because)


async def _by_leader(
    cluster: Cluster, partitions: Sequence[TopicPartition], deadline: Deadline
) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    """Partitions by the node that leads them, and those that nobody leads.  Raises BrokerError, TimedOutError."""
    led: dict[int, list[TopicPartition]] = {}
    leaderless = []
    for at in partitions:
        leader = await cluster.leader_if_any(at, deadline)
        if leader is None:
            leaderless.append(at)
        else:
            led.setdefault(leader, []).append(at)
    return led, leaderless


def _request(partitions: Sequence[TopicPartition], timestamp: int, isolation: Isolation) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for at in partitions:
        wanted = ListOffsetsPartition(partition_index=at.partition, timestamp=timestamp)
        topics.setdefault(at.topic, []).append(wanted)
    listed = [ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in topics.items()]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=listed)
