"""Who may change and see what: of each request the one right that it takes, and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.broker.group_talk import commit, committed_offset
from tests.broker.test_access_lists import EVERYTHING, creation
from tests.broker.test_authorizer import CLUSTER, GROUP, NO_CLUSTER, NO_GROUP, NO_TOPIC, TOPIC, Scene, scene

from fencepost.broker.authorizer import Operation, Resource
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AlterConfigsRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    DeleteAclsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    ElectLeadersRequest,
    HeartbeatRequest,
    IncrementalAlterConfigsRequest,
    LeaveGroupRequest,
    ListPartitionReassignmentsRequest,
    ListTransactionsRequest,
    OffsetDeleteRequest,
    OffsetForLeaderEpochRequest,
)
from fencepost.protocol.messages.alter_configs import AlterConfigsResource as Replaced
from fencepost.protocol.messages.create_partitions import CreatePartitionsTopic
from fencepost.protocol.messages.delete_acls import DeleteAclsFilter
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.describe_configs import DescribeConfigsResource
from fencepost.protocol.messages.describe_producers import TopicRequest
from fencepost.protocol.messages.incremental_alter_configs import AlterConfigsResource as Changed
from fencepost.protocol.messages.leave_group import MemberIdentity
from fencepost.protocol.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from fencepost.protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic

__all__ = ["scene"]

TOPIC_CONFIG, BROKER_CONFIG = 2, 4


def grow(scene: Scene) -> Any:
    wanted = CreatePartitionsTopic(name=scene.topic, count=2)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=False)
    return scene.client.ask(request).results[0].error_code


def delete_records(scene: Scene) -> Any:
    wanted = DeleteRecordsTopic(name=scene.topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
    return scene.client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000)).topics[0].partitions[0].error_code


def describe(kind: int) -> Callable[[Scene], Any]:
    def ask(scene: Scene) -> Any:
        name = scene.topic if kind == TOPIC_CONFIG else "1"
        asked = DescribeConfigsResource(resource_type=kind, resource_name=name)
        return scene.client.ask(DescribeConfigsRequest(resources=[asked])).results[0].error_code

    return ask


def change(scene: Scene) -> Any:
    wanted = Changed(resource_type=TOPIC_CONFIG, resource_name=scene.topic, configs=[])
    request = IncrementalAlterConfigsRequest(resources=[wanted], validate_only=False)
    return scene.client.ask(request).responses[0].error_code


def replace(scene: Scene) -> Any:
    wanted = Replaced(resource_type=TOPIC_CONFIG, resource_name=scene.topic, configs=[])
    return scene.client.ask(AlterConfigsRequest(resources=[wanted], validate_only=False)).responses[0].error_code


def producers(scene: Scene) -> Any:
    asked = TopicRequest(name=scene.topic, partition_indexes=[0])
    return scene.client.ask(DescribeProducersRequest(topics=[asked])).topics[0].partitions[0].error_code


def epochs(scene: Scene) -> Any:
    asked = OffsetForLeaderTopic(topic=scene.topic, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
    return scene.client.ask(OffsetForLeaderEpochRequest(topics=[asked])).topics[0].partitions[0].error_code


def delete_offset(scene: Scene) -> Any:
    """The error of the request, or else of the partition."""
    wanted = OffsetDeleteRequestTopic(name=scene.topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    answer = scene.client.ask(OffsetDeleteRequest(group_id="g", topics=[wanted]))
    return answer.error_code or answer.topics[0].partitions[0].error_code


def delete_group(scene: Scene) -> Any:
    return scene.client.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code


def describe_group(scene: Scene) -> Any:
    return scene.client.ask(DescribeGroupsRequest(groups=["g"])).groups[0].error_code


def heartbeat(scene: Scene) -> Any:
    return scene.client.ask(HeartbeatRequest(group_id="g", generation_id=0, member_id="m")).error_code


def leave(scene: Scene) -> Any:
    return scene.client.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])).error_code


def access_lists(scene: Scene) -> Any:
    return scene.client.ask(DescribeAclsRequest(**EVERYTHING)).error_code


def make_access_list(scene: Scene) -> Any:
    (made,) = scene.client.ask(CreateAclsRequest(creations=[creation(scene.topic)])).results
    return made.error_code


def remove_access_lists(scene: Scene) -> Any:
    (removed,) = scene.client.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERYTHING)])).filter_results
    return removed.error_code


def quotas(scene: Scene) -> Any:
    return scene.client.ask(DescribeClientQuotasRequest(components=[], strict=False)).error_code


def electing(scene: Scene) -> Any:
    return scene.client.ask(ElectLeadersRequest(topic_partitions=[])).error_code


def moving(scene: Scene) -> Any:
    return scene.client.ask(ListPartitionReassignmentsRequest()).error_code


CASES: Final[dict[str, tuple[Resource, Operation, Callable[[Scene], Any], ErrorCode]]] = {
    "CreatePartitions": (TOPIC, Operation.ALTER, grow, NO_TOPIC),
    "DeleteRecords": (TOPIC, Operation.DELETE, delete_records, NO_TOPIC),
    "DescribeConfigs of a topic": (TOPIC, Operation.DESCRIBE_CONFIGS, describe(TOPIC_CONFIG), NO_TOPIC),
    "DescribeConfigs of a broker": (CLUSTER, Operation.DESCRIBE_CONFIGS, describe(BROKER_CONFIG), NO_CLUSTER),
    "IncrementalAlterConfigs": (TOPIC, Operation.ALTER_CONFIGS, change, NO_TOPIC),
    "AlterConfigs": (TOPIC, Operation.ALTER_CONFIGS, replace, NO_TOPIC),
    "DescribeAcls": (CLUSTER, Operation.DESCRIBE, access_lists, NO_CLUSTER),
    "CreateAcls": (CLUSTER, Operation.ALTER, make_access_list, NO_CLUSTER),
    "DeleteAcls": (CLUSTER, Operation.ALTER, remove_access_lists, NO_CLUSTER),
    "DescribeClientQuotas": (CLUSTER, Operation.DESCRIBE_CONFIGS, quotas, NO_CLUSTER),
    "ElectLeaders": (CLUSTER, Operation.ALTER, electing, NO_CLUSTER),
    "ListPartitionReassignments": (CLUSTER, Operation.DESCRIBE, moving, NO_CLUSTER),
    "DescribeProducers": (TOPIC, Operation.READ, producers, NO_TOPIC),
    "OffsetForLeaderEpoch": (TOPIC, Operation.DESCRIBE, epochs, NO_TOPIC),
    "OffsetDelete of a group": (GROUP, Operation.DELETE, delete_offset, NO_GROUP),
    "OffsetDelete of a topic": (TOPIC, Operation.READ, delete_offset, NO_TOPIC),
    "DeleteGroups": (GROUP, Operation.DELETE, delete_group, NO_GROUP),
    "DescribeGroups": (GROUP, Operation.DESCRIBE, describe_group, NO_GROUP),
    "Heartbeat": (GROUP, Operation.READ, heartbeat, NO_GROUP),
    "LeaveGroup": (GROUP, Operation.READ, leave, NO_GROUP),
}


@pytest.mark.parametrize("name", CASES)
def test_one_right_is_needed_and_is_enough(scene: Scene, name: str) -> None:
    resource, operation, ask, error = CASES[name]
    assert commit(scene.client, scene.topic, 1) == [0]
    scene.deny(resource, operation)
    assert ask(scene) == error
    scene.deny(resource, *[other for other in Operation if other is not operation])
    assert ask(scene) != error


@pytest.mark.parametrize("pattern", [None, "", "t", ".*"])
def test_transactions_are_listed_for_who_may_see_each_of_them(scene: Scene, pattern: str | None) -> None:
    def listed() -> list[str]:
        request = ListTransactionsRequest(
            state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern=pattern
        )
        return [each.transactional_id for each in scene.client.ask(request).transaction_states]

    shown = listed()
    assert "t" in shown
    scene.deny(Resource.TRANSACTIONAL_ID, Operation.DESCRIBE)
    scene.denies.only = "t"
    assert listed() == [name for name in shown if name != "t"]


def test_what_may_not_be_read_keeps_its_offset(scene: Scene) -> None:
    assert commit(scene.client, scene.topic, 1) == [0]
    scene.deny(TOPIC, Operation.READ)
    assert delete_offset(scene) == NO_TOPIC
    scene.denies.denied = set()
    assert committed_offset(scene.client, scene.topic) == (1, 0)


def test_who_may_not_is_told_the_same_of_a_topic_that_is_not_there(scene: Scene) -> None:
    """Else anybody could find out which topics there are."""
    assert commit(scene.client, scene.topic, 1) == [0]
    scene.deny(TOPIC)
    scene.topic = "absent"
    for name, (resource, _, ask, error) in CASES.items():
        if resource is TOPIC:
            assert ask(scene) == error, name
