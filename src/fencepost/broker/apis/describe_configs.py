"""DescribeConfigs (32): configuration of topics and brokers; all of one resource is told once.

v1    synonyms
v3    types and documentation
v4    flexible
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.metadata.configuration import (
    Entry,
    described_broker,
    described_topic,
)
from fencepost.broker.metadata.topic_rules import topic_name_error
from fencepost.broker.network.registry import Later, Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from fencepost.protocol.messages.describe_configs import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_AT_ONCE: Final = 10
"""Resources that are described in one step."""


@serves(DescribeConfigsRequest, in_turn=True)
def describe_configs(request: DescribeConfigsRequest, context: RequestContext, node: Node) -> Reply | Later:
    asked = _without_repeated(request.resources)
    found = (_describe(resource, request.include_synonyms, context, node) for resource in asked)
    if len(asked) > _AT_ONCE:
        return _in_slices(found, node)
    return independent(DescribeConfigsResponse(results=list(found)))


def _without_repeated(asked: list[DescribeConfigsResource]) -> list[DescribeConfigsResource]:
    """The resources asked for; one that is asked for as a whole more than once is kept once."""
    wholes: set[tuple[int, str]] = set()
    kept = []
    for resource in asked:
        if not resource.configuration_keys:
            name = resource.resource_type, resource.resource_name
            if name in wholes:
                continue
            wholes.add(name)
        kept.append(resource)
    return kept


async def _in_slices(found: Iterator[DescribeConfigsResult], node: Node) -> Reply:
    """The response, made a slice of the event loop at a time: settings may change between two of its resources."""
    results = []
    for result in found:
        results.append(result)
        await node.slices.pause()
    return independent(DescribeConfigsResponse(results=results))


def _describe(
    asked: DescribeConfigsResource, synonyms: bool, context: RequestContext, node: Node
) -> DescribeConfigsResult:
    error, message, entries = _entries(asked, context, node)
    wanted = asked.configuration_keys
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[_config(entry, synonyms) for entry in entries if not wanted or entry.name in wanted],
    )


def _entries(
    asked: DescribeConfigsResource, context: RequestContext, node: Node
) -> tuple[ErrorCode, str | None, list[Entry]]:
    name = asked.resource_name
    if asked.resource_type == TOPIC_RESOURCE:
        if not context.may(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, []
        topic = node.topics.by_name.get(name)
        if topic is None:
            return topic_name_error(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, []
        return ErrorCode.NONE, None, described_topic(topic.settings, node.settings)
    if asked.resource_type == BROKER_RESOURCE:
        if not context.may(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None, []
        if not name:
            return ErrorCode.NONE, None, []  # what is set for all brokers while they run: nothing can be
        if name != str(node.node_id):
            return ErrorCode.INVALID_REQUEST, f"this is broker {node.node_id}, not {name!r}", []
        return ErrorCode.NONE, None, described_broker(node.settings)
    what = f"topics ({TOPIC_RESOURCE}) and brokers ({BROKER_RESOURCE})"
    sentence = f"{what} have a configuration here, resources of type {asked.resource_type} have none"
    return ErrorCode.INVALID_REQUEST, sentence, []


def _config(entry: Entry, synonyms: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[DescribeConfigsSynonym(**found._asdict()) for found in entry.synonyms] if synonyms else [],
        config_type=entry.kind,
    )
