"""DescribeAcls (29): which access lists there are.

v1    the pattern type
v2    flexible
v3    resources of the type User
"""

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import error_text, int8, int16, int32, string


@request(api=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    """Kafka's DescribeAclsRequest.  What is null is not filtered by."""

    resource_type_filter: int8
    resource_name_filter: string | None
    pattern_type_filter: int8 = 3
    principal_filter: string | None
    host_filter: string | None
    operation: int8
    permission_type: int8


@struct
class AclDescription:
    principal: string
    host: string
    operation: int8
    permission_type: int8


@struct
class DescribeAclsResource:
    resource_type: int8
    resource_name: string
    pattern_type: int8 = 3
    acls: list[AclDescription]


@response(api=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    """Kafka's DescribeAclsResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: error_text | None = None
    resources: list[DescribeAclsResource]
