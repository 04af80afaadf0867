"""OffsetFetch (9): read committed offsets of groups.

v2    all partitions; an error of the whole answer
v5    leader epochs
v6    flexible
v7    require_stable (KIP-447)
v8    several groups
v9    member epochs (KIP-848)
v10   topic ids
"""

from fencepost.protocol.message import between, request, response, since, struct, until
from fencepost.protocol.types import ZERO_UUID, boolean, int16, int32, int64, string, uuid


@struct
class OffsetFetchRequestTopic:
    name: string = until(7, default="")
    partition_indexes: list[int32] = until(7, default=[])


@struct
class OffsetFetchRequestTopics:
    name: string = between(8, 9, default="")
    topic_id: uuid = since(10, default=ZERO_UUID)
    partition_indexes: list[int32] = since(8, default=[])


@struct
class OffsetFetchRequestGroup:
    group_id: string = since(8, default="")
    member_id: string | None = since(9, default=None)
    member_epoch: int32 = since(9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = since(8, default=None)


@request(api=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    """Kafka's OffsetFetchRequest."""

    group_id: string = until(7, default="")
    topics: list[OffsetFetchRequestTopic] | None = until(7, default=None)
    groups: list[OffsetFetchRequestGroup] = since(8, default=[])
    require_stable: boolean = since(7, default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: int32 = until(7, default=0)
    committed_offset: int64 = until(7, default=0)
    committed_leader_epoch: int32 = between(5, 7, default=-1)
    metadata: string | None = until(7, default=None)
    error_code: int16 = until(7, default=0)


@struct
class OffsetFetchResponseTopic:
    name: string = until(7, default="")
    partitions: list[OffsetFetchResponsePartition] = until(7, default=[])


@struct
class OffsetFetchResponsePartitions:
    partition_index: int32 = since(8, default=0)
    committed_offset: int64 = since(8, default=0)
    committed_leader_epoch: int32 = since(8, default=-1)
    metadata: string | None = since(8, default=None)
    error_code: int16 = since(8, default=0)


@struct
class OffsetFetchResponseTopics:
    name: string = between(8, 9, default="")
    topic_id: uuid = since(10, default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions] = since(8, default=[])


@struct
class OffsetFetchResponseGroup:
    group_id: string = since(8, default="")
    topics: list[OffsetFetchResponseTopics] = since(8, default=[])
    error_code: int16 = since(8, default=0)


@response(api=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    """Kafka's OffsetFetchResponse."""

    throttle_time_ms: int32 = since(3, default=0)
    topics: list[OffsetFetchResponseTopic] = until(7, default=[])
    error_code: int16 = between(2, 7, default=0)
    groups: list[OffsetFetchResponseGroup] = since(8, default=[])
