"""A member that joins again as it was: its answer got lost, and it is there."""

from __future__ import annotations

import pytest

from fencepost.coordinator.group.classic.decision import SetTimer, session
from fencepost.coordinator.group.classic.group import Awaiting, ClassicGroup, ClassicGroupState, Member
from fencepost.coordinator.group.classic.join import Join, join
from fencepost.coordinator.group.settings import GroupSettings
from fencepost.protocol.types import Epoch, Milliseconds

PROTOCOLS = (("range", b""),)


def member(name: str, awaiting: Awaiting | None = None) -> Member:
    return Member(name, None, "c", "h", Milliseconds(6000), Milliseconds(9000), PROTOCOLS, awaiting=awaiting)


@pytest.mark.parametrize(
    ("state", "awaiting"),
    [
        (ClassicGroupState.STABLE, None),
        (ClassicGroupState.COMPLETING_REBALANCE, None),
        (ClassicGroupState.COMPLETING_REBALANCE, Awaiting.SYNC),
    ],
)
def test_whose_answer_is_repeated_was_heard_of_and_may_have_other_time_outs(
    state: ClassicGroupState, awaiting: Awaiting | None
) -> None:
    """Its session begins anew, with the time-out that it says now; who waits for an answer has none."""
    group = ClassicGroup("g", state, Epoch(3), "consumer", "range").with_members([member("a"), member("b", awaiting)])
    request = Join("b", None, "c", "h", Milliseconds(7000), Milliseconds(8000), "consumer", PROTOCOLS, "")
    decided = join(group, request, GroupSettings(), Milliseconds(1))
    assert decided.answer is not None
    assert (decided.answer.generation_id, decided.answer.leader, decided.answer.member_id) == (3, "a", "b")
    assert tuple(decided.effects) == (() if awaiting else (SetTimer(session("b"), Milliseconds(7000)),))
    now = decided.group.members["b"]
    assert (now.session_timeout_ms, now.rebalance_timeout_ms) == (7000, 8000)
    assert (decided.group.state, decided.group.generation_id) == (state, 3)
