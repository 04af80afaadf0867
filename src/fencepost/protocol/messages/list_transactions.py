"""ListTransactions (66): transactional ids that this node coordinates.

v1    by duration
v2    by pattern
"""

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import int16, int32, int64, string


@request(api=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """Kafka's ListTransactionsRequest."""

    state_filters: list[string]
    producer_id_filters: list[int64]
    duration_filter: int64 = since(1, default=-1)
    transactional_id_pattern: string | None = since(2, default=None)


@struct
class TransactionState:
    transactional_id: string
    producer_id: int64
    transaction_state: string


@response(api=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """Kafka's ListTransactionsResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16
    unknown_state_filters: list[string]
    transaction_states: list[TransactionState]
