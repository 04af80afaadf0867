"""CreateAcls (30): make access lists.

v1    the pattern type
v2    flexible
v3    resources of the type User
"""

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import error_text, int8, int16, int32, string


@struct
class AclCreation:
    resource_type: int8
    resource_name: string
    resource_pattern_type: int8 = 3
    principal: string
    host: string
    operation: int8
    permission_type: int8


@request(api=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    """Kafka's CreateAclsRequest."""

    creations: list[AclCreation]


@struct
class AclCreationResult:
    error_code: int16
    error_message: error_text | None = None


@response(api=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    """Kafka's CreateAclsResponse."""

    throttle_time_ms: int32 = 0
    results: list[AclCreationResult]
