"""Classic groups over the wire: JoinGroup (11), SyncGroup (14), Heartbeat (12), LeaveGroup (13) and others."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.group_talk import Who, alone, commit, find_group, heartbeat, join, join_request, leave, sync_request
from tests.broker.wire import Client, clients, new_topic, serving, wait_until

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    JoinGroupResponse,
    ListGroupsRequest,
    SyncGroupRequest,
)

client = clients()


def describe(client: Client, group: str = "g", version: int = 6) -> Any:
    (found,) = client.ask(DescribeGroupsRequest(groups=[group]), version).groups
    return found


def delete(client: Client, group: str = "g", version: int = 2) -> int:
    (result,) = client.ask(DeleteGroupsRequest(groups_names=[group]), version).results
    return int(result.error_code)


class Two:
    """Two members of one stable group, each with a connection of its own."""

    def __init__(self, client: Client) -> None:
        find_group(client)
        self.connections = client, Client(client.broker)
        first = join(client)
        promised = self.connections[1].ask(join_request())
        assert promised.error_code == ErrorCode.MEMBER_ID_REQUIRED
        self.connections[1].send(join_request(promised.member_id))
        wait_until("the first hears of it", lambda: heartbeat(client, who(first)) == ErrorCode.REBALANCE_IN_PROGRESS)
        client.send(join_request(first.member_id))
        self.joined: list[JoinGroupResponse] = [each.receive() for each in self.connections]

    def share(self) -> list[bytes]:
        """The first leads: everybody is given its own member id."""
        ids = [each.member_id for each in self.joined]
        self.connections[1].send(sync_request(self.joined[1], {}))
        assert self.connections[1].silent_for(0.02), "it waits for the leader"
        self.connections[0].send(sync_request(self.joined[0], {name: name.encode() for name in ids}))
        return [bytes(each.receive().assignment) for each in self.connections]


def who(joined: JoinGroupResponse, instance: str | None = None) -> Who:
    return Who(joined.member_id, joined.generation_id, instance)


@pytest.mark.parametrize("version", range(10))
def test_joining_alone(client: Client, version: int) -> None:
    find_group(client)
    answer = client.ask(join_request(), version)
    if version >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, "KIP-394"
        assert answer.member_id.startswith("wire-")
        answer = client.ask(join_request(answer.member_id), version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert answer.leader == answer.member_id
    assert [(each.member_id, bytes(each.metadata)) for each in answer.members] == [(answer.member_id, b"range!")]
    assert answer.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", range(6))
def test_the_leader_hands_in_the_assignment(client: Client, version: int) -> None:
    find_group(client)
    joined = join(client)
    request = sync_request(joined, {joined.member_id: b"all"})
    request.protocol_type, request.protocol_name = "consumer", "range"
    for _ in range(2):
        answer = client.ask(request, version)
        assert (answer.error_code, bytes(answer.assignment)) == (ErrorCode.NONE, b"all")
        assert (answer.protocol_type, answer.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))
    if version >= 5:
        request.protocol_name = "roundrobin"
        assert client.ask(request, version).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_only_member_may_join_again(client: Client) -> None:
    first = alone(client)
    again = join(client, first.member_id, protocols=("roundrobin", "range"))
    assert (again.error_code, again.generation_id, again.protocol_name) == (0, first.generation + 1, "roundrobin")
    assert heartbeat(client, first) == ErrorCode.ILLEGAL_GENERATION
    assert heartbeat(client, who(again)) == ErrorCode.NONE


def test_two_members_share(client: Client) -> None:
    two = Two(client)
    leader, follower = two.joined
    assert [each.error_code for each in two.joined] == [0, 0]
    assert leader.generation_id == follower.generation_id == 2
    assert leader.leader == follower.leader == leader.member_id
    assert sorted(each.member_id for each in leader.members) == sorted(each.member_id for each in two.joined)
    assert follower.members == []
    assert two.share() == [each.member_id.encode() for each in two.joined]
    described = describe(client)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert {bytes(each.member_assignment) for each in described.members} == {
        each.member_id.encode() for each in two.joined
    }
    assert {(each.client_id, each.client_host) for each in described.members} == {("wire", "/127.0.0.1")}


def test_while_a_group_rebalances_it_is_not_told_which_protocol_its_members_have(client: Client) -> None:
    """It is about to be another one."""
    two = Two(client)
    two.share()
    third = Client(client.broker)
    promised = third.ask(join_request())
    third.send(join_request(promised.member_id))
    wait_until("it rebalances", lambda: describe(client).group_state == "PreparingRebalance")
    found = describe(client)
    assert (found.protocol_type, found.protocol_data) == ("consumer", "")
    assert [each.member_metadata for each in found.members] == [b""] * 3
    third.close()


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        ([], [], ["empty", "stable"]),
        (["Stable"], [], ["stable"]),
        (["sTABLE", "Dead"], [], ["stable"]),
        (["Empty", "Stable"], ["Classic"], ["empty", "stable"]),
        (["PreparingRebalance"], [], []),
        (["empty"], ["consumer", "classic"], ["empty"]),
        ([], ["consumer"], []),
        (["Stable"], ["share"], []),
    ],
)
def test_groups_are_listed_by_state_and_type_however_they_are_spelled(
    client: Client, states: list[str], types: list[str], listed: list[str]
) -> None:
    alone(client, group="stable")
    assert commit(client, new_topic(client), 1, group="empty") == [0]
    answer = client.ask(ListGroupsRequest(states_filter=states, types_filter=types))
    assert sorted(each.group_id for each in answer.groups) == listed


@pytest.mark.parametrize("version", [2, 3, 5, 6])
def test_what_the_caller_may_do_is_told_of_a_group_where_that_is_asked(client: Client, version: int) -> None:
    alone(client)
    for asked in (False, True) if version >= 3 else (False,):
        (found,) = client.ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=asked), version).groups
        assert (found.authorized_operations > 0) is asked


@pytest.mark.parametrize("version", range(10))
def test_who_is_refused_is_given_no_protocol(client: Client, version: int) -> None:
    """There is no null for it before version 7."""
    find_group(client)
    refused = client.ask(join_request("somebody"), version)
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(6))
def test_who_leaves_makes_room(client: Client, version: int) -> None:
    two = Two(client)
    two.share()
    stays, goes = (who(each) for each in two.joined)
    answer = leave(two.connections[1], goes, version=version)
    assert answer.error_code == ErrorCode.NONE
    assert [each.error_code for each in answer.members] == ([0] if version >= 3 else [])
    assert heartbeat(client, stays) == ErrorCode.REBALANCE_IN_PROGRESS
    assert heartbeat(client, goes) == ErrorCode.UNKNOWN_MEMBER_ID
    again = join(client, stays.member_id)
    assert (again.generation_id, [each.member_id for each in again.members]) == (3, [stays.member_id])


def test_who_does_not_join_again_is_left_behind(client: Client) -> None:
    find_group(client)
    slow = join(client, rebalance_ms=60)
    client.ask(sync_request(slow, {slow.member_id: b""}))
    other = Client(client.broker)
    joined = join(other, rebalance_ms=60)
    assert (joined.generation_id, [each.member_id for each in joined.members]) == (2, [joined.member_id])
    assert heartbeat(client, who(slow)) == ErrorCode.UNKNOWN_MEMBER_ID
    other.close()


def test_a_session_ends() -> None:
    with serving(group_min_session_timeout_ms=10) as broker:
        client = Client(broker)
        find_group(client)
        joined = join(client, session_ms=40)
        client.ask(sync_request(joined, {joined.member_id: b""}))
        wait_until("the group is empty", lambda: describe(client).group_state == "Empty")
        assert heartbeat(client, who(joined)) == ErrorCode.UNKNOWN_MEMBER_ID
        client.close()


@pytest.mark.parametrize("version", range(5))
def test_heartbeats(client: Client, version: int) -> None:
    member = alone(client, instance="i")
    for each, error in [
        (member, ErrorCode.NONE),
        (Who(member.member_id, member.generation), ErrorCode.NONE),
        (Who(member.member_id, member.generation + 1), ErrorCode.ILLEGAL_GENERATION),
        (Who("somebody", member.generation), ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        assert heartbeat(client, each, version=version) == error
    fenced = ErrorCode.FENCED_INSTANCE_ID if version >= 3 else ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(client, Who("somebody", member.generation, "i"), version=version) == fenced
    assert heartbeat(client, member, group="absent", version=version) == ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(client, member, group="", version=version) == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_comes_back_without_a_rebalance(client: Client, version: int) -> None:
    before = alone(client, instance="i")
    back = client.ask(join_request(instance="i"), version)
    assert (back.error_code, back.generation_id) == (ErrorCode.NONE, before.generation)
    assert back.member_id != before.member_id
    assert back.member_id.startswith("i-")
    skips = version >= 9
    assert (back.skip_assignment, back.leader == before.member_id, back.members == []) == (skips, not skips, not skips)
    assert heartbeat(client, before) == ErrorCode.FENCED_INSTANCE_ID
    request = SyncGroupRequest(
        group_id="g",
        generation_id=back.generation_id,
        member_id=back.member_id,
        group_instance_id="i",
        protocol_type="consumer",
        protocol_name=back.protocol_name,
        assignments=[],
    )
    assert bytes(client.ask(request).assignment) == b"all", "it keeps what it had"
    assert join(client, before.member_id, instance="i").error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", range(3, 6))
def test_an_admin_removes_a_static_member_by_its_instance(client: Client, version: int) -> None:
    member = alone(client, instance="i")
    answer = leave(client, Who("", -1, "j"), Who("somebody", -1, "i"), Who("", -1, "i"), version=version)
    errors = [each.error_code for each in answer.members]
    assert errors == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.NONE]
    assert heartbeat(client, member) == ErrorCode.UNKNOWN_MEMBER_ID
    assert describe(client).group_state == "Empty"


def test_who_may_not_join(client: Client) -> None:
    alone(client)
    for how, error in [
        ({"session_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ("sticky",)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "fresh", "protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "somebody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "somebody", "group": "fresh"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        assert join(client, **how).error_code == error, how  # type: ignore[arg-type]


def test_a_group_is_full_at_some_point() -> None:
    with serving(group_max_size=1) as broker:
        client = Client(broker)
        alone(client)
        assert join(client).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        client.close()


def test_the_first_generation_waits_for_more_members() -> None:
    with serving(group_initial_rebalance_delay_ms=150) as broker:
        first, second = Client(broker), Client(broker)
        find_group(first)
        for each in (first, second):
            each.send(join_request(), version=3)
        one, two = first.receive(), second.receive()
        assert one.generation_id == two.generation_id == 1
        assert len(one.members) + len(two.members) == 2
        first.close()
        second.close()


# Looking and deleting


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_is_not_there_is_dead(client: Client, version: int) -> None:
    find_group(client)
    found = describe(client, "absent", version)
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (found.error_code, found.group_state, found.members) == (expected, "Dead", [])


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(client: Client, version: int) -> None:
    topic = new_topic(client)
    alone(client, group="busy")
    find_group(client, "quiet")
    assert commit(client, topic, 1, group="quiet") == [0]

    def names(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        return sorted(each.group_id for each in client.ask(request, version).groups)

    assert names() == ["busy", "quiet"]
    if version >= 4:
        assert (names(("Stable",)), names(("empty",)), names(("Dead",))) == (["busy"], ["quiet"], [])
    if version >= 5:
        assert (names((), ("Classic",)), names((), ("Consumer",))) == (["busy", "quiet"], [])


@pytest.mark.parametrize("version", range(3))
def test_only_empty_groups_are_deleted(client: Client, version: int) -> None:
    member = alone(client)
    assert delete(client, version=version) == ErrorCode.NON_EMPTY_GROUP
    assert delete(client, "absent", version=version) == ErrorCode.GROUP_ID_NOT_FOUND
    leave(client, member)
    assert delete(client, version=version) == ErrorCode.NONE
    assert describe(client).group_state == "Dead"
    assert alone(client).generation == 1, "it begins anew"
