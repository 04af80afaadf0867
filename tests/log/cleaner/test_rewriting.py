"""A batch with some of its records has them as they were."""

from __future__ import annotations

from random import Random

import pytest

from fencepost.log.cleaner.rewriting import UNFOLDED_AT_ONCE, emptied, only_key, records_section, rewritten, spans
from fencepost.protocol.batch import DELETE_HORIZON, BatchHeader, crc_matches, read_header, set_max_timestamp, stamp
from fencepost.protocol.compression import FOLDED_IN_A_STEP, Compression
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.records import NewRecord, decode_batch, encode_batch
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId
from fencepost.runtime import at_once

START = 1_700_000_000_000


def section(header: BatchHeader, batch: bytes | bytearray) -> bytes:
    found = records_section(header, batch)
    assert isinstance(found, bytes), "it is small"
    return found


def some(random: Random, count: int) -> list[NewRecord]:
    keys = (None, b"", b"key", bytes(200))
    values = (None, b"", b"value", bytes(9_000))
    return [
        (
            START + random.randrange(-(10**6), 10**6),
            random.choice(keys),
            random.choice(values),
            random.choice(((), (("h", b"1"), ("n", None)))),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("horizon", [None, START + 86_400_000, 5])
@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("codec", list(Compression))
def test_what_stays_is_as_it_was(codec: Compression, append_time: bool, horizon: Milliseconds | None) -> None:
    for seed in range(12):
        random = Random(seed)
        count = random.choice((1, 2, 20))
        data = bytearray(
            encode_batch(
                some(random, count),
                compression=codec,
                producer_id=ProducerId(5),
                producer_epoch=Epoch(2),
                base_sequence=9,
                transactional=True,
            )
        )
        if append_time:
            set_max_timestamp(data, 0, read_header(data), Milliseconds(START + 7))
        stamp(data, 0, Offset(1000), LeaderEpoch(4))
        header = read_header(data)
        records, body = decode_batch(data), section(header, data)
        found = list(spans(header, body))
        assert [(s.offset, s.key, s.has_value) for s in found] == [
            (r.offset, r.key, r.value is not None) for r in records
        ]
        chosen = sorted(random.sample(range(count), random.randint(1, count)))
        anew = at_once(rewritten(header, body, [found[n] for n in chosen], horizon))
        after = read_header(anew)
        assert decode_batch(anew) == [records[n] for n in chosen]
        assert crc_matches(anew, 0, after) and after.size == len(anew)
        assert after.max_timestamp == max(records[n].timestamp for n in chosen)
        kept = ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "last_sequence")
        assert [getattr(after, name) for name in kept] == [getattr(header, name) for name in kept]
        assert after.partition_leader_epoch == 4
        assert after.attributes == header.attributes | (0 if horizon is None else DELETE_HORIZON)
        assert horizon is None or after.base_timestamp == horizon
        # A second pass over what got its horizon leaves that as it is.
        left = section(after, anew)
        again = at_once(rewritten(after, left, list(spans(after, left))[:1], None))
        assert decode_batch(again) == [records[chosen[0]]]
        assert read_header(again).attributes == after.attributes


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_a_batch_of_very_many_records_is_rewritten_in_steps(codec: Compression) -> None:
    data = encode_batch([(START, b"%d" % n, b"value", ()) for n in range(20_000)], compression=codec)
    header = read_header(data)
    body = section(header, data)
    found = list(spans(header, body))
    pauses = sum(1 for _ in rewritten(header, body, found[:-1], Milliseconds(START + 5)))
    assert pauses >= (len(found) - 1) // 1000 + (len(body) // FOLDED_IN_A_STEP if codec else 0)


def test_an_emptied_batch_keeps_what_its_producer_and_the_log_need() -> None:
    data = bytearray(
        encode_batch(
            [(START, b"k", b"v", ()), (START + 5, b"k", b"v", ())],
            compression=Compression.ZSTD,
            producer_id=ProducerId(5),
            producer_epoch=Epoch(2),
            base_sequence=2**31 - 1,
            transactional=True,
        )
    )
    stamp(data, 0, Offset(1000), LeaderEpoch(4))
    before, empty = read_header(data), emptied(read_header(data))
    after = read_header(empty)
    assert decode_batch(empty) == [] and len(empty) == 61 and crc_matches(empty, 0, after)
    assert (after.base_offset, after.last_offset, after.last_sequence) == (1000, 1001, 0)
    assert (after.max_timestamp, after.base_timestamp, after.record_count) == (START + 5, -1, 0)
    assert after.attributes == before.attributes & ~7


@pytest.mark.parametrize("cut", range(61, 80))
def test_damaged_records_are_told(cut: int) -> None:
    data = encode_batch([(START, b"key", b"value", ()), (START, b"key", b"value", ())])
    header = read_header(data)
    with pytest.raises(ProtocolError):
        list(spans(header, data[61:cut]))
    with pytest.raises(ProtocolError):
        list(spans(header._replace(record_count=1), data[61:]))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
@pytest.mark.parametrize("key", [None, b"", b"k", b"k" * 63, b"k" * 64, b"k" * 9000])
@pytest.mark.parametrize("value", [None, b"", b"v" * 50, b"v" * 9000])
@pytest.mark.parametrize("count", [1, 2])
def test_the_short_way_to_the_only_key_finds_it_or_nothing(
    codec: Compression, key: bytes | None, value: bytes | None, count: int
) -> None:
    data = encode_batch([(START + n, key, value, ()) for n in range(count)], compression=codec)
    found = only_key(read_header(data), memoryview(data))
    assert found in (None, key)
    if count == 1 and codec is Compression.NONE and key is not None and len(key) < 64 and len(value or b"") < 9000:
        assert found == key


@pytest.mark.parametrize("codec", list(Compression))
def test_what_unfolds_to_much_is_left_to_another_thread(codec: Compression) -> None:
    data = encode_batch([(START, b"k", bytes(2 * UNFOLDED_AT_ONCE), ())], compression=codec)
    found = records_section(read_header(data), data)
    assert callable(found) is (codec is not Compression.NONE)
    whole = found() if callable(found) else found
    (span,) = spans(read_header(data), whole)
    assert span.end - span.start > 2 * UNFOLDED_AT_ONCE
