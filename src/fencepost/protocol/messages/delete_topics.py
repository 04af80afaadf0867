"""DeleteTopics (20): delete topics.

v4    flexible
v5    error messages
v6    topics may be named by id
"""

from fencepost.protocol.message import request, response, since, struct, until
from fencepost.protocol.types import ZERO_UUID, error_text, int16, int32, string, uuid


@struct
class DeleteTopicState:
    name: string | None = since(6, default=None)
    topic_id: uuid = since(6, default=ZERO_UUID)


@request(api=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    """Kafka's DeleteTopicsRequest."""

    topics: list[DeleteTopicState] = since(6, default=[])
    topic_names: list[string] = until(5, default=[])
    timeout_ms: int32


@struct
class DeletableTopicResult:
    name: string | None = None
    topic_id: uuid = since(6, default=ZERO_UUID)
    error_code: int16
    error_message: error_text | None = since(5, default=None)


@response(api=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """Kafka's DeleteTopicsResponse."""

    throttle_time_ms: int32 = 0
    responses: list[DeletableTopicResult]
