"""DeleteGroups (42): delete empty groups.

v2    flexible
"""

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import int16, int32, string


@request(api=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    """Kafka's DeleteGroupsRequest."""

    groups_names: list[string]


@struct
class DeletableGroupResult:
    group_id: string
    error_code: int16


@response(api=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    """Kafka's DeleteGroupsResponse."""

    throttle_time_ms: int32 = 0
    results: list[DeletableGroupResult]
