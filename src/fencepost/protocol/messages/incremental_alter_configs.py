"""IncrementalAlterConfigs (44): change single entries of a configuration.

v1    flexible
"""

from typing import Final

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import boolean, error_text, int8, int16, int32, string

# Operations on an entry; the last two are for lists.
SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3


@struct
class AlterableConfig:
    name: string
    config_operation: int8
    value: string | None = None


@struct
class AlterConfigsResource:
    resource_type: int8
    resource_name: string
    configs: list[AlterableConfig]


@request(api=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """Kafka's IncrementalAlterConfigsRequest."""

    resources: list[AlterConfigsResource]
    validate_only: boolean


@struct
class AlterConfigsResourceResponse:
    error_code: int16
    error_message: error_text | None = None
    resource_type: int8
    resource_name: string


@response(api=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """Kafka's IncrementalAlterConfigsResponse."""

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse]
