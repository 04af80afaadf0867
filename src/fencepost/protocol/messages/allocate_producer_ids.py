"""AllocateProducerIds (67): a broker asks the controller for a block of producer ids."""

from fencepost.protocol.message import request, response
from fencepost.protocol.types import int16, int32, int64


@request(api=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest:
    """Kafka's AllocateProducerIdsRequest."""

    broker_id: int32
    broker_epoch: int64 = -1


@response(api=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    """Kafka's AllocateProducerIdsResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16
    producer_id_start: int64
    producer_id_len: int32
