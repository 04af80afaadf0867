"""Consumer groups: listed, described with their members, deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from fencepost.client.admin.asking import ItemResult, Question, ask, ask_each_broker, refusal
from fencepost.client.admin.routes import Coordinators
from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.errors import BrokerError, PartlyRefusedError, UnsupportedByBrokerError
from fencepost.client.group_protocol import partitions_of
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.messages import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from fencepost.protocol.messages.find_coordinator import GROUP
from fencepost.protocol.types import TopicPartition

#: Before version 6 a group that is not there is described as one in this state.
_DEAD: Final = "Dead"
_CONSUMER: Final = "consumer"
_STATES_SINCE: Final = 4
_TYPES_SINCE: Final = 5


class GroupListing(NamedTuple):
    """A group, with Apache Kafka's names for states and types; empty where an older broker does not tell."""

    group_id: str
    state: str
    protocol_type: str
    """"consumer", unless its members are something else, as Kafka Connect's workers."""
    type: str
    """The type of its protocol: "classic", or "consumer" for the one of KIP-848."""


class MemberDescription(NamedTuple):
    """A member of a group.  `partitions`: its assignment.  `group_instance_id`: None unless it is a static member."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]


class GroupDescription(NamedTuple):
    """A group, as its coordinator knows it.  `assignor`: what shares its partitions out; empty while none is chosen."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: list[MemberDescription]


async def list_groups(
    cluster: Cluster, states: Sequence[str], types: Sequence[str], deadline: Deadline
) -> dict[str, GroupListing]:
    """The groups that all brokers list, by id.  `states` and `types`: only these; all if there are none."""

    def read(answer: Any, asked: Sequence[int]) -> Iterator[ItemResult[int, list[GroupListing]]]:
        found = [
            GroupListing(group.group_id, group.group_state, group.protocol_type, group.group_type)
            for group in answer.groups
        ]
        yield ItemResult(asked[0], answer.error_code, None, found)

    least = _TYPES_SINCE if types else _STATES_SINCE if states else 0
    by_node = await ask_each_broker(
        cluster,
        Question(
            request=lambda _: ListGroupsRequest(states_filter=list(states), types_filter=list(types)),
            read=read,
            refused=lambda node: f"broker {node} does not list its groups",
            least=least,
        ),
        deadline,
    )
    return {group.group_id: group for group in sorted(group for found in by_node.values() for group in found)}


async def describe_groups(cluster: Cluster, groups: Iterable[str], deadline: Deadline) -> dict[str, GroupDescription]:
    """The groups as their coordinators describe them, by id.  Raises BrokerError, PartlyRefusedError.

    One that a coordinator does not know as a classic group is asked for as one of the new protocol (KIP-848); brokers
    before that have none.
    """
    wanted = list(dict.fromkeys(groups))
    found, refused = await _described(cluster, wanted, _AS_CLASSIC, deadline)
    others = [group for group, error in refused.items() if error.code == ErrorCode.GROUP_ID_NOT_FOUND]
    if others:
        with suppress(UnsupportedByBrokerError):
            more, refused_too = await _described(cluster, others, _AS_CONSUMER, deadline)
            found |= more
            refused = {group: error for group, error in refused.items() if group not in more} | refused_too
    if refused:
        raise refusal(refused, found)
    return {group: found[group] for group in wanted}


async def _described(
    cluster: Cluster, groups: Sequence[str], question: Question[str, GroupDescription], deadline: Deadline
) -> tuple[dict[str, GroupDescription], dict[str, BrokerError]]:
    """The descriptions by group id, and by group id the errors of the groups that were refused."""
    try:
        return await ask(cluster, groups, Coordinators(cluster, GROUP), question, deadline), {}
    except PartlyRefusedError as error:
        return dict(error.done), dict(error.refused)
    except BrokerError as error:
        return {}, {groups[0]: error}


def _read_classic(answer: Any, _: object) -> Iterator[ItemResult[str, GroupDescription]]:
    for group in answer.groups:
        gone = not group.error_code and group.group_state == _DEAD
        error = ErrorCode.GROUP_ID_NOT_FOUND if gone else group.error_code
        yield ItemResult(group.group_id, error, group.error_message, _description(group))


def _read_consumer(answer: Any, _: object) -> Iterator[ItemResult[str, GroupDescription]]:
    for group in answer.groups:
        members = [
            MemberDescription(
                *(member.member_id, member.instance_id, member.client_id, member.client_host),
                sorted(
                    TopicPartition(topic.topic_name, number)
                    for topic in member.assignment.topic_partitions
                    for number in topic.partitions
                ),
            )
            for member in group.members
        ]
        described = GroupDescription(
            group.group_id, group.group_state, _CONSUMER, group.assignor_name, sorted(members, key=_member_id)
        )
        yield ItemResult(group.group_id, group.error_code, group.error_message, described)


def _refused(group: str) -> str:
    return f"group {group!r} cannot be described"


_AS_CLASSIC: Final[Question[str, GroupDescription]] = Question(
    request=lambda asked: DescribeGroupsRequest(groups=list(asked)), read=_read_classic, refused=_refused
)
_AS_CONSUMER: Final[Question[str, GroupDescription]] = Question(
    request=lambda asked: ConsumerGroupDescribeRequest(group_ids=list(asked)), read=_read_consumer, refused=_refused
)


def _description(group: Any) -> GroupDescription:
    members = [
        MemberDescription(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _partitions(member.member_assignment) if group.protocol_type == _CONSUMER else [],
        )
        for member in group.members
    ]
    return GroupDescription(
        group.group_id, group.group_state, group.protocol_type, group.protocol_data, sorted(members, key=_member_id)
    )


def _member_id(member: MemberDescription) -> str:
    return member.member_id


def _partitions(assignment: bytes) -> list[TopicPartition]:
    """The partitions of an assignment, sorted.  None of bytes that are not those of Apache Kafka's ConsumerProtocol."""
    try:
        return sorted(partitions_of(bytes(assignment)))
    except ProtocolError:
        return []


async def delete_groups(cluster: Cluster, groups: Iterable[str], deadline: Deadline) -> None:
    """Delete groups with their committed offsets; one that has members is refused."""

    def read(answer: Any, _: object) -> Iterator[ItemResult[str, None]]:
        return (ItemResult(group.group_id, group.error_code, None, None) for group in answer.results)

    question = Question(
        request=lambda asked: DeleteGroupsRequest(groups_names=list(asked)),
        read=read,
        refused=lambda group: f"group {group!r} was not deleted",
        once=True,
    )
    await ask(cluster, groups, Coordinators(cluster, GROUP), question, deadline)
