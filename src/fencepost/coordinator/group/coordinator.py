"""The group coordinator: classic groups and the positions of groups, transactional ones included.

Decisions are in `group` and `offsets`; here they are looked up, written to the journal and answered.  Every append and
what it means in memory are one step.  Answers name the lsn that they depend on.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from fencepost.coordinator.group.home import Home, Journals, Loading
from fencepost.coordinator.group.membership import Membership
from fencepost.coordinator.group.offsets import Position
from fencepost.coordinator.group.settings import GroupSettings
from fencepost.log.partition import Refused
from fencepost.log.producer_state import Origin, VerificationGuard
from fencepost.node_log import get_logger
from fencepost.protocol.batch import read_header
from fencepost.protocol.control import COMMIT, read_control_record
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse
from fencepost.protocol.partitioning import partition_for_id
from fencepost.protocol.types import TopicPartition
from fencepost.runtime import Clock, Work, at_once

logger = get_logger(__name__)

_EXPIRED_TOGETHER: Final = 20
"""Groups that are looked at in one step."""


class CommitFor(NamedTuple):
    """Who commits positions, as the request says."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int


class Committed(NamedTuple):
    """What happened to each partition, and the lsn that this depends on."""

    errors: Mapping[TopicPartition, ErrorCode]
    lsn: int


class _Forgotten(NamedTuple):
    """Positions of a group that are to be removed, and whether the group is."""

    group_id: str
    partitions: Sequence[TopicPartition]
    with_group: bool = False


class GroupCoordinator:
    """The groups of the journal partitions that this node leads."""

    def __init__(
        self,
        storage: Journals,
        clock: Clock,
        settings: GroupSettings | None = None,
        generator: random.Random | None = None,
    ) -> None:
        self.settings = settings or GroupSettings()
        self._storage = storage
        self._clock = clock
        self._homes: dict[int, Home] = {}
        self._loading: dict[int, Loading] = {}
        self._membership = Membership(self.settings, clock, generator or random.Random())

    # Where groups live

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group lives in."""
        return partition_for_id(group_id, self.settings.partitions)

    def load(self, index: int) -> None:
        """Read a journal partition and answer for its groups.  Raises JournalUnreadable, and then answers 14."""
        loading.at_once(self.start_loading(index))

    def start_loading(self, index: int, deleted: Collection[str] = ()) -> loading.Step | None:
        """Take over a journal partition: its groups are answered 14 until what is returned says that it is done.

        None if there is nothing to do.  After JournalUnreadable they go on being answered 14.  Positions in topics that
        were `deleted` are forgotten.
        """
        log = self._storage.partition(journal.TOPIC, index)
        if log is None or index in self._homes or index in self._loading:
            return None
        begun = self._loading[index] = Loading(Home(index, log, self._storage))
        begun.deleted |= dict.fromkeys(deleted)

        def step() -> bool:
            if not begun.step(loading.LOAD_STEP):
                return False
            del self._loading[index]
            self._homes[index] = begun.home
            begun.home.lsn = self._storage.lsn  # markers were written meanwhile
            if begun.deleted:
                at_once(self._forget_topics(begun.home, begun.deleted))
            self._membership.loaded(begun.home)
            return True

        return step

    @property
    def is_loading(self) -> bool:
        """Whether there are groups that are not known yet."""
        return bool(self._loading)

    def check(self, group_id: str | None) -> ErrorCode:
        """Whether requests about a group may be sent here (facts §7.2, 6)."""
        found = self._home(group_id)
        return found if isinstance(found, ErrorCode) else ErrorCode.NONE

    def _home(self, group_id: str | None) -> Home | ErrorCode:
        return self._any_home(group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def _any_home(self, group_id: str | None) -> Home | ErrorCode:
        """Old clients without a group keep positions in the group "": it may be read, written and deleted."""
        if group_id is None:
            return ErrorCode.INVALID_GROUP_ID
        index = self.partition_for(group_id)
        unknown = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if index in self._loading else ErrorCode.NOT_COORDINATOR
        return self._homes.get(index) or unknown

    def close(self) -> None:
        """No timer rings any more."""
        self._membership.close()

    # Membership

    async def join_group(
        self, request: JoinGroupRequest, client_id: str, client_host: str, version: int
    ) -> Answered[JoinGroupResponse]:
        """JoinGroup, in this version of the API."""
        home = self._home(request.group_id)
        if isinstance(home, ErrorCode):
            return Answered(refuse_join(home, request.member_id), 0)
        return await self._membership.join(home, request, client_id, client_host, version)

    async def sync_group(self, request: SyncGroupRequest) -> Answered[SyncGroupResponse]:
        """SyncGroup."""
        home = self._home(request.group_id)
        if isinstance(home, ErrorCode):
            return Answered(refuse_sync(home), 0)
        return await self._membership.sync(home, request)

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> Answered[ErrorCode]:
        """Heartbeat."""
        home = self._home(group_id)
        if isinstance(home, ErrorCode):
            return Answered(home, 0)
        return self._membership.heartbeat(home, group_id, member_id, group_instance_id, generation_id)

    def leave_group(self, group_id: str, leaving: Sequence[MemberIdentity]) -> Answered[list[ErrorCode]]:
        """LeaveGroup; an error for each that is to leave."""
        home = self._home(group_id)
        if isinstance(home, ErrorCode):
            return Answered([home] * len(leaving), 0)
        return self._membership.leave(home, group_id, leaving)

    # Positions

    def commit_offsets(self, who: CommitFor, positions: Mapping[TopicPartition, Position]) -> Committed:
        """OffsetCommit."""
        home = self._any_home(who.group_id)
        if isinstance(home, ErrorCode):
            return Committed(dict.fromkeys(positions, home), 0)
        group = self.known(who.group_id)
        if isinstance(group, ClassicGroup):
            error = validate_offset_commit(group, who.member_id, who.group_instance_id, who.generation_id)
        else:
            error = ErrorCode.NONE if who.generation_id < 0 else group
        if error:
            return Committed(dict.fromkeys(positions, error), home.lsn)
        self._membership.heard_of(home, self._begin(home, who.group_id), who.member_id)
        errors, entries, taken = self._entries(who.group_id, positions)
        if entries:
            outcome = home.append(entries)
            if isinstance(outcome, ErrorCode):
                return Committed(dict.fromkeys(positions, outcome), home.lsn)
            for number, at in enumerate(taken):
                home.offsets.put(who.group_id, at, positions[at], outcome.base_offset + number)
        return Committed(errors, home.lsn)

    def commit_transactional_offsets(
        self,
        who: CommitFor,
        positions: Mapping[TopicPartition, Position],
        producer_id: int,
        producer_epoch: int,
        guard: VerificationGuard | None,
    ) -> Committed:
        """TxnOffsetCommit (facts §7): positions that count when the transaction commits.  `guard`: of verification."""
        home = self._home(who.group_id)
        if isinstance(home, ErrorCode):
            return Committed(dict.fromkeys(positions, home), 0)
        group = self.known(who.group_id)
        if isinstance(group, ClassicGroup):
            error = validate_transactional_offset_commit(group, who.member_id, who.group_instance_id, who.generation_id)
        else:
            error = ErrorCode.NONE if who.generation_id < 0 else group
        if error:
            return Committed(dict.fromkeys(positions, error), home.lsn)
        self._begin(home, who.group_id)
        errors, entries, taken = self._entries(who.group_id, positions)
        if entries:
            outcome = home.append_transactional(entries, producer_id, producer_epoch, guard)
            if isinstance(outcome, ErrorCode):
                return Committed(dict.fromkeys(positions, outcome), home.lsn)
            for number, at in enumerate(taken):
                record_offset = outcome.base_offset + number
                home.offsets.put_pending(producer_id, who.group_id, at, positions[at], record_offset)
        return Committed(errors, home.lsn)

    def _begin(self, home: Home, group_id: str) -> ClassicGroup:
        """A group is begun by the first commit that it may have, and stays, whatever becomes of that."""
        group = home.groups.get(group_id)
        if group is None:
            group = home.groups[group_id] = ClassicGroup(group_id, state_timestamp=self._clock.now())
        return group

    def _entries(
        self, group_id: str, positions: Mapping[TopicPartition, Position]
    ) -> tuple[dict[TopicPartition, ErrorCode], list[journal.Entry], list[TopicPartition]]:
        """Records for all positions whose metadata is not too long (facts §7.2, 9)."""
        now, limit = self._clock.now(), self.settings.metadata_max_bytes
        taken = [at for at, position in positions.items() if len(position.metadata.encode()) <= limit]
        errors = dict.fromkeys(positions, ErrorCode.OFFSET_METADATA_TOO_LARGE) | dict.fromkeys(taken, ErrorCode.NONE)
        return errors, [journal.position_entry(group_id, at, positions[at], now) for at in taken], taken

    def complete_transaction(self, index: int, batch: bytes, marker_transaction_version: int) -> ErrorCode:
        """Append a transaction's marker to a journal partition, and apply it to the pending positions."""
        partition = self._storage.partition(journal.TOPIC, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        outcome = partition.append(batch, Origin.COORDINATOR, marker_transaction_version=marker_transaction_version)
        if isinstance(outcome, Refused):
            return outcome.error
        marker = read_control_record(batch)
        assert marker is not None, "what is appended here is a marker"
        home = self._homes.get(index)
        if home is not None:
            home.lsn = outcome.lsn
            home.offsets.complete(read_header(batch).producer_id, marker.type == COMMIT)
        return ErrorCode.NONE

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, require_stable: bool
    ) -> dict[TopicPartition, Position | ErrorCode | None] | ErrorCode:
        """The positions of these partitions; UNSTABLE_OFFSET_COMMIT where a transaction may change one.

        None asks for all that are committed; what is only pending is not among them, as in Apache Kafka.
        """
        home = self._any_home(group_id)
        if isinstance(home, ErrorCode):
            return home
        offsets = home.offsets
        wanted = offsets.partitions(group_id, with_pending=False) if partitions is None else partitions
        return {
            at: ErrorCode.UNSTABLE_OFFSET_COMMIT
            if require_stable and offsets.is_unstable(group_id, at)
            else offsets.position(group_id, at)
            for at in wanted
        }

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Answered[Mapping[TopicPartition, ErrorCode] | ErrorCode]:
        """OffsetDelete: an error for each partition, or one of the whole request."""
        home = self._home(group_id)
        if isinstance(home, ErrorCode):
            return Answered(home, 0)
        group = self.known(group_id)
        error = group if isinstance(group, ErrorCode) else validate_offset_delete(group)
        if isinstance(group, ErrorCode) or error:
            return Answered(error, home.lsn)
        kept = [at for at in partitions if group.is_subscribed(at.topic)]
        errors = dict.fromkeys(partitions, ErrorCode.NONE) | dict.fromkeys(kept, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        known = [
            at
            for at in partitions
            if not errors[at] and (home.offsets.position(group_id, at) or home.offsets.is_unstable(group_id, at))
        ]
        refused = self._forget(home, _Forgotten(group_id, known))
        return Answered(refused or errors, home.lsn)

    # Groups

    def known(self, group_id: str) -> ClassicGroup | ErrorCode:
        """A group as DescribeGroups tells it; one that has only positions is an empty group."""
        home = self._any_home(group_id)
        if isinstance(home, ErrorCode):
            return home
        group = home.groups.get(group_id)
        if group is None and home.offsets.knows(group_id):
            return ClassicGroup(group_id)
        return group or ErrorCode.GROUP_ID_NOT_FOUND

    def groups(self) -> Iterator[ClassicGroup]:
        """All groups, those with positions only included."""
        for index in sorted(self._homes):
            home = self._homes[index]
            yield from home.groups.values()
            yield from (ClassicGroup(group_id) for group_id in home.offsets.groups() if group_id not in home.groups)

    def delete_group(self, group_id: str) -> Answered[ErrorCode]:
        """DeleteGroups, one of them: its positions go too, pending ones included."""
        home = self._any_home(group_id)
        if isinstance(home, ErrorCode):
            return Answered(home, 0)
        group = home.groups.get(group_id)
        if group is None and not home.offsets.knows(group_id):
            return Answered(ErrorCode.GROUP_ID_NOT_FOUND, home.lsn)
        if group is not None and group.state is not ClassicGroupState.EMPTY:
            return Answered(ErrorCode.NON_EMPTY_GROUP, home.lsn)
        positions = home.offsets.partitions(group_id, with_pending=True)
        return Answered(self._forget(home, _Forgotten(group_id, positions, with_group=True)), home.lsn)

    def forget_topics(self, topics: Collection[str]) -> Work[None]:
        """Topics were deleted: others of their names would begin at offset 0.  Pending positions go too."""
        for begun in self._loading.values():
            begun.deleted |= dict.fromkeys(topics)
        for home in list(self._homes.values()):
            yield from self._forget_topics(home, topics)

    def _forget_topics(self, home: Home, topics: Collection[str]) -> Work[None]:
        for group_id in list(home.offsets.groups()):
            known = home.offsets.partitions(group_id, with_pending=True)
            gone = [at for at in known if at.topic in topics]
            if gone:
                self._forget(home, _Forgotten(group_id, gone))
            yield

    def _forget(self, home: Home, *forgotten: _Forgotten) -> ErrorCode:
        """Write the tombstones, one batch for all, and apply them; the error if the journal does not take them."""
        now = self._clock.now()
        entries: list[journal.Entry] = []
        for group_id, partitions, with_group in forgotten:
            entries += [journal.forget_position(group_id, at, now) for at in partitions]
            if with_group and group_id in home.groups:
                entries.append(journal.group_entry(group_id, None, now))
        outcome = home.append(entries) if entries else None
        if isinstance(outcome, ErrorCode):
            logger.warning("committed offsets could not be removed partition=%d error=%s", home.index, outcome.name)
            return outcome
        for group_id, partitions, with_group in forgotten:
            for at in partitions:
                home.offsets.remove(group_id, at)
            if with_group and group_id in home.groups:
                self._membership.forget(home, group_id)
        return ErrorCode.NONE

    # What time brings

    def tick(self, now: int) -> Work[None]:
        """Forget positions that nobody used for the retention time; never one that a transaction may change."""
        for home in list(self._homes.values()):
            groups = list(dict.fromkeys([*home.groups, *home.offsets.groups()]))
            for first in range(0, len(groups), _EXPIRED_TOGETHER):
                found = [self._expired(home, group_id, now) for group_id in groups[first : first + _EXPIRED_TOGETHER]]
                self._forget(home, *(each for each in found if each is not None))
                yield

    def _expired(self, home: Home, group_id: str, now: int) -> _Forgotten | None:
        group = home.groups.get(group_id)
        if group is not None and group.state is not ClassicGroupState.EMPTY:
            return None
        since = group.state_timestamp if group is not None and group.protocol_type else -1
        expired = []
        for at in home.offsets.partitions(group_id, with_pending=False):
            position = home.offsets.position(group_id, at)
            assert position is not None
            last_use = max(position.commit_timestamp, since)
            expires = (
                position.expire_timestamp
                if position.expire_timestamp >= 0
                else last_use + self.settings.offsets_retention_ms
            )
            if expires <= now and not home.offsets.is_unstable(group_id, at):
                expired.append(at)
        left = len(home.offsets.partitions(group_id, with_pending=True)) - len(expired)
        had_members = group is not None and (group.protocol_type is not None or bool(group.pending_members))
        unused_ms = self.settings.offsets_retention_ms if had_members else 0
        old = group is not None and now - group.state_timestamp >= unused_ms
        return _Forgotten(group_id, expired, with_group=left == 0) if expired or (left == 0 and old) else None
