"""What a reader is shown of fetched batches, against a naive model (facts §8.2)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.client.records import opened
from fencepost.protocol.batch import stamp
from fencepost.protocol.control import control_batch
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId, TopicPartition

pytestmark = pytest.mark.usefixtures("each_twin")

CRC_AT = 17
PRODUCERS = st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("data"), PRODUCERS, st.integers(1, 3)),
        st.tuples(st.sampled_from(["commit", "abort"]), PRODUCERS, st.just(0)),
        st.tuples(st.just("plain"), st.just(9), st.integers(1, 3)),
    ),
    max_size=25,
)


@pytest.mark.promise("2014.control-records")
@example([("data", 0, 1), ("data", 1, 1), ("abort", 0, 0), ("data", 1, 1), ("abort", 1, 0)], 0)  # one ends in the other
@example([("data", 1, 1), ("data", 0, 1), ("abort", 1, 0), ("abort", 0, 0)], 0)  # the later one has the lesser id
@given(STEPS, st.integers(0, 30))
def test_aborted_and_control_records_are_hidden_and_the_position_passes_them(
    steps: list[tuple[str, int, int]], start: int
) -> None:
    data, offset = bytearray(), 0
    open_since: dict[int, int] = {}
    written: list[tuple[int, int | None]] = []
    ends: dict[tuple[int, int], str] = {}
    for kind, producer, count in steps:
        if kind in ("commit", "abort"):
            if producer not in open_since:
                continue
            batch = bytearray(
                control_batch(ProducerId(producer), Epoch(0), LeaderEpoch(0), kind == "commit", Milliseconds(0))
            )
            ends[producer, open_since.pop(producer)] = kind
            size = 1
        else:
            transactional = kind == "data"
            first = open_since.setdefault(producer, offset) if transactional else None
            records = [(0, None, b"%d" % (offset + n), ()) for n in range(count)]
            batch = bytearray(
                encode_batch(
                    records,
                    producer_id=ProducerId(producer if transactional else -1),
                    producer_epoch=Epoch(0 if transactional else -1),
                    base_sequence=0 if transactional else -1,
                    transactional=transactional,
                )
            )
            written += [(offset + n, None if first is None else producer * 1000 + first) for n in range(count)]
            size = count
        stamp(batch, 0, Offset(offset), LeaderEpoch(0))
        data += batch
        offset += size
    stable = min(open_since.values(), default=offset)
    aborted = [(producer, first) for (producer, first), kind in ends.items() if kind == "abort"]
    hidden = {producer * 1000 + first for producer, first in aborted}
    readable = bytes(data)
    there, position = opened(readable, aborted, start)
    found = there.records(TopicPartition("t", 0), start)
    expected = [at for at, transaction in written if at >= start and transaction not in hidden]
    assert [record.offset for record in found] == expected
    assert [record.value for record in found] == [b"%d" % at for at in expected]
    assert position == max(start, offset)
    assert stable <= offset


def test_a_batch_with_a_wrong_bit_is_refused_wherever_it_is() -> None:
    """From its checksum on: what is before that the broker writes itself."""
    whole = encode_batch([(0, b"key", b"value", ()), (1, None, b"another", (("h", b"x"),))])
    for at in range(CRC_AT, len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(ProtocolError):
            opened(bytes(damaged), None, 0)
    assert len(opened(whole, None, 0)[0].records(TopicPartition("t", 0), 0)) == 2


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_what_lies_before_a_damaged_batch_is_seen(sizes: list[int]) -> None:
    data, offset, start = bytearray(), 0, 0
    for size in sizes:
        batch = bytearray(encode_batch([(0, None, b"x", ())] * size))
        stamp(batch, 0, Offset(offset), LeaderEpoch(0))
        start, offset = offset, offset + size
        data += batch
    data[-1] ^= 1
    if start == 0:
        with pytest.raises(ProtocolError):
            opened(bytes(data), None, 0)
        return
    there, position = opened(bytes(data), None, 0)
    assert position == start
    assert len(there.records(TopicPartition("t", 0), 0)) == start
