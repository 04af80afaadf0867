"""When a group that has no positions goes: by whether it ever had members, or somebody is about to be one."""

from __future__ import annotations

import pytest

from fencepost.coordinator.group.classic.group import ClassicGroup
from fencepost.coordinator.group.expiry import Expired, expired
from fencepost.coordinator.group.offsets import CommittedOffset, Offsets
from fencepost.protocol.types import Milliseconds, Offset, ProducerId, TopicPartition

KEPT_MS = 1000
SINCE = Milliseconds(5000)
NEVER_USED = ClassicGroup("g", state_timestamp=SINCE)
AT = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("group", "kept_ms"),
    [
        (NEVER_USED, 0),
        (NEVER_USED.with_pending("m"), KEPT_MS),
        (NEVER_USED._replace(protocol_type="consumer"), KEPT_MS),
    ],
    ids=["never used", "an id was given out", "had members"],
)
def test_a_group_without_positions_goes_when_it_has_been_without_members_for_so_long(
    group: ClassicGroup, kept_ms: int
) -> None:
    for after in (0, 1, KEPT_MS - 1, KEPT_MS, KEPT_MS + 1):
        found = expired("g", group, Offsets(), KEPT_MS, Milliseconds(SINCE + after))
        assert found == (Expired([], with_group=True) if after >= kept_ms else None)


@pytest.mark.parametrize("pending", [False, True])
def test_a_group_goes_with_its_last_position_unless_a_transaction_has_one_for_it(pending: bool) -> None:
    offsets, other = Offsets(), TopicPartition("t", 1)
    offsets.put("g", AT, CommittedOffset(Offset(1), -1, "", SINCE), Offset(0))
    if pending:
        offsets.put_pending(ProducerId(1), "g", other, CommittedOffset(Offset(1), -1, "", SINCE), Offset(1))
    for after in (KEPT_MS - 1, KEPT_MS):
        found = expired("g", NEVER_USED, offsets, KEPT_MS, Milliseconds(SINCE + after))
        assert found == (None if after < KEPT_MS else Expired([AT], with_group=not pending))
