"""The protocol of a group, and which settings it has."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from tests.client.admin.nodes import BOOTSTRAP

from fencepost.client import Consumer, blocking
from fencepost.client.group_choice import CLASSIC_DEFAULTS, group_settings

GIVEN: dict[str, Any] = {
    "partition_assignment_strategy": "range",
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3000,
}
SOME = [names for count in range(1, 4) for names in itertools.combinations(GIVEN, count)]


@pytest.mark.parametrize("names", SOME, ids=",".join)
def test_settings_of_the_classic_protocol_are_refused_with_the_new_one_in_one_sentence(names: tuple[str, ...]) -> None:
    options = {name: GIVEN[name] for name in names}
    named = ", ".join(names)
    for kind in (Consumer, blocking.Consumer):
        make: Any = kind
        with pytest.raises(ValueError, match=f"^{named} cannot be set with group_protocol=.consumer.: the broker"):
            make("t", bootstrap_servers=BOOTSTRAP, group_id="g", group_protocol="consumer", **options)


def test_an_assignor_of_the_broker_is_refused_with_the_classic_protocol() -> None:
    with pytest.raises(ValueError, match="group_remote_assignor cannot be set with group_protocol='classic'"):
        Consumer("t", bootstrap_servers=BOOTSTRAP, group_id="g", group_remote_assignor="uniform")


@pytest.mark.parametrize("name", ["Consumer", "", "share", None, 1])
def test_a_protocol_that_there_is_not_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match=rf"^group_protocol={re.escape(repr(name))}: it must be 'classic' or 'consum"):
        Consumer("t", bootstrap_servers=BOOTSTRAP, group_id="g", group_protocol=name)


def test_what_is_not_given_is_as_apache_kafka_has_it_and_what_is_given_stays() -> None:
    nothing = dict.fromkeys([*CLASSIC_DEFAULTS, "group_remote_assignor"])
    assert group_settings({**nothing, "group_protocol": "classic"}) == {
        "group_protocol": "classic",
        "group_remote_assignor": None,
        "partition_assignment_strategy": ("range", "cooperative-sticky"),
        "session_timeout_ms": 45_000,
        "heartbeat_interval_ms": 3000,
    }
    given = {**nothing, **GIVEN, "session_timeout_ms": 0, "group_protocol": "classic"}
    assert group_settings(given) == given


def test_each_setting_of_a_group_comes_to_where_it_is_used() -> None:
    """All of them are milliseconds: the one in the place of the other would be none the less a member."""
    times: dict[str, Any] = {
        "session_timeout_ms": 1001,
        "rebalance_timeout_ms": 1002,
        "heartbeat_interval_ms": 1003,
        "max_poll_interval_ms": 1004,
    }
    names = ("_session_timeout_ms", "_rebalance_timeout_ms", "_heartbeat_interval", "_max_poll_interval_ms")
    classic: Any = Consumer("t", bootstrap_servers=BOOTSTRAP, group_id="g", **times)._group
    assert [getattr(classic, name) for name in names] == [1001, 1002, 1.003, 1004]
    of_both: Any = {name: times[name] for name in ("rebalance_timeout_ms", "max_poll_interval_ms")}
    asked = {"group_protocol": "consumer", "group_remote_assignor": "range", **of_both}
    newer: Any = Consumer("t", bootstrap_servers=BOOTSTRAP, group_id="g", **asked)._group
    assert (newer._now.rebalance_timeout_ms, newer._max_poll_interval_ms) == (1002, 1004)
    assert newer._now.server_assignor == "range"
