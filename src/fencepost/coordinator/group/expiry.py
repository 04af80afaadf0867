"""Forget committed offsets that nobody used for offsets.retention.minutes.  (Kafka's offsetExpirationCondition)

* Of a group without members an offset expires so long after its commit, but not before the group has been without
  members for so long.
* Of a group with members only offsets of topics that they do not read expire, so long after their commits, and only
  while the group is STABLE and it is known what they read.
* One whose commit said when it expires (OffsetCommit v2 to v4) expires then; none that a transaction may change does.
* A group without members, and without offsets, goes too: one that had members when it has been without for so long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from fencepost.coordinator.group.classic.group import ClassicGroup, ClassicGroupState
from fencepost.coordinator.group.offsets import Offsets
from fencepost.protocol.consumer_protocol import CONSUMER
from fencepost.protocol.types import NO_TIMESTAMP, Milliseconds, TopicPartition

LOOKED_AT: Final = 1000
"""Committed offsets that are looked at in one step."""
A_GROUP: Final = 50
"""Committed offsets that cost as much as a group does."""


class Expired(NamedTuple):
    """Committed offsets that are to be removed, and whether their group is."""

    partitions: Sequence[TopicPartition]
    with_group: bool = False


def portions(groups: Sequence[str], offsets: Offsets) -> Iterator[list[str]]:
    """The groups in portions for one step each: twenty groups, or fewer where they have many offsets."""
    portion, left = list[str](), LOOKED_AT
    for group in groups:
        portion.append(group)
        left -= A_GROUP + offsets.count(group)
        if left <= 0:
            yield portion
            portion, left = [], LOOKED_AT
    if portion:
        yield portion


def expired(
    group_id: str, group: ClassicGroup | None, offsets: Offsets, retention_ms: Milliseconds, now: Milliseconds
) -> Expired | None:
    """The offsets of a group that expire, and whether it does; or None.  `group`: None if only offsets are known."""
    if group is not None and group.state is not ClassicGroupState.EMPTY:
        return _of_members(group, offsets, retention_ms, now)
    since = group.state_timestamp if group is not None and group.protocol_type else NO_TIMESTAMP
    gone = _due(group_id, offsets.partitions(group_id, with_pending=False), offsets, since, retention_ms, now)
    left = len(offsets.partitions(group_id, with_pending=True)) - len(gone)
    had_members = group is not None and (group.protocol_type is not None or bool(group.pending_members))
    unused_ms = retention_ms if had_members else 0
    old = group is not None and now - group.state_timestamp >= unused_ms
    return Expired(gone, with_group=left == 0) if gone or (left == 0 and old) else None


def _of_members(group: ClassicGroup, offsets: Offsets, retention_ms: Milliseconds, now: Milliseconds) -> Expired | None:
    is_known = group.protocol_type == CONSUMER and group.subscribed_topics is not None
    if group.state is not ClassicGroupState.STABLE or not is_known:
        return None
    committed = offsets.partitions(group.group_id, with_pending=False)
    unread = [at for at in committed if not group.is_subscribed(at.topic)]
    gone = _due(group.group_id, unread, offsets, NO_TIMESTAMP, retention_ms, now)
    return Expired(gone) if gone else None


def _due(
    group_id: str,
    partitions: Sequence[TopicPartition],
    offsets: Offsets,
    since: Milliseconds,
    retention_ms: Milliseconds,
    now: Milliseconds,
) -> list[TopicPartition]:
    """Those of the partitions whose offsets expire.  `since`: when the group's last member left, or NO_TIMESTAMP."""
    due = []
    for at in partitions:
        committed = offsets.committed(group_id, at)
        assert committed is not None, "only committed offsets expire"
        last_use = max(committed.commit_timestamp, since)
        expires = committed.expire_timestamp if committed.expire_timestamp >= 0 else last_use + retention_ms
        if expires <= now and not offsets.is_unstable(group_id, at):
            due.append(at)
    return due
