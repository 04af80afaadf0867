"""Whatever an admin is given: what it cannot use is refused with a sentence that names the argument."""

from __future__ import annotations

import asyncio
import inspect
import re
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.client.test_producer import simulate

from fencepost.client import (
    Admin,
    ClientError,
    ConfigChange,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
)
from fencepost.client.addresses import addresses_of
from fencepost.client.admin import checks
from fencepost.simulation.world import ADDRESS, World

AT = TopicPartition("t", 0)
#: method -> arguments that it takes
RIGHT: dict[str, dict[str, Any]] = {
    "topics": {},
    "partitions": {"topic": "t"},
    "describe_topics": {"names": ["t"]},
    "create_topic": {
        "name": "new",
        "partitions": 1,
        "replication_factor": 1,
        "config": {"retention.ms": "1000"},
        "exist_ok": True,
    },
    "create_topics": {"new": [NewTopic("new")], "exist_ok": True, "validate_only": True},
    "delete_topic": {"name": "gone"},
    "delete_topics": {"names": ["gone"]},
    "create_partitions": {"topic": "t", "count": 3, "validate_only": True},
    "describe_topic_configs": {"names": ["t"]},
    "describe_broker_configs": {"broker_ids": [0]},
    "alter_topic_config": {"name": "t", "change": ConfigChange(), "validate_only": True},
    "alter_broker_config": {"broker_id": 0, "change": ConfigChange(), "validate_only": True},
    "list_groups": {"states": ["Stable"], "types": ["classic"]},
    "describe_groups": {"group_ids": ["g"]},
    "delete_groups": {"group_ids": ["g"]},
    "list_group_offsets": {"group_id": "g", "partitions": [AT], "require_stable": True},
    "alter_group_offsets": {"group_id": "g", "positions": {AT: OffsetAndMetadata(1, "text", -1)}},
    "delete_group_offsets": {"group_id": "g", "partitions": [AT]},
    "list_offsets": {"specs": {AT: -1}, "isolation_level": "read_committed"},
    "delete_records": {"before": {AT: 0}},
    "describe_producers": {"at": [AT]},
    "describe_cluster": {},
    "describe_log_dirs": {"broker_ids": [0]},
    "describe_features": {},
    "update_feature": {"feature": "transaction.version", "level": 2},
    "describe_transaction": {"transactional_id": "id"},
    "describe_transactions": {"transactional_ids": ["id"]},
    "list_transactions": {
        "states": ["Ongoing"],
        "producer_ids": [1],
        "running_longer_than_ms": 1,
        "pattern": ".*",
    },
    "find_hanging_transactions": {"topic_names": ["t"], "max_transaction_timeout_ms": 1},
    "abort_transaction": {"at": AT, "start_offset": 0, "max_transaction_timeout_ms": 1},
}
PLAIN: list[Any] = [
    *(None, True, False, 0, -1, -2, 1, 2**15, 2**31, 2**63, -(2**63) - 1, 1.5, float("nan"), "", "t", "\ud800"),
    *("x" * 40_000, "é" * 20_000, b"bytes", object(), (), [], {}, set(), AT, ("t", 2**31), ("t", -1), ("t", "0")),
    *(NewTopic("n"), ConfigChange(), OffsetAndMetadata(1)),
]
WRONG: list[Any] = [
    *PLAIN,
    *([each] for each in PLAIN),
    *({each: 1} for each in PLAIN if isinstance(each, str | int | float | bytes | TopicPartition | None)),
    *({AT: each} for each in PLAIN),
    *({"t": each} for each in PLAIN),
    *({AT: OffsetAndMetadata(*each)} for each in ((2**63,), (1, 5), (1, "x" * 40_000), (1, "", 2**31), ("1",))),
    *(NewTopic("n", **{name: each}) for name in ("partitions", "replication_factor", "config") for each in PLAIN),
    *([NewTopic("n", **{name: each})] for name in ("partitions", "config", "replicas") for each in PLAIN),
    *([NewTopic("n", replicas={0: each})] for each in PLAIN),
    *(NewTopic(each) for each in PLAIN),
    *(ConfigChange(**{name: each}) for name in ("set", "delete", "append") for each in PLAIN),
    *(ConfigChange(set={"a": each}) for each in PLAIN),
    *(ConfigChange(delete=[each]) for each in PLAIN),
]


def test_every_call_is_tried_with_every_argument() -> None:
    calls = {name: method for name, method in vars(Admin).items() if inspect.iscoroutinefunction(method)}
    assert {*RIGHT, "close", "__aenter__", "__aexit__"} == set(calls)
    for name, arguments in RIGHT.items():
        assert {"self", *arguments} == set(inspect.signature(calls[name]).parameters)


@pytest.mark.parametrize("call", [name for name, arguments in RIGHT.items() if arguments])
def test_what_a_call_cannot_use_is_refused_with_a_sentence_and_never_from_inside(call: str) -> None:
    """What is of the right kind is sent, and the broker answers for it."""
    outside: list[str] = []

    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("admin"), max_block_ms=200) as admin:
            for name, right in RIGHT[call].items():
                for wrong in WRONG:
                    try:
                        await getattr(admin, call)(**{**RIGHT[call], name: wrong})
                    except ClientError:
                        continue
                    except (TypeError, ValueError) as error:
                        if not re.search(r"give|must|empty|or more|may have|there is no|it has|twice", str(error)):
                            outside.append(f"{name}={wrong!r}: {error!r}")
                    except (AttributeError, struct.error, LookupError, ArithmeticError, AssertionError) as error:
                        outside.append(f"{name}={wrong!r}: {error!r}")
                assert right is RIGHT[call][name]
            await asyncio.sleep(0)

    simulate(scenario)
    assert outside == []


@pytest.mark.parametrize("wrong", [{"states": ["Stabel"]}, {"types": ["clasic"]}])
def test_a_state_or_type_of_groups_that_there_is_not_is_refused(wrong: dict[str, list[str]]) -> None:
    """A broker would take it, and list none."""

    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            assert await admin.list_groups(states=["stable", "EMPTY"], types=["Classic"]) == {}
            with pytest.raises(ValueError, match="there is no"):
                await admin.list_groups(**wrong)

    simulate(scenario)


def test_what_is_left_to_the_broker_is_minus_one_and_nothing_below() -> None:
    left = NewTopic("n", partitions=-1, replication_factor=-1)
    assert checks.new_topic(left)[1:3] == (-1, -1)
    for wrong in (NewTopic("n", -2), NewTopic("n", 1, -2), NewTopic("n", 1, 2**15)):
        with pytest.raises(ValueError, match=r"(partitions|replication_factor)=.*: it must be from -1 to"):
            checks.new_topic(wrong)


@given(st.one_of(st.text(max_size=12), st.from_regex(r"[a-z\[\]:]{0,4}:[0-9]{0,7}", fullmatch=True)))
@example("http://a:9092")
@example("a:99999999999999999999999")
@example("a:65536")
@example("a:0")
@example("a:²")
def test_an_address_is_a_host_and_a_port_or_a_sentence(server: str) -> None:
    try:
        found = addresses_of(server)
    except ValueError as refused:
        assert str(refused).startswith("bootstrap_servers ")  # noqa: PT017
    else:
        assert all(host and "://" not in host and 1 <= port <= 65_535 for host, port in found)


def test_an_address_of_ipv6_is_taken_with_brackets_and_without() -> None:
    assert addresses_of("[::1]:9092, ::1:9093,[fe80::1%lo]:9") == [("::1", 9092), ("::1", 9093), ("fe80::1%lo", 9)]


@pytest.mark.parametrize("given", ["a:1;b:2", "a:1 b:2", "me@a:1", "a/b:1", "[::1:9", "::1]:9"])
def test_what_is_no_host_is_refused_with_a_sentence(given: str) -> None:
    with pytest.raises(ValueError, match=r"bootstrap_servers has .*: this is no host; commas separate several"):
        addresses_of(given)


@pytest.mark.parametrize("given", [None, 9092, ["a:1"], b"a:1"])
def test_bootstrap_servers_are_a_text(given: Any) -> None:
    with pytest.raises(TypeError, match="bootstrap_servers="):
        addresses_of(given)
