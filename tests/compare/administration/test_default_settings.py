"""The page of settings says the truth about defaults: ours are Apache Kafka's, but for those that it lists."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from benchmarks.apache_kafka import apache_kafka
from tests.compare.nodes.connection import Connection
from tests.compare.nodes.two_nodes import skipped_without_kafka

from fencepost.broker.metadata.setting_docs import OTHER_DEFAULTS
from fencepost.broker.metadata.settings import BROKER, IN_OTHER_UNITS, Value
from fencepost.protocol.messages import DescribeConfigsRequest
from fencepost.protocol.messages.describe_configs import DescribeConfigsResource

pytestmark = pytest.mark.compare

BROKER_RESOURCE, DEFAULT = 4, 5
#: What a node of Apache Kafka is always given, so that it names no default of its own.
GIVEN = {"node.id"}


def defaults(bootstrap: str) -> dict[str, str | None]:
    """Setting -> its default, as the node says itself."""
    node = Connection(bootstrap)
    resource = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name="0", configuration_keys=None)
    (told,) = node.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4).results
    node.hang_up()
    found: dict[str, str | None] = {}
    for config in told.configs:
        values = [synonym.value for synonym in config.synonyms if synonym.source == DEFAULT]
        found[config.name] = values[-1] if values else config.value
    return found


def in_milliseconds(name: str, known: Mapping[str, str | None]) -> str | None:
    """What a default in another unit comes to, where the setting in milliseconds has none."""
    for other, finest, unit in IN_OTHER_UNITS:
        value = known.get(other)
        if finest == name and value is not None:
            return str(int(value) * unit)
    return None


def same(ours: Value, theirs: str) -> bool:
    if isinstance(ours, bool):
        return theirs == str(ours).lower()
    return theirs == ours if isinstance(ours, str) else type(ours)(theirs) == ours


def test_every_default_is_apache_kafkas_or_said_to_be_ours() -> None:
    with skipped_without_kafka(), apache_kafka({}) as (kafka, _):
        known = defaults(kafka)
    said: dict[str, str | None] = {}
    for name, setting in BROKER.items():
        if name in GIVEN:
            continue
        theirs = known.get(name)
        if theirs is None:
            theirs = in_milliseconds(name, known)
        if theirs is None or not same(setting.default, theirs):
            said[name] = theirs
    assert said == OTHER_DEFAULTS
