"""Groups as their coordinators describe them, whoever their members are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.admin.nodes import Nodes, play

from fencepost.client import BrokerError, GroupDescription, MemberDescription, TopicPartition
from fencepost.client.group_protocol import assignment
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeGroupsResponse
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
