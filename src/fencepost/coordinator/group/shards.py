"""One partition of `__consumer_offsets`: the groups and committed offsets that live there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from fencepost.coordinator.group import journal
from fencepost.coordinator.group.classic.group import ClassicGroup, ClassicGroupState, Member
from fencepost.coordinator.group.journal import Entry
from fencepost.coordinator.group.offsets import CommittedOffset, Offsets
from fencepost.log.partition import Appended, Refused
from fencepost.log.producer_state import Origin, VerificationGuard
from fencepost.protocol.batch import BatchHeader, crc_matches
from fencepost.protocol.codec import decode_stored, stored_version
from fencepost.protocol.control import COMMIT, ControlRecord, read_control_record
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.records import Record, decode_batch
from fencepost.protocol.stored import (
    GroupMember,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from fencepost.protocol.types import (
    NO_PRODUCER,
    Buffer,
    Epoch,
    LeaderEpoch,
    Lsn,
    Milliseconds,
    Offset,
    ProducerId,
    ProducerIdAndEpoch,
    TopicPartition,
)

MOST_APPENDED: Final = 4 * 1024 * 1024
"""Bytes of values that are appended at once: that is one step, of some 20 ms.  What is removed does not count.

Apache Kafka takes `max.message.bytes` of the topic, 1 MiB unless it is set."""


class JournalPartition(Protocol):
    """The part of a partition of `__consumer_offsets` that the coordinator uses."""

    def append(
        self,
        batch: bytes,
        origin: Origin,
        now: Milliseconds,
        /,
        *,
        guard: VerificationGuard | None = None,
        marker_transaction_version: int = 0,
        control: ControlRecord | None = None,
    ) -> Appended | Refused: ...

    def scan(self, offset: Offset, /) -> Iterator[tuple[BatchHeader, Buffer]]: ...


class Journals(Protocol):
    """Finds journal partitions; implemented by the node's storage."""

    @property
    def lsn(self) -> Lsn: ...

    def partition(self, topic: str, index: int) -> JournalPartition | None: ...


class GroupCoordinatorShard:
    """The groups and offsets of a partition of `__consumer_offsets` that this node leads; empty until it is loaded."""

    def __init__(self, index: int, log: JournalPartition, journals: Journals) -> None:
        self.index = index
        self.log = log
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self.lsn = journals.lsn
        """The lsn that an answer from memory depends on: of the last append here, or of what was there before."""

    # Writing

    def append(self, entries: Sequence[Entry], now: Milliseconds) -> Appended | ErrorCode:
        return self._append(entries, now, NO_PRODUCER, None)

    def append_transactional(
        self,
        entries: Sequence[Entry],
        now: Milliseconds,
        producer: ProducerIdAndEpoch,
        guard: VerificationGuard | None,
    ) -> Appended | ErrorCode:
        return self._append(entries, now, producer, guard)

    def _append(
        self,
        entries: Sequence[Entry],
        now: Milliseconds,
        producer: ProducerIdAndEpoch,
        guard: VerificationGuard | None,
    ) -> Appended | ErrorCode:
        if sum([len(value) for _, _, value, _ in entries if value is not None]) > MOST_APPENDED:
            return journal.APPEND_ERRORS[ErrorCode.RECORD_LIST_TOO_LARGE]
        outcome = self.log.append(journal.batch(entries, producer), Origin.COORDINATOR, now, guard=guard)
        if isinstance(outcome, Appended):
            self.lsn = outcome.lsn
            return outcome
        return journal.APPEND_ERRORS.get(outcome.error, outcome.error)

    # Reading

    def read(self, header: BatchHeader, batch: Buffer) -> None:
        """Take in a batch of the log.  Raises ProtocolError."""
        if header.is_control:
            committed = outcome_of(header, batch)
            if committed is not None:
                self.offsets.complete(header.producer_id, committed)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER.producer_id
        check(header, batch)
        for record in decode_batch(batch, 0, header):
            self.take_group(record)
            self.take_offset(record, producer_id)

    def take_group(self, record: Record) -> None:
        """Take in what a record says of its group.  Raises ProtocolError."""
        kind = _kind(record)
        if kind == journal.GROUP_KEY_VERSION:
            group_id = decode_stored(GroupMetadataKey, _key(record)).group
            if record.value is None:
                self.groups.pop(group_id, None)
            else:
                self.groups[group_id] = restore(group_id, decode_stored(GroupMetadataValue, record.value))
        elif kind in journal.OFFSET_KEY_VERSIONS and record.value is not None:
            # A group is begun by the first offset written for it, and stays, even if that is aborted.
            group_id = decode_stored(OffsetCommitKey, _key(record)).group
            if group_id not in self.groups:
                since = decode_stored(OffsetCommitValue, record.value).commit_timestamp
                self.groups[group_id] = ClassicGroup(group_id, state_timestamp=Milliseconds(since))

    def take_offset(self, record: Record, producer_id: ProducerId) -> None:
        """Take in the offset that a record commits, if it commits one.  Raises ProtocolError."""
        if _kind(record) not in journal.OFFSET_KEY_VERSIONS:
            return
        key = decode_stored(OffsetCommitKey, _key(record))
        at = TopicPartition(key.topic, key.partition)
        if record.value is None:
            self.offsets.remove(key.group, at)
            return
        value = decode_stored(OffsetCommitValue, record.value)
        committed = CommittedOffset(
            Offset(value.offset),
            LeaderEpoch(value.leader_epoch),
            value.metadata,
            Milliseconds(value.commit_timestamp),
            Milliseconds(value.expire_timestamp),
        )
        if producer_id < 0:
            self.offsets.put(key.group, at, committed, record.offset)
        else:
            self.offsets.put_pending(producer_id, key.group, at, committed, record.offset)


def _key(record: Record) -> bytes:
    return record.key or b""


def _kind(record: Record) -> int:
    """The kind of a record, which is the version of its key; -1 without one."""
    return -1 if record.key is None else stored_version(record.key)


def check(header: BatchHeader, batch: Buffer) -> None:
    """Raises ProtocolError unless the batch is the one that was written."""
    if not crc_matches(batch, 0, header):
        raise ProtocolError("its CRC does not match")


def outcome_of(header: BatchHeader, batch: Buffer) -> bool | None:
    """Whether a marker commits; None if a control batch ends nothing.  Raises ProtocolError for a damaged one."""
    check(header, batch)
    try:
        marker = read_control_record(batch, 0, header)
    except ProtocolError:
        return None  # It ends nothing for the log either, which has said so.
    return marker.type == COMMIT if marker is not None and marker.ends_transaction else None


def restore(group_id: str, stored: GroupMetadataValue) -> ClassicGroup:
    """The group that a journal record stores, as it was then."""
    group = ClassicGroup(
        group_id,
        ClassicGroupState.STABLE if stored.members else ClassicGroupState.EMPTY,
        generation_id=Epoch(stored.generation),
        protocol_type=stored.protocol_type or None,
        protocol_name=stored.protocol,
        state_timestamp=Milliseconds(stored.current_state_timestamp),
    )
    if stored.members:
        group = group.with_members(
            Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=Milliseconds(member.session_timeout),
                rebalance_timeout_ms=Milliseconds(member.rebalance_timeout),
                protocols=((stored.protocol or "", bytes(member.subscription)),),
                assignment=bytes(member.assignment),
            )
            for member in stored.members
        )
    if stored.leader in group.members:
        group = group._replace(leader_id=stored.leader)
    return group.with_subscribed_topics()


def can_be_stored(group: ClassicGroup) -> bool:
    """Whether the record of a group fits into a batch, as far as its members' metadata and assignments tell."""
    return (
        sum([len(each.metadata(group.protocol_name)) + len(each.assignment) for each in group.members.values()])
        <= MOST_APPENDED
    )


def stored_form(group: ClassicGroup) -> GroupMetadataValue:
    """The value of the record that keeps a group."""
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp,
        members=[
            GroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
