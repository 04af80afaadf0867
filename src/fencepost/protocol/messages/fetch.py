"""Fetch (1): read record batches from partitions.

v4    isolation level, aborted transactions, last stable offset
v5    log start offset
v7    sessions (KIP-227)
v9    the leader epoch that the reader knows
v10   zstd
v11   rack, preferred replica
v12   flexible; truncation is detected
v13   topic ids
v15   replica state as a tagged field
v16   the answer names leaders
v17   replica directory ids
v18   the high watermark that a follower knows
"""

from fencepost.protocol.message import between, request, response, since, struct, tagged, until
from fencepost.protocol.types import ZERO_UUID, batches, int8, int16, int32, int64, string, uuid


@struct
class ReplicaState:
    replica_id: int32 = since(15, default=-1)
    replica_epoch: int64 = since(15, default=-1)


@struct
class FetchPartition:
    partition: int32
    current_leader_epoch: int32 = since(9, default=-1)
    fetch_offset: int64
    last_fetched_epoch: int32 = since(12, default=-1)
    log_start_offset: int64 = since(5, default=-1)
    partition_max_bytes: int32
    replica_directory_id: uuid = tagged(0, since=17, default=ZERO_UUID)
    high_watermark: int64 = tagged(1, since=18, default=9223372036854775807)


@struct
class FetchTopic:
    topic: string = until(12, default="")
    topic_id: uuid = since(13, default=ZERO_UUID)
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    topic: string = between(7, 12, default="")
    topic_id: uuid = since(13, default=ZERO_UUID)
    partitions: list[int32] = since(7, default=[])


@request(api=1, versions="4-18", flexible="12+")
class FetchRequest:
    """Kafka's FetchRequest."""

    cluster_id: string | None = tagged(0, since=12, default=None)
    replica_id: int32 = until(14, default=-1)
    replica_state: ReplicaState | None = tagged(1, since=15, default=None)
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = 2147483647
    isolation_level: int8 = 0
    session_id: int32 = since(7, default=0)
    session_epoch: int32 = since(7, default=-1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = since(7, default=[])
    rack_id: string = since(11, default="")


@struct
class EpochEndOffset:
    epoch: int32 = since(12, default=-1)
    end_offset: int64 = since(12, default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: int32 = since(12, default=-1)
    leader_epoch: int32 = since(12, default=-1)


@struct
class SnapshotId:
    end_offset: int64 = -1
    epoch: int32 = -1


@struct
class AbortedTransaction:
    producer_id: int64
    first_offset: int64


@struct
class PartitionData:
    partition_index: int32
    error_code: int16
    high_watermark: int64
    last_stable_offset: int64 = -1
    log_start_offset: int64 = since(5, default=-1)
    diverging_epoch: EpochEndOffset | None = tagged(0, since=12, default=None)
    current_leader: LeaderIdAndEpoch | None = tagged(1, since=12, default=None)
    snapshot_id: SnapshotId | None = tagged(2, since=12, default=None)
    aborted_transactions: list[AbortedTransaction] | None = None
    preferred_read_replica: int32 = since(11, default=-1)
    records: batches | None = None


@struct
class FetchableTopicResponse:
    topic: string = until(12, default="")
    topic_id: uuid = since(13, default=ZERO_UUID)
    partitions: list[PartitionData]


@struct
class NodeEndpoint:
    node_id: int32 = since(16, default=0)
    host: string = since(16, default="")
    port: int32 = since(16, default=0)
    rack: string | None = since(16, default=None)


@response(api=1, versions="4-18", flexible="12+")
class FetchResponse:
    """Kafka's FetchResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16 = since(7, default=0)
    session_id: int32 = since(7, default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = tagged(0, since=16, default=[])
