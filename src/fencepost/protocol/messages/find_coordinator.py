"""FindCoordinator (10): find the node that coordinates a group or a transactional id.

v1    key type
v3    flexible
v4    several keys
v6    share groups
"""

from typing import Final

from fencepost.protocol.message import between, request, response, since, struct, until
from fencepost.protocol.types import error_text, int8, int16, int32, string

# What is coordinated: the key type.
GROUP: Final = 0
TRANSACTION: Final = 1


@request(api=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """Kafka's FindCoordinatorRequest."""

    key: string = until(3, default="")
    key_type: int8 = since(1, default=0)
    coordinator_keys: list[string] = since(4, default=[])


@struct
class Coordinator:
    key: string = since(4, default="")
    node_id: int32 = since(4, default=0)
    host: string = since(4, default="")
    port: int32 = since(4, default=0)
    error_code: int16 = since(4, default=0)
    error_message: error_text | None = since(4, default=None)


@response(api=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """Kafka's FindCoordinatorResponse."""

    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16 = until(3, default=0)
    error_message: error_text | None = between(1, 3, default=None)
    node_id: int32 = until(3, default=0)
    host: string = until(3, default="")
    port: int32 = until(3, default=0)
    coordinators: list[Coordinator] = since(4, default=[])
