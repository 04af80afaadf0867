"""The configuration of topics and brokers: described, and changed one setting at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fencepost.client.admin.asking import FINAL_OF_CONTROLLERS, ItemResult, Question, ask
from fencepost.client.admin.routes import AnyBroker, Brokers, Route
from fencepost.client.cluster import Cluster, Deadline
from fencepost.protocol.messages import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from fencepost.protocol.messages.describe_configs import BROKER_RESOURCE, TOPIC_RESOURCE, DescribeConfigsResource
from fencepost.protocol.messages.incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterableConfig,
    AlterConfigsResource,
)

_SOURCES: Final = (
    *("UNKNOWN", "DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    *("STATIC_BROKER_CONFIG", "DEFAULT_CONFIG", "DYNAMIC_BROKER_LOGGER_CONFIG", "DYNAMIC_CLIENT_METRICS_CONFIG"),
    "DYNAMIC_GROUP_CONFIG",
)
_TYPES: Final = (*("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"),)


class ConfigSynonym(NamedTuple):
    """A value that a setting can have, and its source.  Of the synonyms of a setting the first is its value."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """One setting, with Apache Kafka's names for sources and types.

    `value` is None where the broker keeps it to itself (`is_sensitive`), or there is none.
    """

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool
    type: str
    synonyms: list[ConfigSynonym]


class ConfigChange(NamedTuple):
    """A change of single settings; the others stay.

    `set`: new values.  `delete`: back to the default.  `append` and `subtract`: items of lists, with commas between.
    """

    set: Mapping[str, str] = {}
    delete: Iterable[str] = ()
    append: Mapping[str, str] = {}
    subtract: Mapping[str, str] = {}


async def describe_configs(
    cluster: Cluster, kind: int, names: Iterable[str], deadline: Deadline
) -> dict[str, dict[str, ConfigEntry]]:
    """Setting -> its value and source, for each topic or broker (its id as text)."""

    def request(asked: Sequence[str]) -> DescribeConfigsRequest:
        resources = [DescribeConfigsResource(resource_type=kind, resource_name=name) for name in asked]
        return DescribeConfigsRequest(resources=resources, include_synonyms=True)

    def read(answer: Any, _: object) -> Iterator[ItemResult[str, dict[str, ConfigEntry]]]:
        for found in answer.results:
            entries = {config.name: _entry(config) for config in found.configs}
            yield ItemResult(found.resource_name, found.error_code, found.error_message, entries)

    question = Question(
        request=request,
        read=read,
        refused=lambda name: f"the settings of {_named(kind, name)} are not told",
        final=FINAL_OF_CONTROLLERS,
    )
    return await ask(cluster, names, _route(cluster, kind), question, deadline)


async def alter_config(
    cluster: Cluster, kind: int, name: str, change: ConfigChange, deadline: Deadline, *, validate_only: bool
) -> None:
    """Change settings of one topic or broker; the empty name stands for all brokers."""
    configs = [
        *(AlterableConfig(name=key, config_operation=SET, value=value) for key, value in change.set.items()),
        *(AlterableConfig(name=key, config_operation=DELETE) for key in change.delete),
        *(AlterableConfig(name=key, config_operation=APPEND, value=value) for key, value in change.append.items()),
        *(AlterableConfig(name=key, config_operation=SUBTRACT, value=value) for key, value in change.subtract.items()),
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)

    def read(answer: Any, _: object) -> Iterator[ItemResult[str, None]]:
        return (
            ItemResult(found.resource_name, found.error_code, found.error_message, None) for found in answer.responses
        )

    question = Question(
        request=lambda _: IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only),
        read=read,
        refused=lambda _: f"the settings of {_named(kind, name)} were not changed",
        final=FINAL_OF_CONTROLLERS,
    )
    await ask(cluster, [name], _route(cluster, kind), question, deadline)


class _BrokersByName:
    """A route to each broker, who alone knows its own settings, by its id as text; an empty id is any of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._brokers = Brokers(cluster)
        self._any = AnyBroker(cluster)

    async def places(self, items: Sequence[str], deadline: Deadline) -> Any:
        places = await self._any.places([item for item in items if not item], deadline)
        brokers = await self._brokers.places([int(item) for item in items if item], deadline)
        return {**places, **{str(broker): place for broker, place in brokers.items()}}

    def forget(self, item: str) -> None:
        if item:
            self._brokers.forget(int(item))
        else:
            self._any.forget(item)


def _route(cluster: Cluster, kind: int) -> Route[str]:
    return _BrokersByName(cluster) if kind == BROKER_RESOURCE else AnyBroker(cluster)


def _named(kind: int, name: str) -> str:
    if kind == TOPIC_RESOURCE:
        return f"topic {name!r}"
    return f"broker {name}" if name else "all brokers"


def _entry(config: Any) -> ConfigEntry:
    synonyms = [ConfigSynonym(each.name, each.value, _name(_SOURCES, each.source)) for each in config.synonyms]
    return ConfigEntry(
        config.name,
        config.value,
        _name(_SOURCES, config.config_source),
        config.read_only,
        config.is_sensitive,
        _name(_TYPES, config.config_type),
        synonyms,
    )


def _name(names: Sequence[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else names[0]
