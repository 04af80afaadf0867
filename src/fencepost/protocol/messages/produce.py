"""Produce (0): append record batches to partitions.

v0-2  older record formats, refused
v3    transactional id, record batches of format 2
v5    the answer carries the log start offset
v7    zstd
v8    errors of single records
v9    flexible
v10   the answer may name the current leader (KIP-951)
v11   TRANSACTION_ABORTABLE may be answered (KIP-890 part 1)
v12   partitions are added to the transaction by the leader (KIP-890 part 2)
v13   topic ids
"""

from fencepost.protocol.message import request, response, since, struct, tagged, until
from fencepost.protocol.types import ZERO_UUID, batches, error_text, int16, int32, int64, string, uuid


@struct
class PartitionProduceData:
    index: int32
    records: batches | None = None


@struct
class TopicProduceData:
    name: string = until(12, default="")
    topic_id: uuid = since(13, default=ZERO_UUID)
    partition_data: list[PartitionProduceData]


@request(api=0, versions="3-13", flexible="9+")
class ProduceRequest:
    """Kafka's ProduceRequest."""

    transactional_id: string | None = None
    acks: int16
    timeout_ms: int32
    topic_data: list[TopicProduceData]


@struct
class BatchIndexAndErrorMessage:
    batch_index: int32 = since(8, default=0)
    batch_index_error_message: error_text | None = since(8, default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: int32 = since(10, default=-1)
    leader_epoch: int32 = since(10, default=-1)


@struct
class PartitionProduceResponse:
    index: int32
    error_code: int16
    base_offset: int64
    log_append_time_ms: int64 = -1
    log_start_offset: int64 = since(5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = since(8, default=[])
    error_message: error_text | None = since(8, default=None)
    current_leader: LeaderIdAndEpoch | None = tagged(0, since=10, default=None)


@struct
class TopicProduceResponse:
    name: string = until(12, default="")
    topic_id: uuid = since(13, default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse]


@struct
class NodeEndpoint:
    node_id: int32 = since(10, default=0)
    host: string = since(10, default="")
    port: int32 = since(10, default=0)
    rack: string | None = since(10, default=None)


@response(api=0, versions="3-13", flexible="9+")
class ProduceResponse:
    """Kafka's ProduceResponse."""

    responses: list[TopicProduceResponse]
    throttle_time_ms: int32 = 0
    node_endpoints: list[NodeEndpoint] = tagged(0, since=10, default=[])
