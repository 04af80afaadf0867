"""Requests about access lists, over the wire: a node keeps none, and says it as Apache Kafka without an authorizer."""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.broker.wire import Client, clients

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from fencepost.protocol.messages.create_acls import AclCreation
from fencepost.protocol.messages.delete_acls import DeleteAclsFilter

client = clients()

ANY, TOPIC, LITERAL, READ, ALLOW = 1, 2, 3, 3, 3
EVERYTHING: Final[dict[str, Any]] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}


def creation(name: str) -> AclCreation:
    return AclCreation(
        resource_type=TOPIC,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal="User:alice",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_who_asks_for_access_lists_is_told_that_there_are_none_to_be_had(client: Client, version: int) -> None:
    told = client.ask(DescribeAclsRequest(**EVERYTHING), version)
    assert (told.error_code, told.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert "access lists" in told.error_message


@pytest.mark.parametrize("count", [0, 1, 3, 5000])
def test_each_access_list_to_be_made_or_removed_is_refused(client: Client, count: int) -> None:
    made = client.ask(CreateAclsRequest(creations=[creation(f"t{number}") for number in range(count)]))
    assert [each.error_code for each in made.results] == [ErrorCode.SECURITY_DISABLED] * count
    removed = client.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERYTHING)] * count))
    results = [(each.error_code, each.matching_acls) for each in removed.filter_results]
    assert results == [(ErrorCode.SECURITY_DISABLED, [])] * count
