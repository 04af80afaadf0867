"""Who may be an idempotent producer: whoever may be so in the cluster, or may write to any topic (facts §2.2)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from wire import Client, init_answer, new_topic, serving

from fencepost.broker.authorizer import Operation, Resource
from fencepost.protocol.errors import ErrorCode


class MayOnly:
    """Allows to make topics, and what it is told."""

    def __init__(self, *allowed: tuple[Operation, Resource]) -> None:
        self.allowed = (*allowed, (Operation.CREATE, Resource.TOPIC))

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:  # noqa: ARG002
        return (operation, resource) in self.allowed


@pytest.mark.parametrize(
    ("allowed", "error"),
    [
        ((), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (((Operation.WRITE, Resource.TRANSACTIONAL_ID),), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (((Operation.IDEMPOTENT_WRITE, Resource.CLUSTER),), ErrorCode.NONE),
        (((Operation.WRITE, Resource.TOPIC),), ErrorCode.NONE),
    ],
)
def test_who_may_have_a_producer_id(allowed: tuple[tuple[Operation, Resource], ...], error: ErrorCode) -> None:
    with serving(MayOnly(*allowed)) as broker:
        client = Client(broker)
        new_topic(client)
        assert init_answer(client, None).error_code == error
        client.close()
