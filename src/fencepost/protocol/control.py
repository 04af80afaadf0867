"""Control records: the markers that end a transaction in a partition (facts §10.2)."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.records import decode_batch, encode_record, seal
from fencepost.protocol.types import NO_LEADER_EPOCH, Buffer, Epoch, LeaderEpoch, Milliseconds, ProducerId

ABORT = 0
COMMIT = 1

_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class ControlRecord(NamedTuple):
    """The content of a control record: its type, and the coordinator's epoch, None unless it ends a transaction."""

    type: int
    coordinator_epoch: LeaderEpoch | None

    @property
    def ends_transaction(self) -> bool:
        return self.type in (ABORT, COMMIT)


def control_batch(
    producer_id: ProducerId,
    producer_epoch: Epoch,
    coordinator_epoch: LeaderEpoch,
    commit: bool,
    timestamp: Milliseconds,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
) -> bytes:
    """The marker that ends a transaction: one record, 78 bytes."""
    key = _KEY.pack(0, COMMIT if commit else ABORT)
    body = encode_record(0, 0, key, _VALUE.pack(0, coordinator_epoch), ())
    return seal(
        body,
        1,
        timestamp,
        timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def read_control_record(buffer: Buffer, at: int = 0, header: BatchHeader | None = None) -> ControlRecord | None:
    """The record of a control batch; None if compaction has emptied it.  Raises ProtocolError if it is damaged."""
    records = decode_batch(buffer, at, header)
    if not records:
        return None
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _KEY.size:
        raise ProtocolError("a control record has no readable key")
    _, type_ = _KEY.unpack_from(key)
    if type_ not in (ABORT, COMMIT):
        return ControlRecord(type_, None)
    if value is None or len(value) < _VALUE.size:
        raise ProtocolError("a transaction marker has no readable value")
    # A higher version may have more after the part that we know.
    return ControlRecord(type_, _VALUE.unpack_from(value)[1])
