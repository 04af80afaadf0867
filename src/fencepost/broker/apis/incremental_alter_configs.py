"""IncrementalAlterConfigs (44): change single settings of topics.

v1    flexible
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from fencepost.broker.metadata.alteration import alter_each
from fencepost.broker.metadata.settings import topic_setting
from fencepost.broker.metadata.topic_rules import TopicRefused
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from fencepost.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResourceResponse

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


@serves(IncrementalAlterConfigsRequest)
def incremental_alter_configs(request: IncrementalAlterConfigsRequest, context: RequestContext, node: Node) -> Reply:
    changes = [
        (resource.resource_type, resource.resource_name, partial(changed, resource.configs))
        for resource in request.resources
    ]
    outcomes = alter_each(changes, request.validate_only, context, node)
    return independent(
        IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=error, error_message=message, resource_type=kind, resource_name=name
                )
                for (kind, name, _), (error, message) in zip(changes, outcomes, strict=True)
            ]
        )
    )


def changed(configs: Sequence[AlterableConfig], known: Mapping[str, str]) -> dict[str, str]:
    """The settings after these operations.  Raises TopicRefused for one that a setting does not have."""
    if len({config.name for config in configs}) < len(configs):
        raise TopicRefused(ErrorCode.INVALID_REQUEST, "a setting is named once")
    settings = dict(known)
    for config in configs:
        name, operation = config.name, config.config_operation
        if operation == _DELETE:
            settings.pop(name, None)
        elif config.value is None:
            raise TopicRefused(ErrorCode.INVALID_REQUEST, f"{name}: only a deletion goes without a value")
        elif operation == _SET:
            settings[name] = config.value
        elif operation in (_APPEND, _SUBTRACT):
            settings[name] = _listed(name, settings.get(name), config.value.split(","), operation == _APPEND)
        else:
            # As Apache Kafka answers it.
            raise TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: there is no operation {operation}")
    return settings


def _listed(name: str, given: str | None, items: Sequence[str], append: bool) -> str:
    """A list with or without these items."""
    setting = topic_setting(name)
    if setting is None or setting.kind is not list:
        raise TopicRefused(ErrorCode.INVALID_CONFIG, f"{name}: nothing can be added to it or taken away, it is no list")
    text = str(setting.default) if given is None else given
    found = text.split(",") if text else []
    if append:
        return ",".join([*found, *(item for item in items if item and item not in found)])
    return ",".join(item for item in found if item not in items)
