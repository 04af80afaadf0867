"""IncrementalAlterConfigs (44): change single settings of topics.

v1    flexible
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.broker.alteration import alter
from fencepost.broker.broker import Broker
from fencepost.broker.caller import Caller
from fencepost.broker.registry import serves
from fencepost.broker.settings import BadSetting
from fencepost.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from fencepost.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResourceResponse

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


@serves(IncrementalAlterConfigsRequest)
def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, caller: Caller, broker: Broker
) -> IncrementalAlterConfigsResponse:
    responses = []
    for resource in request.resources:
        error, message = alter(
            resource.resource_type,
            resource.resource_name,
            lambda known, configs=resource.configs: changed(known, configs),  # type: ignore[misc]
            request.validate_only,
            caller,
            broker,
        )
        responses.append(
            AlterConfigsResourceResponse(
                error_code=error,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=responses)


def changed(known: Mapping[str, str], configs: Sequence[AlterableConfig]) -> dict[str, str]:
    """The settings after these operations.  Raises BadSetting for an operation that a setting does not have."""
    settings = dict(known)
    for config in configs:
        if config.config_operation == _DELETE:
            settings.pop(config.name, None)
        elif config.config_operation == _SET and config.value is not None:
            settings[config.name] = config.value
        elif config.config_operation in (_APPEND, _SUBTRACT) and config.name == "cleanup.policy" and config.value:
            parts = [
                part for part in settings.get(config.name, "delete").split(",") if part not in config.value.split(",")
            ]
            parts += config.value.split(",") if config.config_operation == _APPEND else []
            settings[config.name] = ",".join(parts)
        else:
            raise BadSetting(
                f"{config.name}: operation {config.config_operation} is not possible with {config.value!r}"
            )
    return settings
