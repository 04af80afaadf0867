"""One broker for all tests of stock clients."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from fencepost.broker import Broker, running_broker

SETTINGS = {
    "group.initial.rebalance.delay.ms": 100,
    "transaction.state.log.num.partitions": 4,
    "offsets.topic.num.partitions": 4,
    "num.partitions": 2,
}


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with running_broker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def servers(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def name() -> str:
    """A name that no other test uses: for topics, groups and transactional ids."""
    return uuid.uuid4().hex[:12]
