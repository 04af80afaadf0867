"""AlterConfigs (33): replace the configuration of topics or brokers.

v2    flexible
"""

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import boolean, error_text, int8, int16, int32, string


@struct
class AlterableConfig:
    name: string
    value: string | None = None


@struct
class AlterConfigsResource:
    resource_type: int8
    resource_name: string
    configs: list[AlterableConfig]


@request(api=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """Kafka's AlterConfigsRequest."""

    resources: list[AlterConfigsResource]
    validate_only: boolean


@struct
class AlterConfigsResourceResponse:
    error_code: int16
    error_message: error_text | None = None
    resource_type: int8
    resource_name: string


@response(api=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """Kafka's AlterConfigsResponse."""

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse]
