"""The bytes of `__transaction_state` records, against facts §10.3."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.coordinator.transaction.transaction_doubles import START, STORED_STATES, A, C, transaction

from fencepost.coordinator.loading import JournalUnreadable
from fencepost.coordinator.transaction import journal
from fencepost.coordinator.transaction.state import State
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.batch import read_header
from fencepost.protocol.records import Record, decode_batch, encode_batch
from fencepost.protocol.types import Epoch, Milliseconds, ProducerId, ProducerIdAndEpoch, TopicPartition


def stored(metadata: TransactionMetadata, level: int) -> Record:
    batch = journal.encode(metadata, level)
    header = read_header(batch)
    assert header.size == len(batch)
    assert (header.producer_id, header.attributes, header.record_count) == (-1, 0, 1)
    assert header.base_timestamp == metadata.last_update_timestamp
    [record] = decode_batch(batch)
    return record


def entries_of(batch: bytes, partition: int = 0) -> list[journal.Entry]:
    [found] = journal.read(partition, iter([(read_header(batch), batch)]))
    return [entry for record in found if (entry := journal.decode(partition, record)) is not None]


def loaded(batch: bytes) -> TransactionMetadata | None:
    [entry] = entries_of(batch)
    assert entry.transactional_id == "t"
    return entry.transaction


FIXED = struct.Struct(">qhib")


def test_the_key_is_the_id_as_a_short_string() -> None:
    assert stored(transaction(State.EMPTY), 2).key == b"\x00\x00\x00\x01t"
    assert journal.encode_key("größe") == b"\x00\x00\x00\x07" + "größe".encode()


def test_value_version_0() -> None:
    record = stored(transaction(State.ONGOING), 0)
    assert record.value == b"".join(
        (
            b"\x00\x00",
            FIXED.pack(10, 7, 60_000, 1),
            struct.pack(">i", 2),
            struct.pack(">h1sii", 1, b"a", 1, 0),
            struct.pack(">h1sii", 1, b"b", 1, 0),
            struct.pack(">qq", START - 4000, START - 5000),
        )
    )
    assert [name for name, _ in record.headers] == ["fencepost"]


def test_value_version_0_of_an_empty_id_has_no_partitions() -> None:
    record = stored(transaction(State.EMPTY), 0)
    assert record.value is not None
    assert record.value[: 2 + FIXED.size + 4] == b"\x00\x00" + FIXED.pack(10, 7, 60_000, 0) + b"\xff\xff\xff\xff"


@pytest.mark.promise("890.record")
@pytest.mark.parametrize("level", [1, 2])
def test_value_version_1(level: int) -> None:
    record = stored(transaction(State.PREPARE_COMMIT, next_producer_id=99, client_transaction_version=2), level)
    tags = b"".join(
        (
            b"\x04",
            b"\x00\x08" + struct.pack(">q", 10),
            b"\x01\x08" + struct.pack(">q", 99),
            b"\x02\x02" + struct.pack(">h", 2),
            b"\x90\x4e\x02" + struct.pack(">h", 4),
        )
    )
    assert record.value == b"".join(
        (
            b"\x00\x01",
            FIXED.pack(10, 7, 60_000, 2),
            b"\x03",
            b"\x02a\x02" + struct.pack(">i", 0) + b"\x00",
            b"\x02b\x02" + struct.pack(">i", 0) + b"\x00",
            struct.pack(">qq", START - 4000, START - 5000),
            tags,
        )
    )
    assert record.headers == ()


def test_a_completed_transaction_has_an_empty_list_and_not_none() -> None:
    for state, expected in ((State.EMPTY, b"\x00"), (State.COMPLETE_ABORT, b"\x01")):
        value = stored(transaction(state), 2).value
        assert value is not None
        assert value[2 + FIXED.size : 3 + FIXED.size] == expected


def test_what_another_coordinator_wrote_is_read_with_care() -> None:
    """Without our tagged fields only the current epoch is known to be the running instance's."""
    value = b"\x00\x00" + FIXED.pack(10, 7, 60_000, 4) + struct.pack(">iqq", 0, START, START)
    metadata = loaded(encode_batch([(START, b"\x00\x00\x00\x01t", value, ())]))
    assert metadata is not None
    assert (metadata.state, metadata.instance_epoch, metadata.previous_producer_id) == (State.COMPLETE_COMMIT, 7, -1)
    assert (metadata.claimed, metadata.timed_out, metadata.client_transaction_version) == ((-1, -1), (-1, -1), 0)


def test_a_key_of_an_unknown_version_is_nobodys() -> None:
    batch = encode_batch([(START, b"\x00\x01\x00\x01t", b"\x00\x09", ())])
    assert entries_of(batch) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\x00", b""),
        (b"\x00\x00\x00\x05t", b""),
        (b"\x00\x00\x00\x01t", b""),
        (b"\x00\x00\x00\x01t", b"\x00\x02" + bytes(60)),
        (b"\x00\x00\x00\x01t", b"\x00\x01" + bytes(3)),
        (b"\x00\x00\x00\x01t", b"\x00\x00" + FIXED.pack(1, 1, 1, 6) + struct.pack(">iqq", 0, 1, 1)),
        (b"\x00\x00\x00\x01t", b"\x00\x00" + FIXED.pack(1, 1, 1, 99) + struct.pack(">iqq", 0, 1, 1)),
    ],
)
def test_what_cannot_be_read_is_not_left_out(key: bytes | None, value: bytes) -> None:
    batch = encode_batch([(START, key, value, ())], base_offset=17)
    with pytest.raises(JournalUnreadable, match="__transaction_state-5 cannot be read at offset 17"):
        entries_of(batch, 5)


def test_tombstones() -> None:
    batch = journal.tombstones(["t", "u"], START)
    entries = entries_of(batch)
    assert [(entry.transactional_id, entry.transaction) for entry in entries] == [("t", None), ("u", None)]
    assert list(journal.in_batches([])) == []
    huge = "x" * 20_000
    assert list(journal.in_batches([huge, "a", "b"])) == [[huge], ["a", "b"]]


int16 = st.integers(-1, 32767)
int64 = st.integers(-1, 2**63 - 1)
pairs = st.builds(lambda p, e: ProducerIdAndEpoch(ProducerId(p), Epoch(e)), int64, int16)


@pytest.mark.promise("890.record")
@given(
    st.sampled_from(STORED_STATES),
    st.lists(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 9)), max_size=6),
    st.tuples(int64, int16, int64, int64, int16, st.integers(0, 2**31 - 1), int64, st.integers(0, 2), int16),
    st.tuples(pairs, pairs),
    st.sampled_from([0, 1, 2]),
)
def test_what_is_written_is_what_is_read(
    state: State,
    partitions: list[TopicPartition],
    numbers: tuple[int, int, int, int, int, int, int, int, int],
    remembered: tuple[ProducerIdAndEpoch, ProducerIdAndEpoch],
    level: int,
) -> None:
    producer_id, epoch, previous, following, next_epoch, timeout, start, version, instance = numbers
    metadata = transaction(
        state,
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=previous,
        next_producer_id=following,
        next_producer_epoch=next_epoch,
        timeout_ms=timeout,
        partitions={} if state is State.EMPTY else dict.fromkeys(partitions),
        start_timestamp=start,
        last_update_timestamp=Milliseconds(START),
        client_transaction_version=version,
        instance_epoch=max(instance, 0),
        claimed=remembered[0],
        timed_out=remembered[1],
    )
    read = loaded(journal.encode(metadata, level))
    assert read is not None
    assert dict(read.partitions) == dict(metadata.partitions)
    assert read._replace(partitions=metadata.partitions) == metadata


def test_partitions_are_grouped_by_topic() -> None:
    mixed = dict.fromkeys([C, A, TopicPartition("b", 2), TopicPartition("a", 5)])
    read = loaded(journal.encode(transaction(State.ONGOING, partitions=mixed), 2))
    assert read is not None
    assert list(read.partitions) == [C, ("b", 2), A, ("a", 5)]
