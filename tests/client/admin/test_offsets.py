"""Offsets of groups: every error in an answer, for the group or a partition of it, is tried again or named."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.admin.nodes import Nodes, play

from fencepost.client import BrokerError, FatalError, OffsetAndMetadata, PartlyRefusedError, TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from fencepost.protocol.messages.offset_commit import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from fencepost.protocol.messages.offset_delete import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from fencepost.protocol.messages.offset_fetch import OffsetFetchResponsePartition, OffsetFetchResponseTopic

PLACES = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
MOVES = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
REFUSALS = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
)
LIVE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)


def committed(request: OffsetCommitRequest, error: Any) -> OffsetCommitResponse:
    """`error`: of a partition."""
    topics = []
    for topic in request.topics:
        parts = [
            OffsetCommitResponsePartition(
                partition_index=part.partition_index,
                error_code=error(TopicPartition(topic.name, part.partition_index)),
            )
            for part in topic.partitions
        ]
        topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=parts))
    return OffsetCommitResponse(topics=topics)


@given(
    errors=st.lists(st.sampled_from([ErrorCode.NONE, *REFUSALS, *LIVE]), min_size=3, max_size=3),
    moves=st.lists(st.sampled_from(MOVES), max_size=3),
)
def test_offsets_are_set_at_the_coordinator_and_each_refusal_is_named(
    errors: list[ErrorCode], moves: list[ErrorCode]
) -> None:
    async def scenario(nodes: Nodes) -> None:
        told = dict(zip(PLACES, errors, strict=True))
        left = list(moves)

        def answer(node: int, request: OffsetCommitRequest) -> Any:
            assert node == nodes.coordinators["g"]
            assert (request.group_id, request.member_id, request.generation_id_or_member_epoch) == ("g", "", -1)
            if left:
                error = left.pop()
                nodes.coordinators["g"] = (node + 1) % 3
                return committed(request, lambda _: error)
            return committed(request, told.__getitem__)

        nodes.answer, nodes.coordinators = answer, {"g": 0}
        refused = {at: error for at, error in told.items() if error}
        async with nodes.admin() as admin:
            if not refused:
                await admin.alter_group_offsets("g", dict.fromkeys(PLACES, 5))
                return
            with pytest.raises(BrokerError) as raised:
                await admin.alter_group_offsets("g", dict.fromkeys(PLACES, 5))
        expected = {at: ErrorCode.NON_EMPTY_GROUP if error in LIVE else error for at, error in refused.items()}
        assert isinstance(raised.value, PartlyRefusedError)
        assert {at: error.code for at, error in raised.value.refused.items()} == expected
        assert set(raised.value.done) == set(PLACES) - set(refused)
        assert all(str(at) in str(error) for at, error in raised.value.refused.items())

    play(scenario)


@pytest.mark.parametrize("group", ["g{", "g{}", "g{x}", "%s"])
def test_a_group_of_any_name_is_named_as_it_is(group: str) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.answer = lambda _, request: committed(request, lambda _: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        async with nodes.admin() as admin:
            with pytest.raises(BrokerError, match=re.escape(repr(group))):
                await admin.alter_group_offsets(group, {PLACES[0]: 5})

    play(scenario)


def test_a_live_group_is_told_as_such() -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.answer = lambda _, request: committed(request, lambda _: ErrorCode.UNKNOWN_MEMBER_ID)
        async with nodes.admin() as admin:
            with pytest.raises(FatalError, match=r"t-0 was not changed: the group has members, .*Stop the members"):
                await admin.alter_group_offsets("g", {PLACES[0]: OffsetAndMetadata(5, "why")})

    play(scenario)


def test_what_is_set_is_all_sent_and_what_is_stored_is_all_told() -> None:
    """Also at the beginning of a partition; what has no position is none."""
    there = {
        PLACES[0]: OffsetAndMetadata(0, "why", 3),
        PLACES[1]: OffsetAndMetadata(2**63 - 1, "", -1),
        PLACES[2]: OffsetAndMetadata(1, "commit-order/1 5", 0),
    }
    stored: dict[TopicPartition, tuple[int, str, int]] = {}

    def answer(_: int, request: OffsetCommitRequest | OffsetFetchRequest) -> Any:
        if isinstance(request, OffsetCommitRequest):
            for topic in request.topics:
                for part in topic.partitions:
                    stored[TopicPartition(topic.name, part.partition_index)] = (
                        part.committed_offset,
                        part.committed_metadata or "",
                        part.committed_leader_epoch,
                    )
            return committed(request, lambda _: ErrorCode.NONE)
        return OffsetFetchResponse(
            error_code=0,
            topics=[
                OffsetFetchResponseTopic(
                    name=at.topic,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=at.partition,
                            committed_offset=offset,
                            metadata=metadata,
                            committed_leader_epoch=epoch,
                            error_code=0,
                        )
                    ],
                )
                for at, (offset, metadata, epoch) in stored.items()
            ],
        )

    async def scenario(nodes: Nodes) -> None:
        nodes.answer = answer
        async with nodes.admin() as admin:
            await admin.alter_group_offsets("g", there)
            assert stored == {at: tuple(each) for at, each in there.items()}
            nowhere = TopicPartition("v", 0)
            stored[nowhere] = -1, "", -1
            assert await admin.list_group_offsets("g") == {**there, nowhere: None}

    play(scenario)


def fetched(request: OffsetFetchRequest, whole: int, part: int, place: int = 0) -> OffsetFetchResponse:
    """`part`: the error of the partition at this place of those that are asked for; the others have none."""
    places = [(topic.name, number) for topic in request.topics or [] for number in topic.partition_indexes]
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=number,
                    committed_offset=7 + number,
                    metadata=None,
                    error_code=part if (topic.name, number) == places[place] else 0,
                )
                for number in topic.partition_indexes
            ],
        )
        for topic in request.topics or []
    ]
    return OffsetFetchResponse(error_code=whole, topics=[] if whole else topics)


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        *((error, 0) for error in MOVES),
        (0, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
@pytest.mark.parametrize("place", range(len(PLACES)))
def test_offsets_are_read_when_the_coordinator_knows_them(whole: int, part: int, place: int) -> None:
    async def scenario(nodes: Nodes) -> None:
        def answer(_: int, request: OffsetFetchRequest) -> Any:
            assert request.require_stable
            return fetched(request, whole, part, place) if len(nodes.asked) < 4 else fetched(request, 0, 0)

        nodes.answer = answer
        async with nodes.admin() as admin:
            found = await admin.list_group_offsets("g", PLACES, require_stable=True)
        assert found == {at: OffsetAndMetadata(7 + at.partition) for at in PLACES}
        assert len(nodes.asked) == 4

    play(scenario)


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, 0),
        (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_offsets_that_may_not_be_read_are_not_left_out(whole: int, part: int) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.answer = lambda _, request: fetched(request, whole, part)
        async with nodes.admin() as admin:
            with pytest.raises(BrokerError, match="the offsets of group 'g' are not told") as told:
                await admin.list_group_offsets("g", PLACES)
            assert told.value.code == (whole or part)
        assert len(nodes.asked) == 1, "who asks again hears the same"

    play(scenario)


@pytest.mark.parametrize("error", [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND])
def test_what_is_said_of_the_whole_group_is_told_when_offsets_are_deleted(error: ErrorCode) -> None:
    async def scenario(nodes: Nodes) -> None:
        def answer(_: int, request: OffsetDeleteRequest) -> Any:
            if len(nodes.asked) < 3:
                return OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR, topics=[])
            if len(nodes.asked) == 3:
                return OffsetDeleteResponse(error_code=error, topics=[])
            parts = [OffsetDeleteResponsePartition(partition_index=0, error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]
            topics = [OffsetDeleteResponseTopic(name=topic.name, partitions=parts) for topic in request.topics]
            return OffsetDeleteResponse(error_code=0, topics=topics)

        nodes.answer = answer
        async with nodes.admin() as admin:
            for code, sentence in (
                (error, "offsets of group 'g' were not deleted"),
                (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "the offset of group 'g' in t-0 was not deleted"),
            ):
                with pytest.raises(BrokerError, match=sentence) as told:
                    await admin.delete_group_offsets("g", PLACES[:1])
                assert told.value.code == code

    play(scenario)
