"""DeleteAcls (31): remove access lists.

v1    the pattern type
v2    flexible
v3    resources of the type User
"""

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import error_text, int8, int16, int32, string


@struct
class DeleteAclsFilter:
    resource_type_filter: int8
    resource_name_filter: string | None
    pattern_type_filter: int8 = 3
    principal_filter: string | None
    host_filter: string | None
    operation: int8
    permission_type: int8


@request(api=31, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    """Kafka's DeleteAclsRequest."""

    filters: list[DeleteAclsFilter]


@struct
class DeleteAclsMatchingAcl:
    error_code: int16
    error_message: error_text | None = None
    resource_type: int8
    resource_name: string
    pattern_type: int8 = 3
    principal: string
    host: string
    operation: int8
    permission_type: int8


@struct
class DeleteAclsFilterResult:
    error_code: int16
    error_message: error_text | None = None
    matching_acls: list[DeleteAclsMatchingAcl]


@response(api=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    """Kafka's DeleteAclsResponse."""

    throttle_time_ms: int32 = 0
    filter_results: list[DeleteAclsFilterResult]
