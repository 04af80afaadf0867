"""EndTxn (26): commit or abort the ongoing transaction.

v2    PRODUCER_FENCED may be answered
v3    flexible
v4    TRANSACTION_ABORTABLE may be answered
v5    every end bumps the epoch; the answer carries it (KIP-890 part 2)
"""

from fencepost.protocol.message import request, response, since, tagged
from fencepost.protocol.types import boolean, int16, int32, int64, string


@request(api=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    """Kafka's EndTxnRequest."""

    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    committed: boolean


@response(api=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """Kafka's EndTxnResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16
    producer_id: int64 = since(5, default=-1)
    producer_epoch: int16 = since(5, default=-1)
    transaction_timed_out: boolean = tagged(10_000, since=3, default=False)
    """Ours: the server timed the transaction of this producer id and epoch out (KIP-588)."""
