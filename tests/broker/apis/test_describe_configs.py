"""DescribeConfigs: which resources have a configuration here, and what the others are told (facts §8.3)."""

from __future__ import annotations

import pytest
from tests.broker.wire import Client, clients, new_topic

from fencepost.broker.metadata import settings
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeConfigsRequest
from fencepost.protocol.messages.describe_configs import DescribeConfigsResource

client = clients()
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8


@pytest.mark.parametrize(
    ("kind", "name", "error", "said"),
    [
        (TOPIC, "there", ErrorCode.NONE, None),
        (TOPIC, "not-there", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (TOPIC, "not/legal", ErrorCode.INVALID_TOPIC_EXCEPTION, None),
        (BROKER, "0", ErrorCode.NONE, None),
        (BROKER, "", ErrorCode.NONE, None),
        (BROKER, "2", ErrorCode.INVALID_REQUEST, "this is broker 0, not '2'"),
        (BROKER, "one", ErrorCode.INVALID_REQUEST, "this is broker 0, not 'one'"),
        (BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST, "resources of type 8 have none"),
    ],
)
def test_what_a_resource_is_told(client: Client, kind: int, name: str, error: ErrorCode, said: str | None) -> None:
    name = new_topic(client) if name == "there" else name
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name)
    (found,) = client.ask(DescribeConfigsRequest(resources=[asked])).results
    assert (found.error_code, found.resource_type, found.resource_name) == (error, kind, name)
    assert said is None or said in (found.error_message or "")
    assert bool(found.configs) is (error is ErrorCode.NONE and name != "")


@pytest.mark.parametrize("keys", [["retention.ms", "no.such"], [], None])
def test_only_the_settings_that_are_asked_for_are_told_or_all(client: Client, keys: list[str] | None) -> None:
    asked = DescribeConfigsResource(resource_type=TOPIC, resource_name=new_topic(client), configuration_keys=keys)
    (found,) = client.ask(DescribeConfigsRequest(resources=[asked])).results
    assert {each.name for each in found.configs} == (
        {"retention.ms"} if keys else {*settings.TOPIC, *settings.INERT_TOPIC}
    )


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
def test_where_else_a_value_could_come_from_is_told_if_that_is_asked(client: Client, kind: int) -> None:
    name = new_topic(client) if kind == TOPIC else "0"
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name)
    for synonyms in (False, True):
        (found,) = client.ask(DescribeConfigsRequest(resources=[asked], include_synonyms=synonyms)).results
        assert any(each.synonyms for each in found.configs) is synonyms


def test_all_of_a_resource_is_told_once_and_what_is_asked_for_by_name_each_time(client: Client) -> None:
    """A few bytes that name a resource once more would cost as much as all that is told of it."""
    topic = new_topic(client)
    asked = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in (
            (TOPIC, topic, None),
            (TOPIC, topic, ["retention.ms"]),
            (TOPIC, topic, []),
            (BROKER, "0", None),
            (TOPIC, topic, ["retention.ms"]),
            (BROKER, "0", None),
            (TOPIC, "0", None),
        )
    ]
    results = client.ask(DescribeConfigsRequest(resources=asked)).results
    assert [(each.resource_type, each.resource_name, len(each.configs) == 1) for each in results] == [
        (TOPIC, topic, False),
        (TOPIC, topic, True),
        (BROKER, "0", False),
        (TOPIC, topic, True),
        (TOPIC, "0", False),
    ]
