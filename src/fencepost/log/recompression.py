"""A batch in the codec of its topic (compression.type), where that is not the producer's.

Only the records section is folded again; what is in it stays as it is.  Apache Kafka builds a new batch
from the records, so of the attributes only those are left that it knows, and a few headers cannot be built.
"""

from __future__ import annotations

from fencepost.log.outcome import Refused
from fencepost.log.settings import LogSettings
from fencepost.protocol.batch import HEADER_SIZE, BatchHeader, read_header
from fencepost.protocol.compression import Compression, decompress
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import seal
from fencepost.protocol.types import NO_EPOCH, NO_PRODUCER_ID, Buffer


def recompress(records: bytes, header: BatchHeader, compression: Compression, settings: LogSettings) -> bytes | Refused:
    """The batch anew, in a codec: `records` unfolded, and checked against `header`."""
    if header.producer_id != NO_PRODUCER_ID and (header.producer_epoch == NO_EPOCH or header.base_sequence < 0):
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "a batch with a producer id needs an epoch and a base sequence")
    anew = seal(
        records,
        header.record_count,
        header.base_timestamp,
        header.max_timestamp,
        compression=compression,
        compression_level=settings.compression_level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    if len(anew) > settings.max_message_bytes:
        size, limit = len(anew), settings.max_message_bytes
        why = f"the batch has {size} bytes as {compression.name.lower()}, max.message.bytes is {limit}"
        return Refused(ErrorCode.MESSAGE_TOO_LARGE, why)
    return anew


def in_codec_of_topic(
    batch: Buffer, header: BatchHeader, compression: Compression, settings: LogSettings
) -> tuple[Buffer, BatchHeader]:
    """The batch in the codec of its topic, or as it is where that cannot be: no setting may stop a coordinator."""
    records = decompress(header.compression, memoryview(batch)[HEADER_SIZE:])
    anew = recompress(records, header, compression, settings)
    return (batch, header) if isinstance(anew, Refused) else (anew, read_header(anew))
