"""AlterConfigs (33): replace the whole configuration of topics.

v2    flexible
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.broker.metadata.alteration import Outcome, alter_each
from fencepost.broker.metadata.topic_rules import TopicRefused
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AlterConfigsRequest, AlterConfigsResponse
from fencepost.protocol.messages.alter_configs import AlterConfigsResource, AlterConfigsResourceResponse
from fencepost.protocol.steps import Pace, Steps, each


@serves(AlterConfigsRequest, in_turn=True)
@in_steps
def alter_configs(request: AlterConfigsRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace = Pace()
    outcomes = yield from alter_each(request.resources, replaced, request.validate_only, context, node, pace)
    return independent(AlterConfigsResponse(responses=(yield from each(outcomes, _result, pace))))


def _result(altered: tuple[AlterConfigsResource, Outcome]) -> AlterConfigsResourceResponse:
    resource, (error, message) = altered
    return AlterConfigsResourceResponse(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def replaced(resource: AlterConfigsResource, _: Mapping[str, str]) -> dict[str, str]:
    """The settings that a resource shall have.  Raises TopicRefused for one without a value, or named twice."""
    settings: dict[str, str] = {}
    for config in resource.configs:
        if config.value is None or config.name in settings:
            raise TopicRefused(ErrorCode.INVALID_REQUEST, f"{config.name}: a setting is named once, with a value")
        settings[config.name] = config.value
    return settings
