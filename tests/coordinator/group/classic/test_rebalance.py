"""Who is in the next generation, and who leads it, when the join phase has taken as long as it may."""

from __future__ import annotations

import pytest

from fencepost.coordinator.group.classic.decision import REBALANCE, SetTimer
from fencepost.coordinator.group.classic.group import Awaiting, ClassicGroup, ClassicGroupState, Member
from fencepost.coordinator.group.classic.rebalance import (
    LEAST_WAIT_MS,
    complete_join,
    prepare_rebalance,
    rebalance_timer_rang,
)
from fencepost.coordinator.group.settings import GroupSettings
from fencepost.protocol.types import Epoch, Milliseconds


def member(name: str, *, static: bool, joined: bool) -> Member:
    return Member(
        member_id=name,
        group_instance_id=f"i-{name}" if static else None,
        client_id="c",
        client_host="h",
        session_timeout_ms=Milliseconds(6000),
        rebalance_timeout_ms=Milliseconds(9000),
        protocols=(("range", b""),),
        awaiting=Awaiting.JOIN if joined else None,
    )


@pytest.mark.parametrize("leads", ["late", "lost", "here", "also"])
def test_a_late_dynamic_member_is_out_and_a_late_static_one_is_in_and_does_not_lead(leads: str) -> None:
    members = [
        member("late", static=True, joined=False),
        member("lost", static=False, joined=False),
        member("here", static=False, joined=True),
        member("also", static=True, joined=True),
    ]
    group = ClassicGroup("g", ClassicGroupState.PREPARING_REBALANCE, Epoch(3), "consumer")
    begun = complete_join(group.with_members(members)._replace(leader_id=leads), Milliseconds(1)).group
    assert list(begun.members) == ["late", "here", "also"]
    assert begun.leader_id == (leads if leads in ("here", "also") else "here")
    assert (begun.generation_id, begun.state) == (4, ClassicGroupState.COMPLETING_REBALANCE)


@pytest.mark.parametrize("timeout", [0, -1, 9000])
def test_static_members_that_are_all_away_are_not_looked_for_without_a_pause(timeout: int) -> None:
    members = [
        member(name, static=True, joined=False)._replace(rebalance_timeout_ms=Milliseconds(timeout)) for name in "ab"
    ]
    group = ClassicGroup("g", ClassicGroupState.PREPARING_REBALANCE, Epoch(3), "consumer").with_members(members)
    change = complete_join(group, Milliseconds(1))
    assert change.group.state is ClassicGroupState.PREPARING_REBALANCE
    assert change.effects == (SetTimer(REBALANCE, Milliseconds(max(timeout, LEAST_WAIT_MS))),)


def test_who_waits_for_an_assignment_has_none_when_the_next_rebalance_begins() -> None:
    members = [member(name, static=False, joined=False)._replace(assignment=b"of before") for name in ("a", "b")]
    group = ClassicGroup("g", ClassicGroupState.COMPLETING_REBALANCE, Epoch(3), "consumer").with_members(members)
    prepared = prepare_rebalance(group, GroupSettings(), Milliseconds(1)).group
    assert [each.assignment for each in prepared.members.values()] == [b"", b""]


def test_the_first_generation_waits_on_only_while_others_have_come_since_the_last_look() -> None:
    group = ClassicGroup("g", ClassicGroupState.PREPARING_REBALANCE, Epoch(0), "consumer")
    group = group.with_members([member("a", static=False, joined=True)])
    group = group._replace(initial_delay_left_ms=Milliseconds(9000), new_member_added=True)
    settings = GroupSettings(initial_rebalance_delay_ms=Milliseconds(3000))
    longer = rebalance_timer_rang(group, settings, Milliseconds(1)).group
    assert (longer.state, longer.initial_delay_left_ms) == (ClassicGroupState.PREPARING_REBALANCE, 6000)
    begun = rebalance_timer_rang(longer, settings, Milliseconds(2)).group
    assert begun.state is ClassicGroupState.COMPLETING_REBALANCE
