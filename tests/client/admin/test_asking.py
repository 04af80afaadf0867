"""Questions to several brokers: each to its place, again where it has moved to, and every refusal by its name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.admin.nodes import CUT, SILENT, Late, Nodes, play

from fencepost.client import (
    BrokerError,
    PartlyRefusedError,
    TimedOutError,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteGroupsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from fencepost.protocol.messages.create_partitions import CreatePartitionsTopicResult
from fencepost.protocol.messages.create_topics import CreatableTopicResult
from fencepost.protocol.messages.delete_groups import DeletableGroupResult
from fencepost.protocol.messages.delete_records import DeleteRecordsPartitionResult, DeleteRecordsTopicResult
from fencepost.protocol.messages.delete_topics import DeletableTopicResult
from fencepost.protocol.messages.describe_configs import DescribeConfigsResult
from fencepost.protocol.messages.describe_groups import DescribedGroup
from fencepost.protocol.messages.list_groups import ListedGroup
from fencepost.protocol.types import TopicPartition

PLACES = [TopicPartition("t", number) for number in range(6)]
MOVES = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, CUT)
REFUSALS = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_SERVER_ERROR)


def deleted(request: DeleteRecordsRequest, errors: Mapping[TopicPartition, int]) -> DeleteRecordsResponse:
    """What a leader answers that deletes up to the offset it is told, but for these."""
    topics = []
    for topic in request.topics:
        parts = [
            DeleteRecordsPartitionResult(
                partition_index=part.partition_index,
                low_watermark=part.offset,
                error_code=errors.get(TopicPartition(topic.name, part.partition_index), 0),
            )
            for part in topic.partitions
        ]
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=parts))
    return DeleteRecordsResponse(topics=topics)


def asked_about(request: DeleteRecordsRequest) -> list[TopicPartition]:
    return [TopicPartition(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions]


def described(request: DescribeGroupsRequest, error: int = 0) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(
                error_code=error,
                group_id=group,
                group_state="Empty",
                protocol_type="consumer",
                protocol_data="",
                members=[],
            )
            for group in request.groups
        ]
    )


@given(
    leaders=st.lists(st.integers(0, 2), min_size=6, max_size=6),
    troubles=st.lists(st.sampled_from(["fine", "moves", *REFUSALS]), min_size=6, max_size=6),
    how=st.sampled_from(MOVES),
)
def test_each_partition_is_asked_for_at_its_leader_wherever_that_is_and_every_refusal_is_named(
    leaders: list[int], troubles: list[Any], how: Any
) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = dict(zip(PLACES, leaders, strict=True))
        moving = {at for at, trouble in zip(PLACES, troubles, strict=True) if trouble == "moves"}
        refused = {at: error for at, error in zip(PLACES, troubles, strict=True) if isinstance(error, ErrorCode)}

        def answer(node: int, request: Any) -> Any:
            asked = asked_about(request)
            assert all(nodes.leaders[at] == node for at in asked)
            gone = [at for at in asked if at in moving]
            for at in gone:
                moving.discard(at)
                nodes.leaders[at] = (node + 1) % 3
            if gone and how is CUT:
                return CUT
            return deleted(request, {**refused, **dict.fromkeys(gone, how)})

        nodes.answer = answer
        async with nodes.admin() as admin:
            wanted = {at: 10 + at.partition for at in PLACES}
            kept = {at: offset for at, offset in wanted.items() if at not in refused}
            if not refused:
                assert await admin.delete_records(wanted) == wanted
            else:
                with pytest.raises(PartlyRefusedError) as told:
                    await admin.delete_records(wanted)
                assert told.value.done == kept
                assert {at: error.code for at, error in told.value.refused.items()} == refused
                assert all(str(at) in str(error) for at, error in told.value.refused.items())
        assert moving == set()

    play(scenario)


def test_what_has_its_answer_is_not_asked_for_again() -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = {PLACES[0]: 0, PLACES[1]: 1}
        tries: list[int] = []

        def answer(node: int, request: Any) -> Any:
            tries.append(node)
            busy = {PLACES[1]: ErrorCode.NOT_LEADER_OR_FOLLOWER} if len(tries) < 6 else {}
            return deleted(request, busy)

        nodes.answer = answer
        async with nodes.admin() as admin:
            await admin.delete_records({PLACES[0]: 1, PLACES[1]: 2})
        assert sorted(tries) == [0, 1, 1, 1, 1, 1]

    play(scenario)


@pytest.mark.parametrize("busy", [0, 1])
def test_why_something_waits_is_told_whichever_broker_was_asked_last(busy: int) -> None:
    async def scenario(nodes: Nodes) -> None:  # there is time for one answer
        nodes.leaders = {PLACES[0]: 0, PLACES[1]: 1}
        errors = {PLACES[busy]: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        nodes.answer = lambda _, request: Late(0.8, deleted(request, errors))
        async with nodes.admin(max_block_ms=999) as admin:
            with pytest.raises(TimedOutError, match=f"last: NOT_LEADER_OR_FOLLOWER for .*{PLACES[busy]}"):
                await admin.delete_records({PLACES[0]: 1, PLACES[1]: 1})

    play(scenario)


def test_a_silent_broker_holds_nobody_up_but_who_asks_it() -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = {PLACES[0]: 0, PLACES[1]: 1}
        nodes.answer = lambda node, request: SILENT if node == 1 else deleted(request, {})
        async with nodes.admin(max_block_ms=3000) as admin:
            began = nodes.loop.time()
            assert await admin.delete_records({PLACES[0]: 1}) == {PLACES[0]: 1}
            assert nodes.loop.time() - began < 0.5
            with pytest.raises(
                TimedOutError, match=r"deleting records did not succeed within 3000 ms; last: .*in time"
            ):
                await admin.delete_records({PLACES[0]: 1, PLACES[1]: 1})
            assert nodes.loop.time() - began < 3.6

    play(scenario)


@pytest.mark.parametrize(
    "error",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE],
)
def test_groups_are_asked_for_at_their_coordinators_also_while_these_move_and_load(error: ErrorCode) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.coordinators = {"a": 0, "b": 1, "c": 2}

        def answer(node: int, request: DescribeGroupsRequest) -> Any:
            assert [nodes.coordinators[group] for group in request.groups] == [node] * len(request.groups)
            if node == 1:
                nodes.coordinators["b"] = 2
                return described(request, error)
            return described(request)

        nodes.answer = answer
        async with nodes.admin() as admin:
            assert list(await admin.describe_groups(["c", "b", "a", "b"])) == ["c", "b", "a"]

    play(scenario)


def listed(node: int, error: int = 0) -> ListGroupsResponse:
    group = ListedGroup(group_id=f"g{node}", protocol_type="consumer", group_state="Empty", group_type="classic")
    return ListGroupsResponse(error_code=error, groups=[] if error else [group])


def test_every_broker_lists_its_own_and_one_that_loads_is_asked_again() -> None:
    async def scenario(nodes: Nodes) -> None:
        loading = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3

        def answer(node: int, _: Any) -> Any:
            return listed(node, loading.pop() if node == 1 and loading else 0)

        nodes.answer = answer
        async with nodes.admin() as admin:
            assert list(await admin.list_groups()) == ["g0", "g1", "g2"]
        assert len(nodes.asked) == 6

    play(scenario)


def test_a_broker_that_has_left_the_cluster_is_not_waited_for() -> None:
    async def scenario(nodes: Nodes) -> None:
        def answer(node: int, _: Any) -> Any:
            if node == 2:
                nodes.stop(2)
                return CUT
            return listed(node)

        nodes.answer = answer
        async with nodes.admin() as admin:
            assert list(await admin.list_groups()) == ["g0", "g1"]

    play(scenario)


def test_a_broker_that_refuses_to_list_is_named() -> None:
    async def scenario(nodes: Nodes) -> None:
        denied = {1: ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        nodes.answer = lambda node, _: listed(node, denied.get(node, 0))
        async with nodes.admin() as admin:
            with pytest.raises(
                PartlyRefusedError, match=r"CLUSTER_AUTHORIZATION_FAILED: broker 1 .*Have the right"
            ) as told:
                await admin.list_groups()
            assert sorted(told.value.done) == [0, 2]

    play(scenario)


def created(request: CreateTopicsRequest, error: int = 0) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=error) for topic in request.topics]
    )


def test_the_controller_is_looked_up_again_when_it_is_another_one() -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = {TopicPartition("new", 0): 0}

        def answer(node: int, request: Any) -> Any:
            if node < 2:
                nodes.controller = node + 1
                return created(request, ErrorCode.NOT_CONTROLLER)
            return created(request)

        nodes.answer = answer
        async with nodes.admin() as admin:
            await admin.create_topic("new")
        assert [node for node, _ in nodes.requests(CreateTopicsRequest)] == [0, 1, 2]

    play(scenario)


def test_who_made_it_is_said_to_be_unknown_when_an_answer_was_lost() -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.answer = lambda _, request: (
            CUT if len(nodes.asked) == 1 else created(request, ErrorCode.TOPIC_ALREADY_EXISTS)
        )
        async with nodes.admin() as admin:
            with pytest.raises(BrokerError, match="an answer to this call was lost before") as told:
                await admin.create_topic("new")
            assert told.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
            with pytest.raises(BrokerError) as told:
                await admin.create_topic("new")
            assert "lost" not in str(told.value)

    play(scenario)


ONCE: dict[str, tuple[Any, Any]] = {
    "delete_topics": (
        lambda admin: admin.delete_topics(["t"]),
        lambda code: DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", error_code=code)]),
    ),
    "create_partitions": (
        lambda admin: admin.create_partitions("t", 3),
        lambda code: CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="t", error_code=code)]),
    ),
    "delete_groups": (
        lambda admin: admin.delete_groups(["t"]),
        lambda code: DeleteGroupsResponse(results=[DeletableGroupResult(group_id="t", error_code=code)]),
    ),
}


@pytest.mark.parametrize("call", ONCE)
def test_so_it_is_said_of_whatever_cannot_be_done_twice(call: str) -> None:
    make, answer = ONCE[call]

    async def scenario(nodes: Nodes) -> None:
        nodes.answer = lambda *_: CUT if len(nodes.asked) == 1 else answer(ErrorCode.INVALID_REQUEST)
        async with nodes.admin() as admin:
            with pytest.raises(BrokerError, match="an answer to this call was lost before"):
                await make(admin)

    play(scenario)


def test_a_topic_that_there_is_not_is_named_at_once_and_not_made() -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = {PLACES[0]: 0}
        nodes.answer = lambda _, request: deleted(request, {})
        async with nodes.admin() as admin:
            for at, sentence in (
                (TopicPartition("none", 0), "topic 'none' cannot be used"),
                (TopicPartition("t", 9), "there is no partition 9"),
            ):
                with pytest.raises(BrokerError, match=sentence) as told:
                    await admin.delete_records({at: 1})
                assert told.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert nodes.asked == [] and nodes.loop.time() < 0.5
        assert not nodes.made_topics

    play(scenario)


def test_a_partition_is_waited_for_that_nobody_leads() -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = {PLACES[0]: -1}
        nodes.answer = lambda _, request: deleted(request, {})
        nodes.loop.call_later(2, nodes.leaders.__setitem__, PLACES[0], 1)
        async with nodes.admin() as admin:
            assert await admin.delete_records({PLACES[0]: 1}) == {PLACES[0]: 1}
        async with nodes.admin(max_block_ms=500) as admin:
            nodes.leaders[PLACES[0]] = -1
            with pytest.raises(TimedOutError, match="nobody leads t-0"):
                await admin.delete_records({PLACES[0]: 1})

    play(scenario)


@pytest.mark.parametrize("gone", [CUT, SILENT])
def test_what_any_broker_knows_another_one_is_asked_when_one_does_not_answer(gone: object) -> None:
    def answer(node: int, request: DescribeConfigsRequest) -> Any:
        if node < 2:
            return gone
        results = [
            DescribeConfigsResult(error_code=0, resource_type=2, resource_name=resource.resource_name, configs=[])
            for resource in request.resources
        ]
        return DescribeConfigsResponse(results=results)

    async def scenario(nodes: Nodes) -> None:
        nodes.answer = answer
        async with nodes.admin() as admin:
            assert await admin.describe_topic_configs(["t"]) == {"t": {}}

    play(scenario)


def test_nothing_is_asked_about_nothing() -> None:
    async def scenario(nodes: Nodes) -> None:
        async with nodes.admin() as admin:
            assert await admin.describe_topics([]) == {}
            assert await admin.describe_groups([]) == {}
            assert await admin.describe_topic_configs([]) == {}
            assert await admin.describe_broker_configs([]) == {}
            assert await admin.describe_transactions([]) == {}
            assert await admin.describe_producers([]) == {}
            assert await admin.list_offsets({}) == {}
            assert await admin.delete_records({}) == {}
            assert await admin.list_group_offsets("g", []) == {}
            assert await admin.describe_log_dirs([]) == {}
            await admin.alter_group_offsets("g", {})
            await admin.delete_group_offsets("g", [])
            await admin.delete_groups([])
            await admin.delete_topics([])
            await admin.create_topics([])
        assert nodes.asked == [] and nodes.looked_up == 0

    play(scenario)


def test_a_broker_that_is_not_there_is_named() -> None:
    async def scenario(nodes: Nodes) -> None:
        async with nodes.admin() as admin:
            with pytest.raises(BrokerError, match="the cluster has no broker 7; there are 0, 1, 2"):
                await admin.describe_log_dirs([7])

    play(scenario)


def test_calls_at_once_get_each_its_own_answer() -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = dict.fromkeys(PLACES, 1)
        nodes.answer = lambda _, request: deleted(request, {})
        async with nodes.admin() as admin:
            answers = await asyncio.gather(*(admin.delete_records({at: at.partition}) for at in PLACES * 3))
        assert answers == [{at: at.partition} for at in PLACES * 3]

    play(scenario)


def test_a_cancelled_call_leaves_the_others_alone() -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = {PLACES[0]: 0, PLACES[1]: 1}
        nodes.answer = lambda _, request: SILENT if len(nodes.asked) == 1 else deleted(request, {})
        async with nodes.admin() as admin:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await admin.delete_records({PLACES[0]: 1})
            assert await admin.delete_records({PLACES[1]: 1}) == {PLACES[1]: 1}

    play(scenario)
