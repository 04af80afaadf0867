"""Settings are told by Apache Kafka's names for sources and types, also by a broker that has newer ones."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.admin.nodes import Nodes, play

from fencepost.client import ConfigChange
from fencepost.protocol.messages import (
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from fencepost.protocol.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsResult
from fencepost.protocol.messages.incremental_alter_configs import AlterConfigsResourceResponse

#: Ids on the wire: of org.apache.kafka.clients.admin.ConfigEntry.ConfigSource, and of its ConfigType.
SOURCES = {0: "UNKNOWN", 1: "DYNAMIC_TOPIC_CONFIG", 4: "STATIC_BROKER_CONFIG", 5: "DEFAULT_CONFIG"}
TYPES = {0: "UNKNOWN", 1: "BOOLEAN", 2: "STRING", 3: "INT", 5: "LONG", 7: "LIST", 9: "PASSWORD"}
NEWER = dict.fromkeys((-1, 99, 127), "UNKNOWN")


def test_sources_and_types_have_their_names_and_newer_ones_are_said_not_to_be_known() -> None:
    expected = {
        f"{source} {kind}": (SOURCES | NEWER)[source] + " " + (TYPES | NEWER)[kind]
        for source in SOURCES | NEWER
        for kind in TYPES | NEWER
    }
    entries = []
    for name in expected:
        source, kind = map(int, name.split())
        how: dict[str, Any] = {"value": "1", "read_only": False, "is_sensitive": False, "synonyms": []}
        entries.append(DescribeConfigsResourceResult(name=name, config_source=source, config_type=kind, **how))
    result = DescribeConfigsResult(error_code=0, resource_type=2, resource_name="t", configs=entries)

    async def scenario(nodes: Nodes) -> None:
        nodes.answer = lambda *_: DescribeConfigsResponse(results=[result])
        async with nodes.admin() as admin:
            found = (await admin.describe_topic_configs(["t"]))["t"]
        assert {name: f"{entry.source} {entry.type}" for name, entry in found.items()} == expected

    play(scenario)


@pytest.mark.parametrize(("broker", "name"), [(0, "0"), (2, "2"), (None, "")])
def test_settings_of_one_broker_are_changed_or_of_all_where_none_is_named(broker: int | None, name: str) -> None:
    answered = AlterConfigsResourceResponse(error_code=0, error_message=None, resource_type=4, resource_name=name)

    async def scenario(nodes: Nodes) -> None:
        nodes.answer = lambda *_: IncrementalAlterConfigsResponse(responses=[answered])
        async with nodes.admin() as admin:
            await admin.alter_broker_config(broker, ConfigChange(set={"log.retention.ms": "5"}))
        ((_, request),) = nodes.requests(IncrementalAlterConfigsRequest)
        assert [(each.resource_type, each.resource_name) for each in request.resources] == [(4, name)]

    play(scenario)
