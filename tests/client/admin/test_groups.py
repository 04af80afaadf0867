"""Groups as their coordinators describe them, whoever their members are."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.admin.nodes import Nodes, play

from fencepost.client import BrokerError, GroupDescription, MemberDescription, PartlyRefusedError, TopicPartition
from fencepost.client.group_protocol import assignment
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ConsumerGroupDescribeResponse, DescribeGroupsRequest, DescribeGroupsResponse
from fencepost.protocol.messages.consumer_group_describe import Assignment, Member, TopicPartitions
from fencepost.protocol.messages.consumer_group_describe import DescribedGroup as DescribedGroup848
from fencepost.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember


def described(state: str, protocol_type: str, *assignments: bytes) -> DescribeGroupsResponse:
    members = [
        DescribedGroupMember(
            member_id=f"member-{len(assignments) - number}",
            group_instance_id=None,
            client_id="client",
            client_host="/host",
            member_metadata=b"",
            member_assignment=assigned,
        )
        for number, assigned in enumerate(assignments)
    ]
    group = DescribedGroup(
        error_code=0,
        group_id="g",
        group_state=state,
        protocol_type=protocol_type,
        protocol_data="range",
        members=members,
    )
    return DescribeGroupsResponse(groups=[group])


def test_a_group_that_there_is_not_is_an_error_with_an_older_broker_as_well() -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.ranges["DescribeGroups"] = (0, 5)
        nodes.ranges["ConsumerGroupDescribe"] = (1, 0)
        nodes.answer = lambda *_: described("Dead", "")
        async with nodes.admin() as admin:
            with pytest.raises(BrokerError, match="group 'g' cannot be described") as told:
                await admin.describe_groups(["g"])
            assert told.value.code == ErrorCode.GROUP_ID_NOT_FOUND

    play(scenario)


def test_what_each_member_was_assigned_is_told_in_order() -> None:
    async def scenario(nodes: Nodes) -> None:
        places = [TopicPartition("t", number) for number in (2, 0, 1)]
        nodes.answer = lambda *_: described("Stable", "consumer", assignment(places[:2]), assignment(places[2:]))
        async with nodes.admin() as admin:
            found = (await admin.describe_groups(["g"]))["g"]
        members = [
            MemberDescription("member-1", None, "client", "/host", [TopicPartition("t", 1)]),
            MemberDescription("member-2", None, "client", "/host", [TopicPartition("t", 0), TopicPartition("t", 2)]),
        ]
        assert found == GroupDescription("g", "Stable", "consumer", "range", members)

    play(scenario)


@given(assigned=st.binary(max_size=40), protocol_type=st.sampled_from(["consumer", "connect", ""]))
def test_members_of_another_kind_are_described_without_partitions(assigned: bytes, protocol_type: str) -> None:
    """Whatever their bytes are."""

    async def scenario(nodes: Nodes) -> None:
        nodes.answer = lambda *_: described("Stable", protocol_type, assigned)
        async with nodes.admin() as admin:
            (member,) = (await admin.describe_groups(["g"]))["g"].members
        assert member.client_id == "client"
        assert protocol_type == "consumer" or member.partitions == []

    play(scenario)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_AUTHORIZATION_FAILED])
@pytest.mark.parametrize("is_served", [True, False])
def test_a_group_of_the_new_protocol_is_described_where_it_is_no_classic_one(code: ErrorCode, is_served: bool) -> None:
    at = [TopicPartitions(topic_id=uuid.UUID(int=1), topic_name="t", partitions=[1, 0])]
    described_member = Member(
        member_id="m",
        instance_id="i",
        member_epoch=3,
        client_id="client",
        client_host="/host",
        subscribed_topic_names=["t"],
        assignment=Assignment(topic_partitions=at),
        target_assignment=Assignment(topic_partitions=[]),
    )

    def answer(_: int, request: Any) -> Any:
        if isinstance(request, DescribeGroupsRequest):
            return DescribeGroupsResponse(groups=[_classic(group) for group in request.groups])
        assert request.group_ids == ["new"], "whoever is known is not asked for again"
        found = DescribedGroup848(
            error_code=code,
            group_id="new",
            group_state="Stable",
            group_epoch=3,
            assignment_epoch=3,
            assignor_name="uniform",
            members=[described_member],
        )
        return ConsumerGroupDescribeResponse(groups=[found])

    async def scenario(nodes: Nodes) -> None:
        nodes.answer = answer
        if not is_served:
            nodes.ranges["ConsumerGroupDescribe"] = (1, 0)
        async with nodes.admin() as admin:
            if code or not is_served:
                with pytest.raises(PartlyRefusedError) as told:
                    await admin.describe_groups(["old", "new"])
                assert list(told.value.done) == ["old"]
                assert told.value.code == (code if is_served else ErrorCode.GROUP_ID_NOT_FOUND)
                return
            found = await admin.describe_groups(["new", "old", "new"])
        assert list(found) == ["new", "old"]
        members = [MemberDescription("m", "i", "client", "/host", [TopicPartition("t", 0), TopicPartition("t", 1)])]
        assert found["new"] == GroupDescription("new", "Stable", "consumer", "uniform", members)

    play(scenario)


def test_a_classic_group_that_cannot_be_described_is_named_beside_one_of_the_new_protocol() -> None:
    def answer(_: int, request: Any) -> Any:
        if isinstance(request, DescribeGroupsRequest):
            groups = [_classic(group) for group in request.groups]
            for group in groups:
                if group.group_id == "secret":
                    group.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return DescribeGroupsResponse(groups=groups)
        assert request.group_ids == ["new"]
        found = DescribedGroup848(
            error_code=0,
            group_id="new",
            group_state="Empty",
            group_epoch=3,
            assignment_epoch=3,
            assignor_name="uniform",
            members=[],
        )
        return ConsumerGroupDescribeResponse(groups=[found])

    async def scenario(nodes: Nodes) -> None:
        nodes.answer = answer
        async with nodes.admin() as admin:
            with pytest.raises(PartlyRefusedError) as told:
                await admin.describe_groups(["secret", "new", "old"])
        assert [*told.value.refused] == ["secret"]
        assert {*told.value.done} == {"new", "old"}
        assert told.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED

    play(scenario)


def _classic(group: str) -> DescribedGroup:
    (one,) = described("Stable" if group == "old" else "Dead", "consumer").groups
    one.group_id = group
    return one
