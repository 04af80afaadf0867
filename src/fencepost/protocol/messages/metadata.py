"""Metadata (3): brokers of the cluster, topics and their leaders.

v1    controller, racks, internal topics
v2    cluster id
v4    whether topics may be created
v7    leader epochs
v8    operations that the caller may do
v9    flexible
v10   topic ids
v12   topics may be asked for by id
v13   an error of the whole answer
"""

from fencepost.protocol.message import between, request, response, since, struct
from fencepost.protocol.types import ZERO_UUID, boolean, int16, int32, string, uuid


@struct
class MetadataRequestTopic:
    topic_id: uuid = since(10, default=ZERO_UUID)
    name: string | None = None


@request(api=3, versions="0-13", flexible="9+")
class MetadataRequest:
    """Kafka's MetadataRequest."""

    topics: list[MetadataRequestTopic] | None = None
    allow_auto_topic_creation: boolean = since(4, default=True)
    include_cluster_authorized_operations: boolean = between(8, 10, default=False)
    include_topic_authorized_operations: boolean = since(8, default=False)


@struct
class MetadataResponseBroker:
    node_id: int32
    host: string
    port: int32
    rack: string | None = since(1, default=None)


@struct
class MetadataResponsePartition:
    error_code: int16
    partition_index: int32
    leader_id: int32
    leader_epoch: int32 = since(7, default=-1)
    replica_nodes: list[int32]
    isr_nodes: list[int32]
    offline_replicas: list[int32] = since(5, default=[])


@struct
class MetadataResponseTopic:
    error_code: int16
    name: string | None = None
    topic_id: uuid = since(10, default=ZERO_UUID)
    is_internal: boolean = since(1, default=False)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: int32 = since(8, default=-2147483648)


@response(api=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """Kafka's MetadataResponse."""

    throttle_time_ms: int32 = since(3, default=0)
    brokers: list[MetadataResponseBroker]
    cluster_id: string | None = since(2, default=None)
    controller_id: int32 = since(1, default=-1)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: int32 = between(8, 10, default=-2147483648)
    error_code: int16 = since(13, default=0)
