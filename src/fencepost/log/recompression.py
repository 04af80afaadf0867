"""A batch in the codec of its topic (compression.type), where that is not the producer's.

Only the records section is unfolded and folded again; what is in it stays as it is.  Apache Kafka builds a new batch
from the records, so of the attributes only those are left that it knows, and a few headers cannot be built.
"""

from __future__ import annotations

from fencepost.log.outcome import Refused
from fencepost.log.producer_state import NO_EPOCH
from fencepost.protocol.batch import HEADER_SIZE, NO_PRODUCER_ID, BatchHeader
from fencepost.protocol.compression import Compression, decompress
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.records import seal
from fencepost.protocol.types import Buffer


def recompress(
    batch: Buffer, header: BatchHeader, compression: Compression, level: int | None, max_bytes: int
) -> bytes | Refused:
    """The batch anew.  It must have been checked, and have another codec."""
    try:
        records = decompress(header.compression, memoryview(batch)[HEADER_SIZE:])
    except ProtocolError as unreadable:
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(unreadable))
    if not records:
        return Refused(ErrorCode.INVALID_RECORD, f"the batch claims {header.record_count} records, and has none")
    if header.producer_id != NO_PRODUCER_ID and (header.producer_epoch == NO_EPOCH or header.base_sequence < 0):
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "a batch with a producer id needs an epoch and a base sequence")
    anew = seal(
        records,
        header.record_count,
        header.base_timestamp,
        header.max_timestamp,
        compression=compression,
        compression_level=level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    if len(anew) > max_bytes:
        why = f"the batch has {len(anew)} bytes as {compression.name.lower()}, max.message.bytes is {max_bytes}"
        return Refused(ErrorCode.MESSAGE_TOO_LARGE, why)
    return anew
