"""Calls that cannot be made: a broker that is too old, senseless arguments, a client that is closed."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.client.admin.nodes import SILENT, Nodes, play
from tests.client.admin.test_asking import PLACES

from fencepost.client import (
    ClosedError,
    ConfigChange,
    FatalError,
    NewTopic,
    OffsetSpec,
    TimedOutError,
    UnsupportedByBrokerError,
)

NO_CHANGE = ConfigChange(set={"retention.ms": "1"})


OLDER = {
    "DescribeProducers": lambda admin: admin.describe_producers(PLACES[:1]),
    "DescribeTransactions": lambda admin: admin.describe_transaction("id"),
    "ListTransactions": lambda admin: admin.list_transactions(),
    "OffsetDelete": lambda admin: admin.delete_group_offsets("g", PLACES[:1]),
    "IncrementalAlterConfigs": lambda admin: admin.alter_topic_config("t", NO_CHANGE),
    "UpdateFeatures": lambda admin: admin.update_feature("transaction.version", 2),
    "DescribeLogDirs": lambda admin: admin.describe_log_dirs(),
}


@pytest.mark.parametrize("name", OLDER)
def test_an_older_broker_is_named_in_a_sentence(name: str) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = {PLACES[0]: 0}
        nodes.ranges[name] = (0, -1)
        async with nodes.admin() as admin:
            with pytest.raises(UnsupportedByBrokerError, match=rf"127.0.0.1:\d+ does not serve {name}") as told:
                await OLDER[name](admin)
            assert isinstance(told.value, FatalError)
        assert nodes.asked == []

    play(scenario)


#: What a call says that an older version has no room for: the call, its API, and the first version that has.
SAID_SINCE: dict[str, tuple[Any, str, int]] = {
    "how long it is open": (lambda admin: admin.list_transactions(running_longer_than_ms=0), "ListTransactions", 1),
    "a pattern": (lambda admin: admin.list_transactions(pattern=""), "ListTransactions", 2),
    "states of groups": (lambda admin: admin.list_groups(states=["Empty"]), "ListGroups", 4),
    "types of groups": (lambda admin: admin.list_groups(types=["classic"]), "ListGroups", 5),
    "both": (lambda admin: admin.list_groups(states=["Empty"], types=["classic"]), "ListGroups", 5),
    "what is stable": (lambda admin: admin.list_group_offsets("g", require_stable=True), "OffsetFetch", 7),
    "what is committed": (
        *(lambda admin: admin.list_offsets({PLACES[0]: 0}, isolation_level="read_committed"), "ListOffsets", 2),
    ),
    "the largest time": (lambda admin: admin.list_offsets({PLACES[0]: OffsetSpec.MAX_TIMESTAMP}), "ListOffsets", 7),
    "what is local": (lambda admin: admin.list_offsets({PLACES[0]: OffsetSpec.EARLIEST_LOCAL}), "ListOffsets", 8),
    "one of several": (
        lambda admin: admin.list_offsets({PLACES[0]: 0, PLACES[1]: OffsetSpec.LATEST_TIERED}),
        *("ListOffsets", 9),
    ),
}


@pytest.mark.parametrize("said", SAID_SINCE)
def test_what_an_older_version_cannot_say_is_not_left_out_in_silence(said: str) -> None:
    """A broker that has just the version is asked; here it gives no answer."""
    call, name, since = SAID_SINCE[said]

    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = dict.fromkeys(PLACES, 0)
        nodes.answer = lambda *_: SILENT
        for newest in (since - 1, since):
            nodes.ranges = {name: (0 if name != "ListOffsets" else 1, newest)}
            async with nodes.admin(max_block_ms=500) as admin:
                with pytest.raises(TimedOutError if newest == since else UnsupportedByBrokerError):
                    await call(admin)
            assert bool(nodes.asked) == (newest == since)

    play(scenario)


def test_calls_under_way_are_told_that_it_is_closed_and_so_are_later_ones() -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = {PLACES[0]: 0}
        nodes.answer = lambda *_: SILENT
        admin = nodes.admin()
        waiting = [asyncio.ensure_future(admin.delete_records({PLACES[0]: 1})) for _ in range(2)]
        await asyncio.sleep(0.1)
        await admin.close()
        async with asyncio.timeout(1):
            for each in waiting:
                with pytest.raises(ClosedError):
                    await each
        for nothing in (
            lambda: admin.delete_records({}),
            lambda: admin.describe_topics([]),
            lambda: admin.list_group_offsets("g", []),
            lambda: admin.alter_group_offsets("g", {}),
            lambda: admin.delete_group_offsets("g", []),
        ):
            with pytest.raises(ClosedError):
                await nothing()

    play(scenario)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda admin: admin.describe_groups("abc"), TypeError, r"group_ids='abc': give several names"),
        (lambda admin: admin.describe_groups([""]), ValueError, "group_ids is empty"),
        (lambda admin: admin.delete_topics([3]), TypeError, "names=3: it must be a str"),
        (lambda admin: admin.delete_records({PLACES[0]: "1"}), TypeError, "it must be a whole number"),
        (lambda admin: admin.list_offsets({PLACES[0]: -6}), ValueError, "OffsetSpec, or 0 or more"),
        (lambda admin: admin.list_offsets({PLACES[0]: 0}, isolation_level="x"), ValueError, "isolation_level='x'"),
        (lambda admin: admin.alter_group_offsets("g", {PLACES[0]: -1}), ValueError, "an offset is 0 or more"),
        (lambda admin: admin.describe_log_dirs(["0"]), TypeError, "broker_ids='0'"),
        (lambda admin: admin.create_topics([NewTopic("a"), NewTopic("a")]), ValueError, "name each once"),
        (
            lambda admin: admin.create_topic("a", config={"retention.ms": 1}),
            TypeError,
            r"'retention.ms'.=1: .* as in '1'",
        ),
        (lambda admin: admin.create_topic("a", partitions="1"), TypeError, "partitions='1'"),
        (
            lambda admin: admin.alter_topic_config("a", ConfigChange(delete="abc")),
            TypeError,
            r"delete='abc': give several",
        ),
        (
            lambda admin: admin.alter_topic_config("a", ConfigChange(set=cast(Any, {"a": None}))),
            TypeError,
            "it must be a str",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(call: Any, error: Any, sentence: str) -> None:
    async def scenario(nodes: Nodes) -> None:
        async with nodes.admin() as admin:
            with pytest.raises(error, match=sentence):
                await call(admin)
        assert nodes.asked == [] and nodes.looked_up == 0

    play(scenario)
