"""WriteTxnMarkers (27): write the markers that end transactions; an admin may end a hanging one so.

v1    flexible
v2    the transaction version of each marker (KIP-1228)
"""

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import boolean, int8, int16, int32, int64, string


@struct
class WritableTxnMarkerTopic:
    name: string
    partition_indexes: list[int32]


@struct
class WritableTxnMarker:
    producer_id: int64
    producer_epoch: int16
    transaction_result: boolean
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: int32
    transaction_version: int8 = since(2, default=0)


@request(api=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    """Kafka's WriteTxnMarkersRequest."""

    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: int32
    error_code: int16


@struct
class WritableTxnMarkerTopicResult:
    name: string
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    producer_id: int64
    topics: list[WritableTxnMarkerTopicResult]


@response(api=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    """Kafka's WriteTxnMarkersResponse."""

    markers: list[WritableTxnMarkerResult]
