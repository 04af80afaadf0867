"""The results of the transaction coordinator.  Each may leave the process when `lsn` is durable."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import NO_EPOCH, NO_LSN, NO_PRODUCER_ID, Epoch, Lsn, ProducerId


class Initialized(NamedTuple):
    """InitProducerId.  `ongoing_*`: the transaction that was kept for the caller to end (v6)."""

    error: ErrorCode
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: Epoch = NO_EPOCH
    lsn: Lsn = NO_LSN
    ongoing_producer_id: ProducerId = NO_PRODUCER_ID
    ongoing_producer_epoch: Epoch = NO_EPOCH


class Added(NamedTuple):
    """AddPartitionsToTxn, AddOffsetsToTxn, implicit add.  `timed_out`: the pair is one that the server timed out."""

    error: ErrorCode
    lsn: Lsn = NO_LSN
    timed_out: bool = False


class Ended(NamedTuple):
    """EndTxn, with the pair for the next transaction.  `timed_out`: the pair is one that the server timed out."""

    error: ErrorCode
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: Epoch = NO_EPOCH
    lsn: Lsn = NO_LSN
    timed_out: bool = False
