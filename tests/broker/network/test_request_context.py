"""What a caller may do, as his request is answered where it asks for that (KIP-430)."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.authorizer import TOLD_OPERATIONS, Operation, Resource
from fencepost.broker.network.request_context import Peer, RequestContext


class Only:
    """Allows one operation on one thing."""

    def __init__(self, operation: Operation, resource: Resource, name: str) -> None:
        self._allowed = ("User:ANONYMOUS", "/host", operation, resource, name)

    def allows(self, *asked: object) -> bool:
        return asked == self._allowed


@pytest.mark.parametrize(
    ("resource", "operation"), [(resource, each) for resource, told in TOLD_OPERATIONS.items() for each in told]
)
def test_the_operations_that_the_caller_may_do_are_told_and_no_others(resource: Resource, operation: Operation) -> None:
    authorizer: Any = Only(operation, resource, "name")
    context = RequestContext(Peer(authorizer, "/host"), 0, "client")
    assert context.authorized_operations(resource, "name") == 1 << operation.value
    assert context.authorized_operations(resource, "another") == 0
