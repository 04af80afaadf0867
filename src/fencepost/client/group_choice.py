"""Chooses the protocol between a consumer and its group, and checks the settings of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fencepost.client.assignors import COOPERATIVE_STICKY, RANGE, strategies_of
from fencepost.client.cluster import Cluster
from fencepost.client.consumer_group.member import ConsumerGroupMember
from fencepost.client.group import Group
from fencepost.client.membership import Membership

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
#: Settings of the classic protocol alone, and what they are where nothing is said.
CLASSIC_DEFAULTS: Final[Mapping[str, Any]] = {
    "partition_assignment_strategy": (RANGE, COOPERATIVE_STICKY),
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3000,
}
_REMOTE_ASSIGNOR: Final = "group_remote_assignor"


def group_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings that a consumer was given, with those of its group's protocol that it was not given.

    Raises ValueError for a protocol that there is not, and for settings that it does not have.
    """
    protocol = given["group_protocol"]
    if protocol not in (CLASSIC, CONSUMER):
        raise ValueError(f"group_protocol={protocol!r}: it must be {CLASSIC!r} or {CONSUMER!r}")
    of_the_other = [*CLASSIC_DEFAULTS] if protocol == CONSUMER else [_REMOTE_ASSIGNOR]
    refused = [name for name in of_the_other if given[name] is not None]
    if refused:
        why = "the broker decides about it" if protocol == CONSUMER else f"it is for group_protocol={CONSUMER!r}"
        raise ValueError(f"{', '.join(refused)} cannot be set with group_protocol={protocol!r}: {why}")
    missing = {name: value for name, value in CLASSIC_DEFAULTS.items() if given[name] is None}
    return {**given, **missing}


def membership(cluster: Cluster, settings: Mapping[str, Any]) -> Membership | None:
    """A new member of the group `group_id`, for the protocol `group_protocol`; None without a group_id."""
    if settings["group_id"] is None:
        return None
    who = settings["group_id"], settings["group_instance_id"]
    if settings["group_protocol"] == CONSUMER:
        return ConsumerGroupMember(
            cluster,
            *who,
            server_assignor=settings[_REMOTE_ASSIGNOR],
            rebalance_timeout_ms=settings["rebalance_timeout_ms"],
            max_poll_interval_ms=settings["max_poll_interval_ms"],
        )
    return Group(
        cluster,
        *who,
        strategies=strategies_of(settings["partition_assignment_strategy"]),
        session_timeout_ms=settings["session_timeout_ms"],
        rebalance_timeout_ms=settings["rebalance_timeout_ms"],
        heartbeat_interval_ms=settings["heartbeat_interval_ms"],
        max_poll_interval_ms=settings["max_poll_interval_ms"],
    )
