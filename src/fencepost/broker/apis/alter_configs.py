"""AlterConfigs (33): replace the whole configuration of topics.

v2    flexible
"""

from __future__ import annotations

from fencepost.broker.alteration import alter
from fencepost.broker.broker import Broker
from fencepost.broker.caller import Caller
from fencepost.broker.registry import serves
from fencepost.protocol.messages import AlterConfigsRequest, AlterConfigsResponse
from fencepost.protocol.messages.alter_configs import AlterConfigsResourceResponse


@serves(AlterConfigsRequest)
def alter_configs(request: AlterConfigsRequest, caller: Caller, broker: Broker) -> AlterConfigsResponse:
    responses = []
    for resource in request.resources:
        given = {config.name: config.value for config in resource.configs if config.value is not None}
        error, message = alter(
            resource.resource_type,
            resource.resource_name,
            lambda _, given=given: given,  # type: ignore[misc]
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
    return AlterConfigsResponse(responses=responses)
