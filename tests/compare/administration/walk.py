"""What an administrator asks of both nodes: topics, their partitions, their settings, the cluster.

Topic ids are named by the order in which they first appear.  What one node has and the other has not (settings that
mean nothing on a single node, addresses, operations that a caller may do) is left out of the comparison.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tests.compare.nodes.plain import Met
from tests.compare.nodes.twins import Explanation, Twins
from tests.compare.nodes.two_nodes import TwoNodes

from fencepost.protocol.messages import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
)
from fencepost.protocol.messages.alter_configs import AlterableConfig, AlterConfigsResource
from fencepost.protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.describe_configs import DescribeConfigsResource
from fencepost.protocol.messages.incremental_alter_configs import AlterableConfig as Change
from fencepost.protocol.messages.incremental_alter_configs import AlterConfigsResource as Changes
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.types import ZERO_UUID

TOPIC, BROKER = 2, 4
UNKNOWN = uuid.UUID(int=7)
NAMED = uuid.UUID("00000000-0000-4000-8000-000000000000").int
"""Ids of this number and a little more stand for the topics that were met, in their order."""
_LATER = ("brokers", "cluster_id", "controller_id", "node_id")
_TIERED = ("remote.", "local.", "min.insync.replicas")
"""Settings of what a single node with one copy does not have."""
_MUTE_AFTER = 6.0
"""Seconds: Apache Kafka takes two or three for what changes nothing."""

Setting = tuple[str, str | None]


def known(number: int) -> uuid.UUID:
    """The id of the topic that was met as the `number`th."""
    return uuid.UUID(int=NAMED + number)


class Administered(Twins):
    """Both nodes; topic ids have names."""

    def __init__(self, nodes: TwoNodes, explanations: Mapping[Explanation, Collection[int]]) -> None:
        super().__init__(nodes, 2, explanations)
        self.kafka.patience = _MUTE_AFTER
        self._topic_ids: tuple[Met[uuid.UUID], Met[uuid.UUID]] = Met(), Met()

    def real(self, value: Any, side: int) -> Any:
        if isinstance(value, uuid.UUID):
            return self._topic_ids[side].real(value.int - NAMED, value)
        return super().real(value, side)

    def heard(self, value: Any, side: int) -> Any:
        if isinstance(value, uuid.UUID) and value not in (ZERO_UUID, UNKNOWN):
            return f"topic {self._topic_ids[side].number(value)}"
        told = super().heard(value, side)
        if isinstance(told, dict):
            for name in _LATER:
                told.pop(name, None)
            if told.get("configs"):
                told["configs"] = self._settings(told["configs"])
            if told.get("configs") == []:
                del told["configs"]
            if "responses" in told:
                told["responses"].sort(key=lambda one: (str(one.get("name")), str(one.get("resource_name"))))
            for text in ("error_message", "documentation"):
                told.pop(text, None)
        return told

    def _settings(self, entries: list[Any]) -> list[Any]:
        kept = [entry for entry in entries if not str(entry["name"]).startswith(_TIERED)]
        return sorted(kept, key=lambda entry: str(entry["name"]))

    def settled(self, name: str) -> Any:
        """What both say of a topic in the end."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        return self.agreed(request, 12)


def topic(
    name: str,
    count: int = 1,
    replication_factor: int = 1,
    assigned: Sequence[tuple[int, Sequence[int]]] = (),
    settings: Sequence[Setting] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=replication_factor,
        assignments=[CreatableReplicaAssignment(partition_index=at, broker_ids=list(ids)) for at, ids in assigned],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings],
    )


def create(*topics: CreatableTopic, only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=30_000, validate_only=only)


def grow(
    name: str, count: int, assigned: Sequence[Sequence[int]] | None = None, only: bool = False, times: int = 1
) -> CreatePartitionsRequest:
    assignments = None if assigned is None else [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assigned]
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    return CreatePartitionsRequest(topics=[wanted] * times, timeout_ms=30_000, validate_only=only)


def delete(*names: str | None, version: int, ids: Sequence[uuid.UUID] = ()) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=[name or "" for name in names], timeout_ms=30_000)
    topics = [DeleteTopicState(name=name) for name in names] + [DeleteTopicState(topic_id=one) for one in ids]
    return DeleteTopicsRequest(topics=topics, timeout_ms=30_000)


def describe(kind: int, name: str, keys: Sequence[str] | None = None, synonyms: bool = False) -> DescribeConfigsRequest:
    wanted = None if keys is None else list(keys)
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=wanted)
    return DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)


def replace(kind: int, name: str, *settings: Setting, only: bool = False, times: int = 1) -> AlterConfigsRequest:
    given = [AlterableConfig(name=key, value=value) for key, value in settings]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=given)
    return AlterConfigsRequest(resources=[resource] * times, validate_only=only)


def change(
    kind: int, name: str, *changes: tuple[str, int, str | None], only: bool = False, times: int = 1
) -> IncrementalAlterConfigsRequest:
    given = [Change(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = Changes(resource_type=kind, resource_name=name, configs=given)
    return IncrementalAlterConfigsRequest(resources=[resource] * times, validate_only=only)


Case = tuple[str, Callable[[], object]]
