"""One partition as it is read: what is damaged in it is named, and keeps nothing back that lies before it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.errors import ClientError, DamagedRecordsError
from fencepost.client.followed import Fetched, Followed
from fencepost.protocol.batch import stamp
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import LeaderEpoch, Offset, TopicPartition

pytestmark = pytest.mark.usefixtures("each_twin")

AT = TopicPartition("payments", 3)
_CRC_AT = 17
_CRC_SIZE = 4
_FIRST_RECORD = 61


def a_wrong_bit(batch: bytearray) -> None:
    batch[-1] ^= 1


def records_that_are_none(batch: bytearray) -> None:
    """Its checksum is right."""
    batch[_FIRST_RECORD] = 0xFF
    batch[_CRC_AT : _CRC_AT + _CRC_SIZE] = crc32c(batch[_CRC_AT + _CRC_SIZE :]).to_bytes(_CRC_SIZE, "big")


def log_of(sizes: list[int], damaged: int, damage: Callable[[bytearray], None]) -> list[tuple[int, bytes]]:
    """Batches of so many records with the offsets behind them, one of them damaged."""
    found, offset = [], 0
    for number, size in enumerate(sizes):
        batch = bytearray(encode_batch([(0, None, b"%d" % (offset + each), ()) for each in range(size)]))
        stamp(batch, 0, Offset(offset), LeaderEpoch(0))
        if number == damaged:
            damage(batch)
        offset += size
        found.append((offset, bytes(batch)))
    return found


def read(
    partition: Followed, log: list[tuple[int, bytes]], at_once: int, *, in_batches: bool, taken: list[int]
) -> None:
    """Append the offsets of all that can be had to `taken`, fetched some batches at a time."""
    while wanted := [batch for end, batch in log if end > partition.fetch_offset][:at_once]:
        partition.fetched = Fetched(partition.fetch_offset, memoryview(b"".join(wanted)), None, 0.0, Offset(0))
        if in_batches:
            taken += [record.offset for record in partition.take_batch() or ()]
            continue
        partition.decode()
        while partition.ready:
            taken.append(partition.ready.pop().offset)
            partition.handed_out(taken[-1])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_records_in_front_of_damage_are_handed_out_and_it_is_named_until_somebody_seeks_behind_it(
    sizes: list[int], data: st.DataObject
) -> None:
    damaged = data.draw(st.integers(0, len(sizes) - 1))
    damage = data.draw(st.sampled_from([a_wrong_bit, records_that_are_none]))
    at_once = data.draw(st.integers(1, len(sizes)))
    in_batches = damage is a_wrong_bit and data.draw(st.booleans())
    log = log_of(sizes, damaged, damage)
    first = log[damaged][0] - sizes[damaged]
    start = data.draw(st.integers(0, first + sizes[damaged] - 1))
    partition = Followed(AT, start)
    taken: list[int] = []
    for _ in range(2):
        with pytest.raises(DamagedRecordsError) as refused:
            read(partition, log, at_once, in_batches=in_batches, taken=taken)
        error = refused.value
        assert taken == list(range(start, first))
        assert isinstance(error, ClientError)
        assert (error.at, error.offset) == (AT, max(start, first)) == (AT, partition.position)
        assert f"payments-3 cannot be read from offset {max(start, first)} on" in str(error)
    behind = first + sizes[damaged]
    partition.seek(behind)
    taken.clear()
    read(partition, log, at_once, in_batches=in_batches, taken=taken)
    assert taken == list(range(behind, sum(sizes)))


def test_columns_of_what_lies_in_front_of_damage_have_all_that_was_fetched() -> None:
    log = log_of([2, 3, 1], 2, records_that_are_none)
    partition = Followed(AT, 1)
    partition.fetched = Fetched(1, memoryview(b"".join(batch for _, batch in log)), None, 0.0, Offset(6))
    partition.decode()
    batch = partition.take_batch()
    assert batch is not None
    assert batch.to_arrow("offset", "timestampType").to_pylist() == [
        {"offset": offset, "timestampType": 0} for offset in range(1, 5)
    ]
    assert batch.next_offset == 5


def test_nothing_is_said_of_the_epoch_of_what_lies_behind_damage() -> None:
    """A leader would take it for that of what was read, and not tell where its log parts from that (KIP-320)."""
    log = []
    for number, epoch in enumerate((5, 5, 6, 6, 6)):
        batch = bytearray(encode_batch([(0, None, b"x", ())]))
        stamp(batch, 0, Offset(number), LeaderEpoch(epoch))
        if number == 2:
            records_that_are_none(batch)
        log.append(bytes(batch))
    partition = Followed(AT, 0)
    partition.fetched = Fetched(0, memoryview(b"".join(log)), None, 0.0, Offset(5))
    partition.decode()
    assert [record.offset for record in partition.ready] == [1, 0]
    assert (partition.wanted.offset, partition.wanted.leader_epoch) == (2, -1)
