"""IncrementalAlterConfigs (44): change single settings of topics.

v1    flexible
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.broker.metadata.alteration import Outcome, alter_each
from fencepost.broker.metadata.settings import topic_setting
from fencepost.broker.metadata.topic_rules import TopicRefused
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from fencepost.protocol.messages.incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)
from fencepost.protocol.steps import Pace, Steps, each


@serves(IncrementalAlterConfigsRequest, in_turn=True)
@in_steps
def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext, node: Node
) -> Steps[Reply]:
    pace = Pace()
    outcomes = yield from alter_each(request.resources, changed, request.validate_only, context, node, pace)
    return independent(IncrementalAlterConfigsResponse(responses=(yield from each(outcomes, _result, pace))))


def _result(altered: tuple[AlterConfigsResource, Outcome]) -> AlterConfigsResourceResponse:
    resource, (error, message) = altered
    return AlterConfigsResourceResponse(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def changed(resource: AlterConfigsResource, known: Mapping[str, str]) -> dict[str, str]:
    """The settings after these operations.  Raises TopicRefused for one that a setting does not have."""
    configs = resource.configs
    if len({config.name for config in configs}) < len(configs):
        raise TopicRefused(ErrorCode.INVALID_REQUEST, "a setting is named once")
    settings = dict(known)
    for config in configs:
        name, operation = config.name, config.config_operation
        if operation == DELETE:
            settings.pop(name, None)
        elif config.value is None:
            raise TopicRefused(ErrorCode.INVALID_REQUEST, f"{name}: only a deletion goes without a value")
        elif operation == SET:
            settings[name] = config.value
        elif operation in (APPEND, SUBTRACT):
            settings[name] = _listed(name, settings.get(name), config.value.split(","), operation == APPEND)
        else:
            # As Apache Kafka answers it.
            raise TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: there is no operation {operation}")
    return settings


def _listed(name: str, given: str | None, items: Sequence[str], append: bool) -> str:
    """The value of a list setting with these items added, or taken away.  Raises TopicRefused if it is no list."""
    setting = topic_setting(name)
    if setting is None or setting.kind is not list:
        raise TopicRefused(ErrorCode.INVALID_CONFIG, f"{name}: nothing can be added to it or taken away, it is no list")
    text = str(setting.default) if given is None else given
    found = text.split(",") if text else []
    if append:
        return ",".join([*found, *(item for item in items if item and item not in found)])
    return ",".join(item for item in found if item not in items)
