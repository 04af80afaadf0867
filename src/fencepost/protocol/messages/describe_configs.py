"""DescribeConfigs (32): configuration of topics and brokers.

v1    synonyms
v3    types and documentation
v4    flexible
"""

from typing import Final

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import boolean, error_text, int8, int16, int32, string

# What has a configuration: the resource type, here and where one is altered.
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4


@struct
class DescribeConfigsResource:
    resource_type: int8
    resource_name: string
    configuration_keys: list[string] | None = None


@request(api=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    """Kafka's DescribeConfigsRequest."""

    resources: list[DescribeConfigsResource]
    include_synonyms: boolean = False
    include_documentation: boolean = since(3, default=False)


@struct
class DescribeConfigsSynonym:
    name: string
    value: string | None = None
    source: int8


@struct
class DescribeConfigsResourceResult:
    name: string
    value: string | None = None
    read_only: boolean
    config_source: int8 = -1
    is_sensitive: boolean
    synonyms: list[DescribeConfigsSynonym]
    config_type: int8 = since(3, default=0)
    documentation: string | None = since(3, default=None)


@struct
class DescribeConfigsResult:
    error_code: int16
    error_message: error_text | None = None
    resource_type: int8
    resource_name: string
    configs: list[DescribeConfigsResourceResult]


@response(api=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    """Kafka's DescribeConfigsResponse."""

    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult]
