"""Changes of the settings of several topics in one request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.metadata.test_together import Counted
from tests.broker.metadata.test_topic_lifecycle import Node
from tests.broker.wire import Client, clients, new_topic
from tests.log.log_doubles import run

from fencepost.broker.metadata.alteration import Outcome, alter_each
from fencepost.broker.metadata.together import TOGETHER
from fencepost.broker.metadata.topic import PREFIX, NewTopic, stored_topic
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AlterConfigsRequest, CreateTopicsRequest, IncrementalAlterConfigsRequest
from fencepost.protocol.messages import alter_configs as whole
from fencepost.protocol.messages import incremental_alter_configs as single
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.steps import Pace, Steps, finish
from fencepost.runtime import at_once

client = clients()
SET = 0


def altered(name: str, value: str, is_whole: bool, kind: int = 2) -> Any:
    if is_whole:
        configs = [whole.AlterableConfig(name="retention.ms", value=value)]
        return whole.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    operations = [single.AlterableConfig(name="retention.ms", config_operation=SET, value=value)]
    return single.AlterConfigsResource(resource_type=kind, resource_name=name, configs=operations)


@pytest.mark.parametrize("is_whole", [False, True])
def test_of_a_topic_that_is_named_twice_nothing_is_changed(client: Client, is_whole: bool) -> None:
    """Nobody can say which of the two is meant."""
    twice, once = new_topic(client), new_topic(client)
    request = AlterConfigsRequest if is_whole else IncrementalAlterConfigsRequest
    resources = [altered(name, value, is_whole) for name, value in ((twice, "1000"), (once, "2000"), (twice, "3000"))]
    answers = client.ask(request(resources=resources, validate_only=False)).responses
    assert [(each.resource_name, each.error_code) for each in answers] == [
        (twice, ErrorCode.INVALID_REQUEST),
        (once, ErrorCode.NONE),
        (twice, ErrorCode.INVALID_REQUEST),
    ]
    topics = client.broker.node.topics.by_name
    assert (topics[twice].settings, topics[once].settings) == ({}, {"retention.ms": "2000"})


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_topic_that_is_called_as_the_broker_is_another_resource(client: Client, is_whole: bool) -> None:
    wanted = CreatableTopic(name="0", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    assert client.ask(CreateTopicsRequest(topics=[wanted])).topics[0].error_code == ErrorCode.NONE
    request = AlterConfigsRequest if is_whole else IncrementalAlterConfigsRequest
    resources = [altered("0", "1000", is_whole, kind) for kind in (2, 4)]
    answers = client.ask(request(resources=resources, validate_only=False)).responses
    assert [(each.resource_type, each.error_code) for each in answers] == [
        (2, ErrorCode.NONE),
        (4, ErrorCode.INVALID_REQUEST),
    ]
    assert "while the broker runs" in answers[1].error_message
    assert client.broker.node.topics.by_name["0"].settings == {"retention.ms": "1000"}


async def node_with(names: Sequence[str]) -> Any:
    node = Node(1)
    for first in range(0, len(names), TOGETHER):
        wanted = [NewTopic(name, 1, {}) for name in names[first : first + TOGETHER]]
        await node.topics.create_together(wanted, node.slices)
    return node


def alteration(node: Any, names: Sequence[str], only_tried: bool = False) -> Steps[list[tuple[Any, Outcome]]]:
    resources = [altered(name, "1000", is_whole=False) for name in names]
    context: Any = SimpleNamespace(may=lambda *_: True)
    return alter_each(resources, lambda *_: {"retention.ms": "1000"}, only_tried, context, node, Pace())


def stored(node: Any) -> list[Mapping[str, str]]:
    return [stored_topic(*item).settings for item in node.store.list(PREFIX).items()]


@pytest.mark.parametrize("only_tried", [False, True])
def test_settings_of_many_topics_are_written_together_and_others_served_between_the_writes(only_tried: bool) -> None:
    """Everybody waits for the disk at each write."""

    async def main() -> None:
        names = [f"t{number}" for number in range(250)]
        node = await node_with(names)
        store = node.topics._store = Counted(node.store, 1000)
        written = [store.writes for _ in alteration(node, names, only_tried)]
        assert store.writes == (0 if only_tried else 3)
        assert only_tried or written == [1, 2, 3]
        kept: dict[str, str] = {} if only_tried else {"retention.ms": "1000"}
        topics = [node.topics.by_name[name] for name in names]
        assert [each.settings for each in topics] == stored(node) == [kept] * 250
        assert all((each.partitions[0].settings.retention_ms == 1000) is not only_tried for each in topics)

    run(main())


def test_of_topics_changed_together_one_that_cannot_be_written_is_refused_alone() -> None:
    async def main() -> None:
        names = ["a", "full", "b", "c"]
        node = await node_with(names)
        node.topics._store = Counted(node.store, 1000)
        outcomes = {resource.resource_name: outcome[0] for resource, outcome in finish(alteration(node, names))}
        assert outcomes == {name: ErrorCode.KAFKA_STORAGE_ERROR if name == "full" else ErrorCode.NONE for name in names}
        assert {name: node.topics.by_name[name].settings for name in names} == {
            name: {} if name == "full" else {"retention.ms": "1000"} for name in names
        }

    run(main())


def test_what_another_one_changes_between_two_writes_is_not_lost() -> None:
    """Who changes single settings has looked at those that were there before."""

    async def main() -> None:
        node = await node_with(["full", "other"])
        node.topics._store = Counted(node.store, 1000)
        steps = alteration(node, ["full", "other"])
        next(steps)
        other = node.topics.by_name["other"]
        assert not at_once(node.topics.change_together({other: {"retention.bytes": "7"}}))
        outcomes = [outcome[0] for _, outcome in finish(steps)]
        assert outcomes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CONCURRENT_TRANSACTIONS]
        assert other.settings == {"retention.bytes": "7"}

    run(main())


def test_a_step_is_no_longer_where_each_topic_is_given_many_settings() -> None:
    async def main() -> None:
        names = [f"t{number}" for number in range(100)]
        node = await node_with(names)
        store = node.topics._store = Counted(node.store, 1000)
        resources = [altered(name, "1000", is_whole=False) for name in names]
        for resource in resources:
            resource.configs *= 100
        context: Any = SimpleNamespace(may=lambda *_: True)
        steps = alter_each(resources, lambda *_: {"retention.ms": "1"}, False, context, node, Pace())
        assert len(list(steps)) == store.writes == 25

    run(main())
