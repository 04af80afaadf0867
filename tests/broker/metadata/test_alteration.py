"""Changes of the settings of several topics in one request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.wire import Client, clients, new_topic

from fencepost.broker.metadata.alteration import alter_each
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AlterConfigsRequest, CreateTopicsRequest, IncrementalAlterConfigsRequest
from fencepost.protocol.messages import alter_configs as whole
from fencepost.protocol.messages import incremental_alter_configs as single
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.steps import Pace

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


@pytest.mark.parametrize("only_tried", [False, True])
def test_others_are_served_between_one_change_and_the_next(only_tried: bool) -> None:
    """For each is synced; what is only tried is not."""
    changed = list[str]()

    names = [f"t{number}" for number in range(1000)]
    found = {name: SimpleNamespace(name=name, settings={}) for name in names}
    topics = SimpleNamespace(by_name=found, change_settings=lambda topic, _: changed.append(topic.name))
    context: Any = SimpleNamespace(may=lambda *_: True)
    node: Any = SimpleNamespace(topics=topics)
    resources = [altered(name, "1000", is_whole=False) for name in names]
    steps = alter_each(resources, lambda *_: {"retention.ms": "1000"}, only_tried, context, node, Pace())
    times = 0
    for times, _ in enumerate(steps, 1):
        assert len(changed) == (0 if only_tried else times)
    assert changed == ([] if only_tried else names)
    assert times == len(changed) or (only_tried and 0 < times < 20)
