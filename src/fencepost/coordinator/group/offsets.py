"""Offsets of groups: committed ones, and those that wait for the end of a transaction (facts §7.6).  No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fencepost.protocol.types import NO_TIMESTAMP, LeaderEpoch, Milliseconds, Offset, ProducerId, TopicPartition


class CommittedOffset(NamedTuple):
    """A committed offset and what was committed with it."""

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_timestamp: Milliseconds
    expire_timestamp: Milliseconds = NO_TIMESTAMP
    """When it expires, where the client said so; -1: by the retention of the broker."""


def length_in_java(text: str) -> int:
    """The length of a text as Apache Kafka holds it against offset.metadata.max.bytes: in units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


class _Kept(NamedTuple):
    committed: CommittedOffset
    record_offset: Offset
    """Its record's offset in the journal: of two the later record wins (KAFKA-14505)."""


class Offsets:
    """The committed and pending offsets of the groups in one journal partition."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, _Kept]] = {}
        self._pending: dict[ProducerId, dict[tuple[str, TopicPartition], _Kept]] = {}
        self._open: dict[str, dict[TopicPartition, dict[ProducerId, None]]] = {}
        """group -> partition -> producer ids whose transaction has an offset for it."""

    # What the journal says

    def put(self, group: str, at: TopicPartition, committed: CommittedOffset, record_offset: Offset) -> None:
        self._committed.setdefault(group, {})[at] = _Kept(committed, record_offset)

    def put_pending(
        self, producer_id: ProducerId, group: str, at: TopicPartition, committed: CommittedOffset, record_offset: Offset
    ) -> None:
        self._pending.setdefault(producer_id, {})[group, at] = _Kept(committed, record_offset)
        self._open.setdefault(group, {}).setdefault(at, {})[producer_id] = None

    def remove(self, group: str, at: TopicPartition) -> None:
        """Take in a tombstone: the committed offset goes, and every pending one."""
        committed = self._committed.get(group)
        if committed is not None:
            committed.pop(at, None)
            if not committed:
                del self._committed[group]
        for producer_id in list(self._open.get(group, {}).get(at, ())):
            self._pending[producer_id].pop((group, at))
            self._close(producer_id, group, at)

    def complete(self, producer_id: ProducerId, committed: bool) -> None:
        """Take in a marker: the pending offsets of this producer become committed ones, or go."""
        for (group, at), kept in self._pending.get(producer_id, {}).items():
            known = self._committed.get(group, {}).get(at)
            if committed and (known is None or kept.record_offset > known.record_offset):
                self._committed.setdefault(group, {})[at] = kept
            self._close(producer_id, group, at)
        self._pending.pop(producer_id, None)

    def _close(self, producer_id: ProducerId, group: str, at: TopicPartition) -> None:
        partitions = self._open[group]
        del partitions[at][producer_id]
        if not partitions[at]:
            del partitions[at]
        if not partitions:
            del self._open[group]
        if producer_id in self._pending and not self._pending[producer_id]:
            del self._pending[producer_id]

    # Questions

    def committed(self, group: str, at: TopicPartition) -> CommittedOffset | None:
        kept = self._committed.get(group, {}).get(at)
        return None if kept is None else kept.committed

    def all_committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """The committed offset of each partition; None where there is none."""
        of_group = self._committed.get(group, {})
        return {at: of_group[at].committed if at in of_group else None for at in partitions}

    def unstable(self, group: str, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Those of the partitions whose committed offset a transaction that is open may still change."""
        of_group = self._open.get(group, ())
        return [at for at in partitions if at in of_group]

    def is_unstable(self, group: str, at: TopicPartition) -> bool:
        """Whether a transaction that is open may still change this committed offset."""
        return at in self._open.get(group, ())

    def partitions(self, group: str, with_pending: bool) -> list[TopicPartition]:
        """The partitions that the group has offsets for, sorted."""
        found = dict.fromkeys(self._committed.get(group, ()))
        if with_pending:
            found |= dict.fromkeys(self._open.get(group, ()))
        return sorted(found)

    def count(self, group: str) -> int:
        """About how many partitions the group has offsets for: one with a pending offset, too, counts twice."""
        return len(self._committed.get(group, ())) + len(self._open.get(group, ()))

    def knows(self, group: str) -> bool:
        return group in self._committed or group in self._open

    def groups(self) -> Iterator[str]:
        yield from self._committed
        yield from (group for group in self._open if group not in self._committed)
