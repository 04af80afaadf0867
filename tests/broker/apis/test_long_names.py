"""A name may be as long as a string can be; what is said of it then has no room beside it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.group_talk import find_group
from tests.broker.wire import Client, clients, new_topic

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AlterConfigsRequest,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    IncrementalAlterConfigsRequest,
    UpdateFeaturesRequest,
)
from fencepost.protocol.messages.alter_configs import AlterableConfig as Altered
from fencepost.protocol.messages.alter_configs import AlterConfigsResource as Configured
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.describe_configs import BROKER_RESOURCE, DescribeConfigsResource
from fencepost.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from fencepost.protocol.messages.update_features import FeatureUpdateKey

client = clients()
LONG = "x" * 32_767
TOPIC = 2


def _topic(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])


@pytest.mark.parametrize("version", range(2, 8))
@pytest.mark.parametrize("name", [LONG, "\u00e9" * 16_383], ids=["ascii", "two bytes each"])
def test_a_topic_whose_name_is_too_long_leaves_the_answers_of_the_others_as_they_are(
    client: Client, version: int, name: str
) -> None:
    request = CreateTopicsRequest(topics=[_topic(f"beside-{version}-{len(name)}"), _topic(name)], timeout_ms=1000)
    made, refused = client.ask(request, version=version).topics
    assert (made.error_code, refused.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert name[:100] in refused.error_message


def test_a_group_with_a_long_id_is_not_found(client: Client) -> None:
    find_group(client, LONG)
    (found,) = client.ask(DescribeGroupsRequest(groups=[LONG]), version=6).groups
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", range(3))
def test_a_feature_with_a_long_name_is_not_supported(client: Client, version: int) -> None:
    update = FeatureUpdateKey(feature=LONG, max_version_level=1)
    answer = client.ask(UpdateFeaturesRequest(feature_updates=[update]), version=version)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize(("key", "value"), [(LONG, "1"), ("cleanup.policy", LONG), ("retention.ms", LONG)])
def test_a_setting_that_is_too_long_is_refused_as_any_other(
    client: Client, incremental: bool, key: str, value: str
) -> None:
    topic = new_topic(client)
    request: Any
    if incremental:
        configs = [AlterableConfig(name=key, config_operation=0, value=value)]
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    else:
        whole = Configured(resource_type=TOPIC, resource_name=topic, configs=[Altered(name=key, value=value)])
        request = AlterConfigsRequest(resources=[whole], validate_only=False)
    (refused,) = client.ask(request).responses
    assert refused.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("version", range(1, 5))
def test_a_broker_with_a_long_name_leaves_what_is_told_of_others_as_it_is(client: Client, version: int) -> None:
    asked = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=["retention.ms"])
        for kind, name in ((TOPIC, new_topic(client)), (BROKER_RESOURCE, LONG))
    ]
    topic, broker = client.ask(DescribeConfigsRequest(resources=asked), version=version).results
    assert (topic.error_code, broker.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
