"""The results of a partition: appended, or refused; and the failure after which nothing more is answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import NO_OFFSET, Epoch, Lsn, Offset


class StorageFailed(Exception):
    """Memory is ahead of the disk: a sync failed, or an append was left half done.

    The process must end; a restart tells what is really there.
    """


class Appended(NamedTuple):
    """A batch is in the log, durable once the storage's `durable` has reached `lsn`."""

    base_offset: Offset
    last_offset: Offset
    log_append_time: int
    log_start_offset: Offset
    lsn: Lsn
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The error with which a partition refuses an append or a read, and a message for people, if there is one."""

    error: ErrorCode
    message: str | None = None
    log_start_offset: Offset = NO_OFFSET
    """Told with what a partition itself refuses."""
    record_errors: tuple[tuple[int, str], ...] = ()
    """(number in the batch, why) of single records that are wrong."""


def explained(error: ErrorCode, header: BatchHeader, where: str, known_epoch: Epoch) -> str:
    """Why a producer's batch is refused, in a sentence.  `where`: the partition; `known_epoch`: its producer's now."""
    who = f"producer_id={header.producer_id} epoch={header.producer_epoch} sequence={header.base_sequence}"
    match error:
        case ErrorCode.INVALID_PRODUCER_EPOCH:
            return f"{who}: a newer producer with epoch {known_epoch} has written to {where}"
        case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return f"{who}: the sequence does not follow the last one in {where}"
        case ErrorCode.INVALID_RECORD:
            return f"{who}: a transaction needs an epoch"
        case _:
            return f"{who}: the write to {where} is not part of an ongoing transaction"
