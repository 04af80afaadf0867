"""Transaction markers: Apache Kafka's own bytes, read by two other clients, and control records of other kinds."""

from __future__ import annotations

import io
import struct

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER
from aiokafka.record.control_record import ControlRecord as AiokafkaControlRecord
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonReader
from kio.schema.control_record_type_schema.v0.data import ControlRecordTypeSchema
from kio.schema.end_txn_marker.v0.data import EndTxnMarker
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32

from fencepost.protocol.batch import NO_SEQUENCE, crc_matches, read_header, stamp
from fencepost.protocol.control import ABORT, COMMIT, ControlRecord, control_batch, read_control_record
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.records import decode_batch, encode_batch, seal
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId

PRODUCER_IDS = st.integers(0, 2**63 - 1)
PRODUCER_EPOCHS = st.integers(0, 2**15 - 1)
COORDINATOR_EPOCHS = st.integers(-(2**31), 2**31 - 1)
TIMESTAMPS = st.integers(0, 2**62)


# Written by Apache Kafka 4.3.1, as a consumer fetched them.
@pytest.mark.parametrize(
    ("commit", "offset", "producer_epoch", "timestamp", "fetched"),
    [
        (
            False,
            1,
            1,
            1795223782890,
            "0000000000000001000000420000000002a43214ee003000000000000001a1fbad05ea000001a1fbad05ea"
            "00000000000000050001ffffffff000000012000000008000000000c00000000000000",
        ),
        (
            True,
            3,
            2,
            1795223783018,
            "0000000000000003000000420000000002c8c219aa003000000000000001a1fbad066a000001a1fbad066a"
            "00000000000000050002ffffffff000000012000000008000000010c00000000000000",
        ),
    ],
    ids=["abort", "commit"],
)
def test_a_marker_has_apache_kafkas_bytes(
    commit: bool, offset: int, producer_epoch: int, timestamp: int, fetched: str
) -> None:
    marker = bytearray(
        control_batch(ProducerId(5), Epoch(producer_epoch), LeaderEpoch(0), commit, Milliseconds(timestamp))
    )
    stamp(marker, 0, Offset(offset), LeaderEpoch(0))
    assert marker.hex() == fetched
    assert read_control_record(bytes.fromhex(fetched)) == ControlRecord(COMMIT if commit else ABORT, LeaderEpoch(0))


@given(
    producer_id=PRODUCER_IDS,
    producer_epoch=PRODUCER_EPOCHS,
    coordinator_epoch=COORDINATOR_EPOCHS,
    commit=st.booleans(),
    timestamp=TIMESTAMPS,
    leader_epoch=COORDINATOR_EPOCHS,
    before=st.binary(max_size=10),
)
def test_a_marker_says_who_ended_what_and_how(
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: LeaderEpoch,
    commit: bool,
    timestamp: int,
    leader_epoch: LeaderEpoch,
    before: bytes,
) -> None:
    marker = control_batch(
        ProducerId(producer_id), Epoch(producer_epoch), coordinator_epoch, commit, Milliseconds(timestamp), leader_epoch
    )
    assert len(marker) == 78
    header = read_header(marker)
    assert crc_matches(marker, 0, header)
    assert (header.producer_id, header.producer_epoch) == (producer_id, producer_epoch)
    assert (header.base_timestamp, header.max_timestamp) == (timestamp, timestamp)
    assert header.is_control and header.is_transactional
    assert (header.base_sequence, header.record_count, header.last_offset_delta) == (NO_SEQUENCE, 1, 0)
    assert header.partition_leader_epoch == leader_epoch
    said = read_control_record(before + marker, len(before))
    assert said == ControlRecord(COMMIT if commit else ABORT, coordinator_epoch)
    assert said is not None and said.ends_transaction


@given(coordinator_epoch=COORDINATOR_EPOCHS, commit=st.booleans())
def test_other_clients_read_a_marker(coordinator_epoch: LeaderEpoch, commit: bool) -> None:
    marker = control_batch(ProducerId(1), Epoch(2), coordinator_epoch, commit, Milliseconds(3))
    (theirs,) = KafkaPythonReader(marker)
    assert (theirs.commit, theirs.abort) == (commit, not commit)
    (record,) = decode_batch(marker)
    assert record.key is not None and record.value is not None
    assert AiokafkaControlRecord.parse(record.key) == (COMMIT_MARKER if commit else ABORT_MARKER)
    key, _ = entity_reader(ControlRecordTypeSchema)(record.key[2:], 0)
    value, _ = entity_reader(EndTxnMarker)(record.value[2:], 0)
    assert (key.type_, value.coordinator_epoch) == (int(commit), int(coordinator_epoch))
    assert record.key[:2] == record.value[:2] == b"\x00\x00"


@given(coordinator_epoch=COORDINATOR_EPOCHS, commit=st.booleans())
def test_a_marker_of_kafkas_schema_is_read(coordinator_epoch: LeaderEpoch, commit: bool) -> None:
    key, value = io.BytesIO(), io.BytesIO()
    entity_writer(ControlRecordTypeSchema)(key, ControlRecordTypeSchema(type_=i16(int(commit))))
    entity_writer(EndTxnMarker)(value, EndTxnMarker(coordinator_epoch=i32(coordinator_epoch)))
    marker = _control(b"\x00\x00" + key.getvalue(), b"\x00\x00" + value.getvalue())
    assert read_control_record(marker) == ControlRecord(int(commit), coordinator_epoch)


def _control(key: bytes | None, value: bytes | None) -> bytes:
    return encode_batch(
        [(0, key, value, ())], producer_id=ProducerId(1), producer_epoch=Epoch(0), transactional=True, control=True
    )


@given(version=st.integers(0, 2**15 - 1), more=st.binary(max_size=20))
def test_what_a_higher_version_adds_is_left_alone(version: int, more: bytes) -> None:
    """EndTxnMarker v1 of KIP-890, for one, is flexible and names the transaction version."""
    marker = _control(struct.pack(">hh", version, COMMIT) + more, struct.pack(">hi", version, 7) + more)
    assert read_control_record(marker) == ControlRecord(COMMIT, LeaderEpoch(7))


@given(kind=st.integers(-(2**15), 2**15 - 1).filter(lambda kind: kind not in (ABORT, COMMIT)), value=st.binary())
def test_a_control_record_of_another_kind_ends_nothing(kind: int, value: bytes) -> None:
    """Those of Raft: a leader that changed, heads and feet of snapshots, voters."""
    said = read_control_record(_control(struct.pack(">hh", 0, kind), value))
    assert said == ControlRecord(kind, None)
    assert said is not None and not said.ends_transaction


def test_a_marker_that_compaction_has_removed_says_nothing() -> None:
    assert read_control_record(seal(b"", 0, 5, 5, last_offset_delta=0, transactional=True, control=True)) is None


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x00\x00"])
def test_a_control_record_without_a_whole_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(ProtocolError, match="no readable key"):
        read_control_record(_control(key, struct.pack(">hi", 0, 0)))


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00"])
@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_a_marker_without_a_whole_value_is_refused(value: bytes | None, kind: int) -> None:
    with pytest.raises(ProtocolError, match="no readable value"):
        read_control_record(_control(struct.pack(">hh", 0, kind), value))


@given(size=st.integers(0, 77))
def test_a_marker_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError):
        read_control_record(control_batch(ProducerId(1), Epoch(2), LeaderEpoch(3), True, Milliseconds(4))[:size])


@given(changes=st.lists(st.tuples(st.integers(0, 77), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_marker_says_something_or_gives_a_protocol_error(changes: list[tuple[int, int]]) -> None:
    marker = bytearray(control_batch(ProducerId(1), Epoch(2), LeaderEpoch(3), True, Milliseconds(4)))
    for place, value in changes:
        marker[place] = value
    try:
        said = read_control_record(marker)
    except ProtocolError:
        return
    assert said is None or isinstance(said.type, int)


@given(body=st.binary(max_size=40))
def test_garbage_behind_a_header_gives_a_protocol_error(body: bytes) -> None:
    """A control record with its key has 11 bytes at least: nothing shorter can say anything."""
    batch = seal(body, 1, 0, 0, transactional=True, control=True)
    try:
        said = read_control_record(batch)
    except ProtocolError:
        return
    assert said is not None
    assert len(body) >= 11
