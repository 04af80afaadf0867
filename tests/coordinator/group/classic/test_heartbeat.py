"""A heartbeat keeps the session of the member that it is of, and of no other."""

from __future__ import annotations

import pytest

from fencepost.coordinator.group.classic.decision import SetTimer, session
from fencepost.coordinator.group.classic.group import ClassicGroup, ClassicGroupState, Member
from fencepost.coordinator.group.classic.heartbeat import heartbeat
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, Milliseconds

MEMBER = Member(
    member_id="m",
    group_instance_id="i",
    client_id="c",
    client_host="h",
    session_timeout_ms=Milliseconds(6000),
    rebalance_timeout_ms=Milliseconds(9000),
    protocols=(("range", b""),),
)
GROUP = ClassicGroup("g", ClassicGroupState.STABLE, Epoch(3), "consumer", "range").with_members([MEMBER])


@pytest.mark.parametrize(
    ("who", "error"),
    [
        (("m", "i", 3), ErrorCode.NONE),
        (("m", None, 3), ErrorCode.NONE),
        (("m", "i", 2), ErrorCode.ILLEGAL_GENERATION),
        (("m", "i", 4), ErrorCode.ILLEGAL_GENERATION),
        (("m", "j", 3), ErrorCode.UNKNOWN_MEMBER_ID),
        (("n", "i", 3), ErrorCode.FENCED_INSTANCE_ID),
        (("n", None, 3), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_is_refused_keeps_nobody_alive(who: tuple[str, str | None, int], error: ErrorCode) -> None:
    decided = heartbeat(GROUP, *who)
    begins_again = (SetTimer(session("m"), Milliseconds(6000)),)
    assert (decided.answer, tuple(decided.effects)) == (error, () if error else begins_again)
