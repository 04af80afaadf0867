"""InitProducerId (22): get a producer id and epoch; with a transactional id, fence whoever had it.

v2    flexible
v3    the current producer id and epoch may be given (KIP-360)
v4    PRODUCER_FENCED may be answered
v5    TRANSACTION_ABORTABLE may be answered
v6    two-phase commit (KIP-939)
"""

from fencepost.protocol.message import request, response, since
from fencepost.protocol.types import boolean, int16, int32, int64, string


@request(api=22, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    """Kafka's InitProducerIdRequest."""

    transactional_id: string | None = None
    transaction_timeout_ms: int32
    producer_id: int64 = since(3, default=-1)
    producer_epoch: int16 = since(3, default=-1)
    enable2_pc: boolean = since(6, default=False)
    keep_prepared_txn: boolean = since(6, default=False)


@response(api=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    """Kafka's InitProducerIdResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16
    producer_id: int64 = -1
    producer_epoch: int16
    ongoing_txn_producer_id: int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: int16 = since(6, default=-1)
