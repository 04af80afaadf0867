"""Looks up where partitions begin and end, and chooses where reading begins without a position that is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.client.arguments import pairs, place, places, whole_number
from fencepost.client.cluster import Cluster, Deadline, Use
from fencepost.client.commit_order.position import after, behind_what_is_gone, position_of
from fencepost.client.errors import (
    BrokerError,
    ConnectionLostError,
    LogTruncatedError,
    MisuseError,
    NoOffsetError,
    OffsetsMissingError,
    TimedOutError,
    UnreachableError,
    UnsupportedByBrokerError,
)
from fencepost.client.gone_offsets import GoneOffsets, gone_position, no_position
from fencepost.client.transactional_id import (
    OffsetAndMetadata,
    checked_position,
    checked_positions,
    with_metadata,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ListOffsetsRequest, OffsetForLeaderEpochRequest
from fencepost.protocol.messages.fetch import EpochEndOffset
from fencepost.protocol.messages.list_offsets import EARLIEST, LATEST, ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic
from fencepost.protocol.types import Isolation, Offset, TopicPartition

logger = logging.getLogger(__name__)

_MOST_NAMED: Final = 5
_ANYWHERE: Final = 2**63 - 1
_RESETS: Final = {"earliest": EARLIEST, "latest": LATEST, "error": None}
_ISOLATIONS: Final = {
    "read_committed": Isolation.READ_COMMITTED,
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
}


def isolation_of(isolation_level: str) -> Isolation:
    """The isolation level of this name, as `isolation_level` has it.  Raises ValueError."""
    if isolation_level not in _ISOLATIONS:
        raise ValueError(f"isolation_level={isolation_level!r}: it must be one of {', '.join(_ISOLATIONS)}")
    return _ISOLATIONS[isolation_level]


class Positions:
    """Looks up offsets at the leaders, for one consumer.  Every coroutine raises BrokerError and TimedOutError."""

    def __init__(self, cluster: Cluster, auto_offset_reset: str, isolation: Isolation, in_commit_order: bool) -> None:
        if auto_offset_reset not in _RESETS:
            raise ValueError(f"auto_offset_reset={auto_offset_reset!r}: it must be one of {', '.join(_RESETS)}")
        self._cluster = cluster
        self._reset = _RESETS[auto_offset_reset]
        self._isolation = isolation
        self._in_commit_order = in_commit_order
        self._gone = GoneOffsets(in_commit_order=in_commit_order)

    def checked(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """`offsets`, to be committed, checked.  Raises MisuseError, PositionMetadataError, TypeError, ValueError."""
        given = checked_positions("offsets", offsets)
        number = next((at for at, position in offsets.items() if not isinstance(position, OffsetAndMetadata)), None)
        if self._in_commit_order and number is not None:
            raise MisuseError(
                f"in commit order an offset alone ({number[0]}-{number[1]}: {offsets[number]}) does not say what was "
                "delivered: commit(), or commit what next_offsets() gave. To have the group begin at an offset, and "
                "lose what transactions that are open there wrote before it, commit OffsetAndMetadata(offset)"
            )
        return {at: self._checked(at, position) for at, position in given.items()}

    def checked_one(self, at: TopicPartition, position: int | OffsetAndMetadata) -> OffsetAndMetadata:
        """`position`, to be sought, checked.  Raises PositionMetadataError, TypeError, ValueError."""
        return self._checked(at, checked_position("offset", position))

    def _checked(self, at: TopicPartition, position: OffsetAndMetadata) -> OffsetAndMetadata:
        if self._in_commit_order:
            position_of(at, position)
        return position

    async def ends(
        self,
        partitions: Sequence[TopicPartition],
        which: int,
        *,
        led_only: bool = False,
        timeout_ms: float | None = None,
    ) -> Mapping[TopicPartition, Offset]:
        """The first offsets that are still there (EARLIEST), or where reading stops now (LATEST)."""
        deadline = self._cluster.deadline("looking up offsets", timeout_ms)
        found = await list_offsets(
            self._cluster, partitions, which, self._isolation, led_only=led_only, deadline=deadline
        )
        return {at: offset for at, (offset, _) in found.items()}

    async def lag(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The number of offsets between these positions and where reading stops now, without leaderless partitions."""
        ends = await self.ends(list(positions), LATEST, led_only=True)
        return {at: max(end - positions[at], 0) for at, end in ends.items()}

    async def seek(
        self, partitions: Iterable[TopicPartition], which: int, seek: Callable[[TopicPartition, int], None]
    ) -> None:
        """Call `seek` with the EARLIEST or LATEST offset of each.  Raises OffsetsMissingError for those without one."""
        missing: OffsetsMissingError | None = None
        try:
            found = await self.ends(places("partitions", partitions), which)
        except OffsetsMissingError as error:
            found, missing = error.found, error
        for at, offset in found.items():
            seek(at, offset)
        if missing is not None:
            raise missing

    async def for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int] | None]:
        """(offset, timestamp) of the first record that is not older than a time, None if there is none."""
        asked = {place(at): whole_number(f"times[{at}]", time) for at, time in pairs("times", times).items()}
        found = await list_offsets(self._cluster, list(asked), asked, self._isolation)
        return {at: None if found[at][0] < 0 else found[at] for at in asked}

    async def reset(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | OffsetAndMetadata]:
        """The positions that `auto_offset_reset` means, of those with a leader.  Raises NoOffsetError if "error"."""
        if not partitions:
            return {}
        if self._reset is None:
            raise no_position(partitions[0])
        if self._reset == LATEST and self._in_commit_order:
            stable = await list_offsets(self._cluster, partitions, LATEST, Isolation.READ_COMMITTED, led_only=True)
            ends = await self.ends(list(stable), LATEST, led_only=True)
            return {at: after(stable[at][0], end).committed() for at, end in ends.items()}
        return {**await self.ends(partitions, self._reset, led_only=True)}

    async def not_behind_the_end(
        self, committed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, int | OffsetAndMetadata]:
        """These positions, or others where the log has lost its end: records that come next there were not delivered.

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
        self, lost: Mapping[TopicPartition, int | OffsetAndMetadata], *, led_only: bool = False
    ) -> dict[TopicPartition, int | OffsetAndMetadata]:
        """The positions to go on from where logs lack the next offset to fetch; `lost`: the positions so far.

        In commit order, where all that is gone was looked at before, reading goes on behind it.  `led_only`: without
        those that nobody leads by now.  Raises NoOffsetError, BrokerError.
        """
        found: dict[TopicPartition, int | OffsetAndMetadata] = {}
        led: Collection[TopicPartition] = lost
        if self._in_commit_order and lost:
            led = log_starts = await self.ends(list(lost), EARLIEST, led_only=led_only)
            for at, log_start in log_starts.items():
                kept = self._behind_what_is_gone(at, with_metadata(lost[at]), log_start)
                if kept is not None:
                    found[at] = kept
        left = [at for at in led if at not in found]
        if left and self._reset is None:
            raise gone_position(left[0], lost[left[0]])
        anew = await self.reset(left)
        for at, position in anew.items():
            self._gone.say_where_reading_goes_on(at, lost[at], position)
        return found | anew

    def where_it_parted(
        self, at: TopicPartition, reached: OffsetAndMetadata, there: EpochEndOffset
    ) -> OffsetAndMetadata | None:
        """The position to go on from in a log with other records than were read (KIP-320), as by an unclean election.

        `reached`: the position.  `there`: the last leader epoch that both have, and where it ends in the log.  None: as
        `auto_offset_reset` says, since in commit order nobody can tell what was open there.  Raises LogTruncatedError.
        """
        delivered = position_of(at, reached).delivered if self._in_commit_order else reached.offset
        if there.end_offset >= delivered:  # what is different there was not handed out
            return reached if self._in_commit_order else reached._replace(leader_epoch=there.epoch)
        if self._reset is None:
            raise LogTruncatedError(at, delivered, there.end_offset)
        logger.warning(
            "%s: the log was truncated at %s, or later, after it was read up to %s, as by the election of a leader "
            "that had less: what was read from there on may be gone, and what stands there now comes next",
            *(at, there.end_offset, delivered),
        )
        return None if self._in_commit_order else OffsetAndMetadata(there.end_offset, leader_epoch=there.epoch)

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


class ListedOffset(NamedTuple):
    """An offset that was looked up; `timestamp` in milliseconds since 1970, and `leader_epoch`, are -1 if unknown."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    timestamp: int | Mapping[TopicPartition, int],
    isolation: Isolation,
    *,
    led_only: bool = False,
    deadline: Deadline | None = None,
) -> dict[TopicPartition, tuple[Offset, int]]:
    """(offset, timestamp) by time: EARLIEST, LATEST, or the first record not older than so many milliseconds.

    `timestamp`: that of all partitions, or of each.  `led_only`: without those that nobody leads now; else they are
    waited for, until `deadline` (None: as long as any call).  Raises BrokerError, OffsetsMissingError.
    """
    listed = await list_offsets_and_epochs(
        cluster, partitions, timestamp, isolation, led_only=led_only, deadline=deadline
    )
    return {at: (Offset(found.offset), found.timestamp) for at, found in listed.items()}


async def list_offsets_and_epochs(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    timestamp: int | Mapping[TopicPartition, int],
    isolation: Isolation,
    *,
    led_only: bool = False,
    deadline: Deadline | None = None,
) -> dict[TopicPartition, ListedOffset]:
    """As `list_offsets`, with leader epochs: for LATEST the leader's, so that no earlier record has a later one."""
    deadline = deadline or cluster.deadline("looking up offsets")
    times = timestamp if isinstance(timestamp, Mapping) else dict.fromkeys(partitions, timestamp)
    asking = _Asking(cluster, times, isolation, deadline)
    try:
        while True:
            by_node, leaderless = await _by_leader(
                cluster, [at for at in partitions if at not in asking.found], led_only, deadline
            )
            because = await asking.ask(by_node)
            if because is None and (led_only or not leaderless):
                return asking.found
            for at in leaderless:
                cluster.forget_topic(at.topic)
            await deadline.pause(because or f"nobody leads {_named(leaderless)}")
    except TimedOutError as late:
        missing = [at for at in partitions if at not in asking.found]
        raise OffsetsMissingError(
            f"{late}. Those of {_named(missing)} are missing; what was told of the others is in `found` of this error",
            missing,
            {at: found.offset for at, found in asking.found.items()},
        ) from None


def _named(partitions: Sequence[TopicPartition]) -> str:
    more = f" and {len(partitions) - _MOST_NAMED} more" if len(partitions) > _MOST_NAMED else ""
    return ", ".join(f"{at.topic}-{at.partition}" for at in partitions[:_MOST_NAMED]) + more


class _Asking:
    """ListOffsets requests to all leaders at once; `found`: the answers so far.  A silent leader delays no other."""

    def __init__(
        self, cluster: Cluster, times: Mapping[TopicPartition, int], isolation: Isolation, deadline: Deadline
    ) -> None:
        self._cluster = cluster
        self._times = times
        self._isolation = isolation
        self._deadline = deadline
        self.found: dict[TopicPartition, ListedOffset] = {}

    async def ask(self, by_node: Mapping[int, list[TopicPartition]]) -> object:
        """Ask the leaders once: None if all offsets are found, else why not.  Raises BrokerError, TimedOutError."""
        answers = await asyncio.gather(*(self._ask(*each) for each in by_node.items()), return_exceptions=True)
        because: object = None
        for each in answers:
            if isinstance(each, BaseException):
                raise each
            because = because or each
        return because

    async def _ask(self, node: int, partitions: list[TopicPartition]) -> object:
        cluster, because = self._cluster, None
        request = _request({at: self._times[at] for at in partitions}, self._isolation)
        try:
            answer = await self._deadline.within(cluster.call(node, request, most=7, use=_use(cluster, node)))
        except (ConnectionLostError, UnreachableError) as lost:
            for at in partitions:
                cluster.forget_topic(at.topic)
            return str(lost)
        for topic in answer.topics:
            for part in topic.partitions:
                error = ErrorCode(part.error_code)
                if error.retriable:
                    because = error.name
                    cluster.forget_topic(topic.name)
                elif error:
                    raise BrokerError(error, f"no offsets of {topic.name}-{part.partition_index} are told")
                else:
                    at = TopicPartition(topic.name, part.partition_index)
                    self.found[at] = ListedOffset(part.offset, part.timestamp, part.leader_epoch)
        return because


async def ends_of_epochs(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """By partition, the offset behind the last record of this leader epoch or an earlier one, as of now (KIP-320).

    Without partitions whose leader knows earlier ones only.  No record is beyond the end where a broker does not serve
    the question.  Raises BrokerError, TimedOutError.
    """
    deadline = cluster.deadline("looking up where leader epochs ended")
    found: dict[TopicPartition, int] = {}
    while rest := [at for at in epochs if at not in found]:
        by_node, leaderless = await _by_leader(cluster, rest, led_only=False, deadline=deadline)
        because: object = f"nobody leads {_named(leaderless)}"
        for node, led in by_node.items():
            try:
                found |= await deadline.within(_ends_of_epochs(cluster, node, {at: epochs[at] for at in led}))
            except UnsupportedByBrokerError:
                found |= dict.fromkeys(led, _ANYWHERE)
            except (ConnectionLostError, UnreachableError) as lost:
                because = lost
        left = [at for at in rest if at not in found]
        for at in left:
            cluster.forget_topic(at.topic)
        if left:
            await deadline.pause(because)
    return {at: end for at, end in found.items() if end >= 0}


async def _ends_of_epochs(
    cluster: Cluster, node: int, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """As `ends_of_epochs`, of one node's partitions, -1 where it does not know; without those to ask of again."""
    answer = await cluster.call(node, OffsetForLeaderEpochRequest(topics=_of_epochs(epochs)), use=_use(cluster, node))
    found: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        for part in topic.partitions:
            error = ErrorCode(part.error_code)
            if error and not error.retriable:
                raise BrokerError(error, f"no ends of leader epochs of {topic.topic}-{part.partition} are told")
            if not error:
                found[TopicPartition(topic.topic, part.partition)] = part.end_offset
    return found


def _of_epochs(epochs: Mapping[TopicPartition, int]) -> list[OffsetForLeaderTopic]:
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for at, epoch in epochs.items():
        wanted = OffsetForLeaderPartition(partition=at.partition, leader_epoch=epoch)
        topics.setdefault(at.topic, []).append(wanted)
    return [OffsetForLeaderTopic(topic=name, partitions=partitions) for name, partitions in topics.items()]


async def _by_leader(
    cluster: Cluster, partitions: Sequence[TopicPartition], led_only: bool, deadline: Deadline
) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    """Partitions by the node that leads them, and those that nobody leads.

    `led_only`: no error if a topic was deleted meanwhile.  Raises BrokerError, TimedOutError.
    """
    led: dict[int, list[TopicPartition]] = {}
    leaderless = []
    for at in partitions:
        try:
            leader = await cluster.leader_if_any(at, deadline)
        except BrokerError as error:
            if not led_only or at.topic in cluster.topics or error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            leader = None
        if leader is None:
            leaderless.append(at)
        else:
            led.setdefault(leader, []).append(at)
    return led, leaderless


def _use(cluster: Cluster, node: int) -> Use:
    """The connection to ask by: behind a Fetch that waits for records the answer would wait, too."""
    fetching = cluster.ready_connection(node)
    return Use.GROUP if fetching is not None and fetching.in_flight else Use.DATA


def _request(times: Mapping[TopicPartition, int], isolation: Isolation) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for at, time in times.items():
        wanted = ListOffsetsPartition(partition_index=at.partition, timestamp=time)
        topics.setdefault(at.topic, []).append(wanted)
    listed = [ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in topics.items()]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=listed)
