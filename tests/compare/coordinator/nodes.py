"""Make both nodes ready: the level, the topics, the coordinators."""

from __future__ import annotations

import time

from tests.compare.coordinator.differential import Node
from tests.compare.coordinator.twins import Twins
from tests.compare.coordinator.walks import TOPICS

from fencepost.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    FindCoordinatorRequest,
    UpdateFeaturesRequest,
)
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.update_features import FeatureUpdateKey

#: What both nodes are started with.
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
}
_UNSAFE_DOWNGRADE, _UPGRADE = 3, 1


def set_level(twins: Twins, level: int) -> None:
    """Finalize transaction.version on both, and remember it."""
    for node in (twins.kafka, twins.ours):
        for kind in (_UPGRADE, _UNSAFE_DOWNGRADE):
            key = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=kind)
            node.ask(UpdateFeaturesRequest(feature_updates=[key]), 1)
        while _level(node) != level:
            time.sleep(0.002)
    twins.level = level


def _level(node: Node) -> int:
    answer = node.ask(ApiVersionsRequest(client_software_name="twins", client_software_version="1"), 4)
    found = [one.max_version_level for one in answer.finalized_features if one.name == "transaction.version"]
    return found[0] if found else 0


def prepare(twins: Twins) -> None:
    """Topics, internal topics, and the level."""
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
        for name, count in TOPICS.items()
    ]
    for node in (twins.kafka, twins.ours):
        node.ask(CreateTopicsRequest(topics=topics), 5)
        for kind in (0, 1):
            end = time.monotonic() + 30
            while time.monotonic() < end:
                asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"])
                if node.ask(asked, 4).coordinators[0].error_code == 0:
                    break
                time.sleep(0.1)
    set_level(twins, twins.level)
