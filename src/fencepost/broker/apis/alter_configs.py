"""AlterConfigs (33): replace the whole configuration of topics.

v2    flexible
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fencepost.broker.metadata.alteration import alter_each
from fencepost.broker.metadata.topic_rules import TopicRefused
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AlterConfigsRequest, AlterConfigsResponse
from fencepost.protocol.messages.alter_configs import AlterConfigsResource, AlterConfigsResourceResponse


@serves(AlterConfigsRequest)
def alter_configs(request: AlterConfigsRequest, context: RequestContext, node: Node) -> Reply:
    changes = [
        (resource.resource_type, resource.resource_name, partial(replaced, resource)) for resource in request.resources
    ]
    outcomes = alter_each(changes, request.validate_only, context, node)
    return independent(
        AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=error, error_message=message, resource_type=kind, resource_name=name
                )
                for (kind, name, _), (error, message) in zip(changes, outcomes, strict=True)
            ]
        )
    )


def replaced(resource: AlterConfigsResource, _: Mapping[str, str]) -> dict[str, str]:
    """The settings that a resource shall have.  Raises TopicRefused for one without a value, or named twice."""
    settings: dict[str, str] = {}
    for config in resource.configs:
        if config.value is None or config.name in settings:
            raise TopicRefused(ErrorCode.INVALID_REQUEST, f"{config.name}: a setting is named once, with a value")
        settings[config.name] = config.value
    return settings
