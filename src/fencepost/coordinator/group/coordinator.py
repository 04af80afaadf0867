"""The group coordinator: classic groups and the committed offsets of groups, transactional ones included.

Decisions are in `group` and `offsets`; here they are looked up, written to the journal and answered.  Every append and
what it means in memory are one step.  Answers name the lsn that they depend on.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.coordinator import loading
from fencepost.coordinator.group import journal
from fencepost.coordinator.group.answers import Answered
from fencepost.coordinator.group.classic.group import ClassicGroup, ClassicGroupState
from fencepost.coordinator.group.classic.leave import MemberIdentity
from fencepost.coordinator.group.classic.offsets import (
    validate_offset_commit,
    validate_offset_delete,
    validate_transactional_offset_commit,
)
from fencepost.coordinator.group.classic.responses import refuse_join, refuse_sync
from fencepost.coordinator.group.expiry import expired, portions
from fencepost.coordinator.group.journal_loading import Loading
from fencepost.coordinator.group.membership import Membership
from fencepost.coordinator.group.offsets import CommittedOffset, length_in_java
from fencepost.coordinator.group.settings import GroupSettings
from fencepost.coordinator.group.shards import MOST_APPENDED, GroupCoordinatorShard, Journals
from fencepost.log.partition import Refused
from fencepost.log.producer_state import Origin, VerificationGuard
from fencepost.node_log import get_logger
from fencepost.protocol.control import COMMIT, ControlRecord
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse
from fencepost.protocol.partitioning import partition_for_id
from fencepost.protocol.steps import Pace, Steps
from fencepost.protocol.types import (
    CONSUMER_OFFSETS,
    NO_LSN,
    Lsn,
    Milliseconds,
    Offset,
    ProducerId,
    ProducerIdAndEpoch,
    TopicPartition,
)
from fencepost.runtime import Clock, Work, at_once

logger = get_logger(__name__)

_A_GROUP: Final = 10
"""Units that it costs to make one out of committed offsets."""
_TOMBSTONE: Final = 3
"""Units that it costs to write one, and to apply it."""


class CommitFor(NamedTuple):
    """The group and the member that commit offsets, as the request names them."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int


class Committed(NamedTuple):
    """The error for each partition, and the lsn that the answer depends on."""

    errors: Mapping[TopicPartition, ErrorCode]
    lsn: Lsn


class _Forgotten(NamedTuple):
    """Committed offsets of a group that are to be removed, and whether the group is."""

    group_id: str
    partitions: Sequence[TopicPartition]
    with_group: bool = False


class GroupCoordinator:
    """The groups of the journal partitions that this node leads."""

    def __init__(self, storage: Journals, clock: Clock, settings: GroupSettings, generator: random.Random) -> None:
        self.settings = settings
        self._storage = storage
        self._clock = clock
        self._shards: dict[int, GroupCoordinatorShard] = {}
        self._loading: dict[int, Loading] = {}
        self._membership = Membership(self.settings, clock, generator)

    # Where groups live

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group lives in."""
        return partition_for_id(group_id, self.settings.partitions)

    def load(self, index: int) -> None:
        """Read a journal partition and answer for its groups.  Raises JournalUnreadable, and then answers 14."""
        if (work := self.start_loading(index)) is not None:
            at_once(work)

    def start_loading(self, index: int, deleted: Collection[str] = ()) -> Work[None] | None:
        """Take over a journal partition: its groups are answered 14 until what is returned is done.

        None if there is nothing to do.  After JournalUnreadable they go on being answered 14.  What was committed of
        topics that were `deleted` is forgotten.
        """
        log = self._storage.partition(CONSUMER_OFFSETS, index)
        if log is None or index in self._shards or index in self._loading:
            return None
        begun = self._loading[index] = Loading(GroupCoordinatorShard(index, log, self._storage))
        begun.deleted |= dict.fromkeys(deleted)
        return self._load(begun)

    def _load(self, begun: Loading) -> Work[None]:
        """Read a journal partition, then answer for its groups.  Raises JournalUnreadable."""
        while not begun.step(loading.LOAD_STEP):
            yield
        shard = begun.shard
        del self._loading[shard.index]
        self._shards[shard.index] = shard
        shard.lsn = self._storage.lsn  # markers were written meanwhile
        if begun.deleted:
            at_once(self._forget_topics(shard, begun.deleted))
        self._membership.loaded(shard)

    @property
    def is_loading(self) -> bool:
        """Whether there are groups that are not known yet."""
        return bool(self._loading)

    def check(self, group_id: str | None) -> ErrorCode:
        """The error for requests about a group that is not coordinated here, or not yet (facts §7.2, 6); else NONE."""
        found = self._shard(group_id)
        return found if isinstance(found, ErrorCode) else ErrorCode.NONE

    def _shard(self, group_id: str | None) -> GroupCoordinatorShard | ErrorCode:
        return self._any_shard(group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def _any_shard(self, group_id: str | None) -> GroupCoordinatorShard | ErrorCode:
        """The shard of a group, "" included, in which old clients without a group keep offsets; else the error."""
        if group_id is None:
            return ErrorCode.INVALID_GROUP_ID
        index = self.partition_for(group_id)
        unknown = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if index in self._loading else ErrorCode.NOT_COORDINATOR
        return self._shards.get(index) or unknown

    def close(self) -> None:
        """Let no timer ring any more."""
        self._membership.close()

    # Membership

    async def join_group(
        self, request: JoinGroupRequest, client_id: str, client_host: str, version: int
    ) -> Answered[JoinGroupResponse]:
        """Answer JoinGroup, in this version of the API: when the generation begins, if it is to wait for that."""
        shard = self._shard(request.group_id)
        if isinstance(shard, ErrorCode):
            return Answered(refuse_join(shard, request.member_id), NO_LSN)
        return await self._membership.join(shard, request, client_id, client_host, version)

    async def sync_group(self, request: SyncGroupRequest) -> Answered[SyncGroupResponse]:
        """Answer SyncGroup, as soon as the leader has said who gets what.

        While the group is read: REBALANCE_IN_PROGRESS, as in Apache Kafka.  Clients know no 14 here, and whatever
        rebalance it belongs to is lost.
        """
        shard = self._shard(request.group_id)
        if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            shard = ErrorCode.REBALANCE_IN_PROGRESS
        if isinstance(shard, ErrorCode):
            return Answered(refuse_sync(shard), NO_LSN)
        return await self._membership.sync(shard, request)

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> Answered[ErrorCode]:
        """Answer Heartbeat, and begin the member's session anew.

        While the group is read: 0, as in Apache Kafka.  Some clients (aiokafka 0.14) give up over 14, and a session
        begins when all is read.
        """
        shard = self._shard(group_id)
        if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return Answered(ErrorCode.NONE, NO_LSN)
        if isinstance(shard, ErrorCode):
            return Answered(shard, NO_LSN)
        return self._membership.heartbeat(shard, group_id, member_id, group_instance_id, generation_id)

    def leave_group(self, group_id: str, leaving: Sequence[MemberIdentity]) -> Answered[list[ErrorCode]]:
        """Answer LeaveGroup: an error for each that is to leave."""
        shard = self._shard(group_id)
        if isinstance(shard, ErrorCode):
            return Answered([shard] * len(leaving), NO_LSN)
        return self._membership.leave(shard, group_id, leaving)

    # Committed offsets

    def commit_offsets(self, who: CommitFor, offsets: Mapping[TopicPartition, CommittedOffset]) -> Committed:
        """Answer OffsetCommit: keep the offsets of a group in its journal."""
        shard = self._any_shard(who.group_id)
        if isinstance(shard, ErrorCode):
            return Committed(dict.fromkeys(offsets, shard), NO_LSN)
        group = self.known(who.group_id)
        if isinstance(group, ClassicGroup):
            error = validate_offset_commit(group, who.member_id, who.group_instance_id, who.generation_id)
        else:
            error = ErrorCode.NONE if who.generation_id < 0 else group
        if error:
            return Committed(dict.fromkeys(offsets, error), shard.lsn)
        self._membership.heard_of(shard, self._begin(shard, who.group_id), who.member_id)
        errors, entries, taken = self._entries(who.group_id, offsets)
        if entries:
            outcome = shard.append(entries, self._clock.now())
            if isinstance(outcome, ErrorCode):
                return Committed(dict.fromkeys(offsets, outcome), shard.lsn)
            for number, at in enumerate(taken):
                shard.offsets.put(who.group_id, at, offsets[at], Offset(outcome.base_offset + number))
        return Committed(errors, shard.lsn)

    def commit_transactional_offsets(
        self,
        who: CommitFor,
        offsets: Mapping[TopicPartition, CommittedOffset],
        producer: ProducerIdAndEpoch,
        guard: VerificationGuard | None,
    ) -> Committed:
        """Answer TxnOffsetCommit (facts §7): offsets that count when it commits.  `guard`: of verification."""
        shard = self._shard(who.group_id)
        if isinstance(shard, ErrorCode):
            return Committed(dict.fromkeys(offsets, shard), NO_LSN)
        group = self.known(who.group_id)
        if isinstance(group, ClassicGroup):
            error = validate_transactional_offset_commit(group, who.member_id, who.group_instance_id, who.generation_id)
        else:
            error = ErrorCode.NONE if who.generation_id < 0 else group
        if error:
            return Committed(dict.fromkeys(offsets, error), shard.lsn)
        self._begin(shard, who.group_id)
        errors, entries, taken = self._entries(who.group_id, offsets)
        if entries:
            outcome = shard.append_transactional(entries, self._clock.now(), producer, guard)
            if isinstance(outcome, ErrorCode):
                return Committed(dict.fromkeys(offsets, outcome), shard.lsn)
            for number, at in enumerate(taken):
                record_offset = Offset(outcome.base_offset + number)
                shard.offsets.put_pending(producer.producer_id, who.group_id, at, offsets[at], record_offset)
        return Committed(errors, shard.lsn)

    def _begin(self, shard: GroupCoordinatorShard, group_id: str) -> ClassicGroup:
        """The group that commits; an empty one is begun where there is none, and stays, whatever becomes of that."""
        group = shard.groups.get(group_id)
        if group is None:
            group = shard.groups[group_id] = ClassicGroup(group_id, state_timestamp=self._clock.now())
        return group

    def _entries(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> tuple[dict[TopicPartition, ErrorCode], list[journal.Entry], list[TopicPartition]]:
        """The error for each offset; records and partitions of those whose metadata is not too long (facts §7.2, 9)."""
        now, limit = self._clock.now(), self.settings.metadata_max_bytes
        taken = [at for at, committed in offsets.items() if length_in_java(committed.metadata) <= limit]
        if sum([len(offsets[at].metadata) for at in taken]) > MOST_APPENDED:  # seen before it is encoded
            return dict.fromkeys(offsets, journal.APPEND_ERRORS[ErrorCode.RECORD_LIST_TOO_LARGE]), [], []
        errors = dict.fromkeys(offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE) | dict.fromkeys(taken, ErrorCode.NONE)
        return errors, [journal.offset_commit_entry(group_id, at, offsets[at], now) for at in taken], taken

    def complete_transaction(
        self, index: int, batch: bytes, producer_id: ProducerId, control: ControlRecord, marker_transaction_version: int
    ) -> ErrorCode:
        """Append a transaction's marker to a journal partition, and apply it to the pending offsets.

        `control`: what `batch`, the marker of this producer, says.
        """
        partition = self._storage.partition(CONSUMER_OFFSETS, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        now, version = self._clock.now(), marker_transaction_version
        outcome = partition.append(batch, Origin.COORDINATOR, now, marker_transaction_version=version, control=control)
        if isinstance(outcome, Refused):
            return outcome.error
        shard = self._shards.get(index)
        if shard is not None:
            shard.lsn = outcome.lsn
            shard.offsets.complete(producer_id, control.type == COMMIT)
        return ErrorCode.NONE

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, require_stable: bool
    ) -> dict[TopicPartition, CommittedOffset | ErrorCode | None] | ErrorCode:
        """The committed offsets of these partitions; UNSTABLE_OFFSET_COMMIT where a transaction may change one.

        None asks for all that are committed; what is only pending is not among them, as in Apache Kafka.
        """
        shard = self._any_shard(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        wanted = shard.offsets.partitions(group_id, with_pending=False) if partitions is None else partitions
        # Of one moment, so in one step, however many these are.
        found: dict[TopicPartition, CommittedOffset | ErrorCode | None] = {}
        found |= shard.offsets.all_committed(group_id, wanted)
        if require_stable:
            unstable = shard.offsets.unstable(group_id, wanted)
            found |= dict.fromkeys(unstable, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return found

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Answered[Mapping[TopicPartition, ErrorCode] | ErrorCode]:
        """Answer OffsetDelete: an error for each partition, or one of the whole request."""
        shard = self._shard(group_id)
        if isinstance(shard, ErrorCode):
            return Answered(shard, NO_LSN)
        group = self.known(group_id)
        error = group if isinstance(group, ErrorCode) else validate_offset_delete(group)
        if isinstance(group, ErrorCode) or error:
            return Answered(error, shard.lsn)
        kept = [at for at in partitions if group.is_subscribed(at.topic)]
        errors = dict.fromkeys(partitions, ErrorCode.NONE) | dict.fromkeys(kept, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        known = [
            at
            for at in partitions
            if not errors[at] and (shard.offsets.committed(group_id, at) or shard.offsets.is_unstable(group_id, at))
        ]
        refused = self._forget(shard, _Forgotten(group_id, known))
        return Answered(refused or errors, shard.lsn)

    # Groups

    def known(self, group_id: str) -> ClassicGroup | ErrorCode:
        """A group as DescribeGroups shows it, an empty one where it has only committed offsets; or the error."""
        shard = self._any_shard(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.groups.get(group_id)
        if group is None and shard.offsets.knows(group_id):
            return ClassicGroup(group_id)
        return group or ErrorCode.GROUP_ID_NOT_FOUND

    def groups_in_steps(self, pace: Pace) -> Steps[list[ClassicGroup]]:
        """All groups, those with committed offsets only included; one that goes meanwhile may be among them."""
        found: list[ClassicGroup] = []
        for _, shard in sorted(self._shards.items()):
            for group_id in dict.fromkeys([*shard.groups, *shard.offsets.groups()]):
                found.append(shard.groups.get(group_id) or ClassicGroup(group_id))
                if pace.is_used_up(_A_GROUP):
                    yield from pace.rest()
        return found

    def delete_group(self, group_id: str, pace: Pace) -> Answered[ErrorCode]:
        """Delete a group and its committed offsets, for DeleteGroups; the error, or NONE."""
        shard = self._any_shard(group_id)
        if isinstance(shard, ErrorCode):
            return Answered(shard, NO_LSN)
        group = shard.groups.get(group_id)
        if group is None and not shard.offsets.knows(group_id):
            return Answered(ErrorCode.GROUP_ID_NOT_FOUND, shard.lsn)
        if group is not None and group.state is not ClassicGroupState.EMPTY:
            return Answered(ErrorCode.NON_EMPTY_GROUP, shard.lsn)
        partitions = shard.offsets.partitions(group_id, with_pending=True)
        pace.left -= _TOMBSTONE * len(partitions)
        return Answered(self._forget(shard, _Forgotten(group_id, partitions, with_group=True)), shard.lsn)

    def forget_topics(self, topics: Collection[str]) -> Work[bool]:
        """Forget all offsets of deleted topics: others of their names would begin at offset 0.  Whether all went."""
        for begun in self._loading.values():
            begun.deleted |= dict.fromkeys(topics)
        while any(begun.goes_on for begun in self._loading.values()):  # until then the journal has them
            yield
        forgotten = not self._loading  # what could not be read
        for shard in list(self._shards.values()):
            forgotten &= yield from self._forget_topics(shard, topics)
        return forgotten

    def _forget_topics(self, shard: GroupCoordinatorShard, topics: Collection[str]) -> Work[bool]:
        forgotten = True
        for group_id in list(shard.offsets.groups()):
            gone = [at for at in shard.offsets.partitions(group_id, with_pending=True) if at.topic in topics]
            forgotten &= not self._forget(shard, _Forgotten(group_id, gone))
            yield
        return forgotten

    def _forget(self, shard: GroupCoordinatorShard, *forgotten: _Forgotten) -> ErrorCode:
        """Write the tombstones, one batch for all, and apply them; the error if the journal does not take them."""
        now = self._clock.now()
        entries: list[journal.Entry] = []
        for group_id, partitions, with_group in forgotten:
            entries += [journal.offset_commit_tombstone(group_id, at, now) for at in partitions]
            if with_group and group_id in shard.groups:
                entries.append(journal.group_entry(group_id, None, now))
        outcome = shard.append(entries, now) if entries else None
        if isinstance(outcome, ErrorCode):
            logger.warning("committed offsets could not be removed partition=%d error=%s", shard.index, outcome.name)
            return outcome
        for group_id, partitions, with_group in forgotten:
            for at in partitions:
                shard.offsets.remove(group_id, at)
            if with_group and group_id in shard.groups:
                self._membership.forget(shard, group_id)
        return ErrorCode.NONE

    # What time brings

    def tick(self, now: Milliseconds) -> Work[None]:
        """Forget committed offsets that nobody used for the retention time; never one that a transaction may change."""
        for shard in list(self._shards.values()):
            for some in portions([*dict.fromkeys([*shard.groups, *shard.offsets.groups()])], shard.offsets):
                found = [self._expired(shard, group_id, now) for group_id in some]
                self._forget(shard, *(each for each in found if each is not None))
                yield

    def _expired(self, shard: GroupCoordinatorShard, group_id: str, now: Milliseconds) -> _Forgotten | None:
        kept_ms = self.settings.offsets_retention_ms
        found = expired(group_id, shard.groups.get(group_id), shard.offsets, kept_ms, now)
        return None if found is None else _Forgotten(group_id, *found)
