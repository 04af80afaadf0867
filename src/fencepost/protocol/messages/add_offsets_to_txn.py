"""AddOffsetsToTxn (25): register the offsets of a group with a transaction.

v2    PRODUCER_FENCED may be answered
v3    flexible
v4    TRANSACTION_ABORTABLE may be answered
"""

from fencepost.protocol.message import request, response, tagged
from fencepost.protocol.types import boolean, int16, int32, int64, string


@request(api=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """Kafka's AddOffsetsToTxnRequest."""

    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    group_id: string


@response(api=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """Kafka's AddOffsetsToTxnResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16
    transaction_timed_out: boolean = tagged(10_000, since=3, default=False)
    """Ours: the server timed the transaction of this producer id and epoch out (KIP-588)."""
