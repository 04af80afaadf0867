"""CreateTopics (19): create topics.

v5    flexible; the configuration is answered
v7    topic ids
"""

from fencepost.protocol.message import request, response, since, struct, tagged
from fencepost.protocol.types import ZERO_UUID, boolean, error_text, int8, int16, int32, string, uuid


@struct
class CreatableReplicaAssignment:
    partition_index: int32
    broker_ids: list[int32]


@struct
class CreatableTopicConfig:
    name: string
    value: string | None = None


@struct
class CreatableTopic:
    name: string
    num_partitions: int32
    replication_factor: int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@request(api=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    """Kafka's CreateTopicsRequest."""

    topics: list[CreatableTopic]
    timeout_ms: int32 = 60000
    validate_only: boolean = False


@struct
class CreatableTopicConfigs:
    name: string = since(5, default="")
    value: string | None = since(5, default=None)
    read_only: boolean = since(5, default=False)
    config_source: int8 = since(5, default=-1)
    is_sensitive: boolean = since(5, default=False)


@struct
class CreatableTopicResult:
    name: string
    topic_id: uuid = since(7, default=ZERO_UUID)
    error_code: int16
    error_message: error_text | None = None
    topic_config_error_code: int16 = tagged(0, since=5, default=0)
    num_partitions: int32 = since(5, default=-1)
    replication_factor: int16 = since(5, default=-1)
    configs: list[CreatableTopicConfigs] | None = since(5, default=None)


@response(api=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    """Kafka's CreateTopicsResponse."""

    throttle_time_ms: int32 = 0
    topics: list[CreatableTopicResult]
