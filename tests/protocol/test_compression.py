"""Every codec against itself, against two other implementations, and against damaged and hostile data."""

from __future__ import annotations

import gzip
import resource
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import nullcontext, suppress
from random import Random

import aiokafka.codec
import cramjam
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.compression import (
    FOLDED_IN_A_STEP,
    Compression,
    TooLarge,
    check_start,
    compress,
    compress_in_steps,
    decompress,
)
from fencepost.protocol.errors import ProtocolError

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
MEGABYTE = 1 << 20
#: Of the xerial framing.
BLOCK = 32 * 1024

#: What compresses and what does not; some of it longer than one block of the xerial framing.
DATA = st.one_of(
    st.binary(max_size=2000),
    st.builds(lambda part, times: part * times, st.binary(max_size=300), st.sampled_from([1, 40, 400])),
)

AIOKAFKA: dict[Compression, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    Compression.GZIP: (aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
    Compression.SNAPPY: (aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
    Compression.LZ4: (aiokafka.codec.lz4_encode, aiokafka.codec.lz4_decode),
    Compression.ZSTD: (aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
}
PYARROW = {Compression.GZIP: "gzip", Compression.SNAPPY: "snappy", Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}


def name_of(compression: object) -> str:
    return compression.name if isinstance(compression, Compression) else str(compression)


@pytest.mark.parametrize("compression", Compression, ids=name_of)
@given(data=DATA)
def test_data_comes_back(compression: Compression, data: bytes) -> None:
    packed = compress(compression, data)
    assert decompress(compression, packed) == data
    assert decompress(compression, memoryview(bytearray(packed))) == data


@pytest.mark.parametrize("compression", CODECS, ids=name_of)
@given(data=DATA)
def test_aiokafka_reads_and_writes_the_same_form(compression: Compression, data: bytes) -> None:
    pack, unpack = AIOKAFKA[compression]
    assert decompress(compression, bytes(pack(data))) == data
    assert bytes(unpack(compress(compression, data))) == data


@pytest.mark.parametrize("compression", CODECS, ids=name_of)
@given(data=DATA)
def test_what_arrow_writes_is_read(compression: Compression, data: bytes) -> None:
    """Its snappy is one block without a frame, as librdkafka sends it."""
    packed = pyarrow.Codec(PYARROW[compression]).compress(data, asbytes=True)
    assert decompress(compression, packed) == data


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.LZ4, Compression.ZSTD], ids=name_of)
@given(data=DATA)
def test_arrow_reads_what_is_written(compression: Compression, data: bytes) -> None:
    packed = compress(compression, data)
    assert pyarrow.Codec(PYARROW[compression]).decompress(packed, len(data), asbytes=True) == data


@pytest.mark.parametrize("size", [0, 1, FOLDED_IN_A_STEP, FOLDED_IN_A_STEP + 1, 5 * FOLDED_IN_A_STEP])
@pytest.mark.parametrize("compression", Compression, ids=name_of)
def test_much_data_is_compressed_in_steps_and_comes_back(compression: Compression, size: int) -> None:
    data = (Random(size).randbytes(size // 2) + b"again " * size)[:size]
    steps, pauses = compress_in_steps(compression, data), 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            packed = done.value
            break
        pauses += 1
    assert decompress(compression, packed) == data
    if compression is not Compression.NONE:
        assert pauses == (-(-size // FOLDED_IN_A_STEP) if size > FOLDED_IN_A_STEP else 0)
        assert bytes(AIOKAFKA[compression][1](packed)) == data
    if compression is Compression.LZ4:
        assert packed[4] & 0x20, "blocks do not depend on each other"


@given(data=DATA)
def test_lz4_blocks_do_not_depend_on_each_other(data: bytes) -> None:
    """Java's reader refuses others: bit 5 of the flags says so."""
    packed = compress(Compression.LZ4, data)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20


@pytest.mark.parametrize("compression", CODECS, ids=name_of)
def test_data_that_is_cut_off_is_refused(compression: Compression) -> None:
    data = bytes(range(256)) * 3
    packed = compress(compression, data)
    for size in range(len(packed)):
        # A xerial frame without its blocks is a whole one: it has no end of its own.
        if compression is Compression.SNAPPY and size == 16:
            assert decompress(compression, packed[:size]) == b""
        else:
            with pytest.raises(ProtocolError):
                decompress(compression, packed[:size])


@pytest.mark.parametrize("compression", CODECS, ids=name_of)
@given(data=DATA, tail=st.binary(min_size=1, max_size=3))
def test_bytes_after_the_end_are_refused(compression: Compression, data: bytes, tail: bytes) -> None:
    with pytest.raises(ProtocolError):
        decompress(compression, compress(compression, data) + tail)


@given(members=st.lists(DATA, min_size=1, max_size=4))
def test_gzip_data_may_have_several_members(members: list[bytes]) -> None:
    """As Java's reader has it; the limit is for all of them."""
    packed, whole = b"".join(map(gzip.compress, members)), b"".join(members)
    assert decompress(Compression.GZIP, packed) == whole
    assert decompress(Compression.GZIP, packed, len(whole)) == whole
    if whole:
        with pytest.raises(ProtocolError, match=f"more than {len(whole) - 1} bytes"):
            decompress(Compression.GZIP, packed, len(whole) - 1)
    with pytest.raises(ProtocolError):
        decompress(Compression.GZIP, packed[:-1])


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD], ids=name_of)
@given(frames=st.lists(DATA, min_size=2, max_size=4))
def test_there_may_be_several_frames(compression: Compression, frames: list[bytes]) -> None:
    """Before cramjam 2.14 those of lz4 behind the first one were passed over, also where that is empty."""
    packed, whole = b"".join(compress(compression, frame) for frame in frames), b"".join(frames)
    assert decompress(compression, packed) == whole
    assert decompress(compression, packed, len(whole)) == whole
    with pytest.raises(ProtocolError):
        decompress(compression, packed[:-1])


LEVELS = {
    Compression.GZIP: (-1, *range(1, 10)),
    Compression.LZ4: range(1, 18),
    Compression.ZSTD: (-131_072, *range(23)),
}


@pytest.mark.parametrize(("compression", "level"), [(codec, level) for codec in LEVELS for level in LEVELS[codec]])
def test_every_level_is_read_as_any_other(compression: Compression, level: int) -> None:
    data = b"".join(b"record %d of %d;" % (n, n * n) for n in range(2000))
    packed = compress(compression, data, level)
    assert decompress(compression, packed) == AIOKAFKA[compression][1](packed) == data
    weakest, strongest = (len(compress(compression, data, each)) for each in (1, max(LEVELS[compression])))
    assert strongest < weakest


@pytest.mark.parametrize("compression", CODECS, ids=name_of)
@given(
    data=st.binary(max_size=300), changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4)
)
def test_damaged_data_gives_bytes_or_a_protocol_error(
    compression: Compression, data: bytes, changes: list[tuple[int, int]]
) -> None:
    packed = bytearray(compress(compression, data))
    for place, value in changes:
        packed[place % len(packed)] = value
    try:
        assert len(decompress(compression, packed, MEGABYTE)) <= MEGABYTE
    except ProtocolError:
        pass


@pytest.mark.parametrize("compression", CODECS, ids=name_of)
@given(data=st.binary(max_size=60))
def test_garbage_gives_bytes_or_a_protocol_error(compression: Compression, data: bytes) -> None:
    try:
        assert len(decompress(compression, data, MEGABYTE)) <= MEGABYTE
    except ProtocolError:
        pass


@pytest.mark.parametrize("compression", CODECS, ids=name_of)
@given(size=st.integers(1, 100_000))
def test_the_limit_is_exact(compression: Compression, size: int) -> None:
    packed = compress(compression, bytes(size))
    assert decompress(compression, packed, size) == bytes(size)
    with pytest.raises(ProtocolError, match="unfolds to more than"):
        decompress(compression, packed, size - 1)


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _bomb(compression: Compression, megabytes: int) -> bytes:
    """So many megabytes of zeros, packed without ever holding them."""
    if compression is Compression.SNAPPY:
        frame = compress(compression, bytes(BLOCK))
        return frame + frame[16:] * (megabytes * MEGABYTE // BLOCK - 1)
    if compression is Compression.GZIP:
        deflate = zlib.compressobj(wbits=31)
        return b"".join([deflate.compress(bytes(MEGABYTE)) for _ in range(megabytes)]) + deflate.flush()
    packer = cramjam.lz4.Compressor(block_linked=False) if compression is Compression.LZ4 else cramjam.zstd.Compressor()
    for _ in range(megabytes):
        packer.compress(bytes(MEGABYTE))
    return bytes(packer.finish())


@pytest.mark.parametrize("compression", CODECS, ids=name_of)
def test_a_bomb_is_refused_before_it_takes_memory(compression: Compression) -> None:
    bomb = _bomb(compression, 256)
    assert len(bomb) < 16 * MEGABYTE
    before = _peak_megabytes()
    with pytest.raises(ProtocolError, match="unfolds to more than"):
        decompress(compression, bomb, MEGABYTE)
    assert _peak_megabytes() - before < 64


@pytest.mark.parametrize("compression", CODECS, ids=name_of)
@pytest.mark.parametrize("damaged", [False, True], ids=["too large", "damaged"])
def test_an_error_keeps_nothing_of_what_was_unfolded(compression: Compression, damaged: bool) -> None:
    """An exception keeps the frames that it came through, as long as somebody keeps the exception."""
    bomb = _bomb(compression, 8)
    data, limit = (bomb[:-20], 16 * MEGABYTE) if damaged else (bomb, 7 * MEGABYTE)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        with pytest.raises(ProtocolError) as refused:
            decompress(compression, data, limit)
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert isinstance(refused.value, TooLarge) is not damaged
    assert kept < MEGABYTE


def test_a_snappy_block_that_lies_about_its_size_is_refused_unread() -> None:
    before = _peak_megabytes()
    for claim in (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff"):
        with pytest.raises(ProtocolError):
            decompress(Compression.SNAPPY, claim + b"\x00" * 20)
    assert _peak_megabytes() - before < 64


def test_gzip_members_are_read_piece_by_piece_and_are_not_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is behind a member must not be copied once for each member."""
    fed: list[int] = []
    make = zlib.decompressobj

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._inner = make(wbits)

        def decompress(self, data: bytes, most: int) -> bytes:
            fed.append(len(data))
            return self._inner.decompress(data, most)

        @property
        def eof(self) -> bool:
            return self._inner.eof

        @property
        def unused_data(self) -> bytes:
            return self._inner.unused_data

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    noise = bytes(n * n % 251 for n in range(3 * MEGABYTE))
    packed = gzip.compress(noise, 0)
    assert decompress(Compression.GZIP, packed) == noise
    assert sum(fed) <= len(packed) + 64 * 1024
    assert decompress(Compression.GZIP, gzip.compress(b"ab", 9) * 60) == b"ab" * 60
    fed.clear()
    with pytest.raises(ProtocolError, match="more members than data"):
        decompress(Compression.GZIP, gzip.compress(b"") * 100_000, MEGABYTE)
    assert len(fed) < 100 and max(fed) <= 64 * 1024


def test_snappy_blocks_are_not_many(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[bytes] = []

    def count(block: bytes) -> bytes:
        unpacked.append(block)
        return b""

    frame = compress(Compression.SNAPPY, b"")
    monkeypatch.setattr(cramjam.snappy, "decompress_raw", count)
    assert decompress(Compression.SNAPPY, frame + frame[16:] * 1000, MEGABYTE) == b""
    unpacked.clear()
    with pytest.raises(ProtocolError, match="more blocks than data"):
        decompress(Compression.SNAPPY, frame + frame[16:] * 100_000, MEGABYTE)
    assert len(unpacked) < 1100


def test_too_large_is_told_from_damaged() -> None:
    for compression in CODECS:
        packed = compress(compression, bytes(100_000))
        with pytest.raises(TooLarge):
            decompress(compression, packed, 99_999)
        with pytest.raises(ProtocolError) as damaged:
            decompress(compression, packed[:-3], 100_000)
        assert not isinstance(damaged.value, TooLarge)


@pytest.mark.parametrize("framed", [False, True], ids=["a block", "in Xerial's frame"])
@pytest.mark.parametrize("tag", range(4))
def test_what_is_first_in_a_snappy_block_can_be_no_copy_and_is_there(tag: int, framed: bool) -> None:
    """There is nothing yet that could be copied."""
    front = b"\x82SNAPPY\0" + bytes((0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9)) if framed else b""
    for size in (b"\x05", b"\x85\x01", b"\0"):
        for rest in (b"", bytes((tag,)), bytes((tag, 1))):
            is_right = tag == 0 and len(rest) == 2 and size != b"\0"
            with nullcontext() if is_right else pytest.raises(ProtocolError, match="does not begin as such"):
                check_start(Compression.SNAPPY, front + size + rest)


def lz4_frame(flags: int, blocks: list[bytes]) -> bytes:
    """A frame of blocks that stand there as they are, with the parts that its flags name; all sums are 0."""
    sum_of_a_block, size, sum_of_all = (bool(flags >> bit & 1) for bit in (4, 3, 2))
    parts = [(1 << 31 | len(block)).to_bytes(4, "little") + block + bytes(4 * sum_of_a_block) for block in blocks]
    head = b"\x04\x22\x4d\x18" + bytes((0b0110_0000 | flags, 0x40)) + bytes(8 * size) + b"\0"
    return head + b"".join(parts) + bytes(4) + bytes(4 * sum_of_all)


@pytest.mark.parametrize("flags", [flags << 2 for flags in range(8)])
def test_an_lz4_frame_behind_another_is_told_from_one_that_is_in_it(flags: int) -> None:
    """Java's reader knows of the first one only.  Records may hold what begins as a frame."""
    inside = lz4_frame(flags, [b"a value", b"of two blocks"])
    one = lz4_frame(flags, [inside] * 3 + [b"x"])
    check_start(Compression.LZ4, one)
    for end in range(len(inside), len(one)):
        check_start(Compression.LZ4, one[:end])  # a cut is found when it is unfolded
    for second in (lz4_frame(0, []), lz4_frame(flags, [inside])):
        with pytest.raises(ProtocolError, match="several frames"):
            check_start(Compression.LZ4, one + second)


def test_the_end_of_an_lz4_frame_of_very_many_small_blocks_is_not_looked_for() -> None:
    """It would take long, and nobody writes such a one."""
    full = lz4_frame(0, [bytes(60)] * 15_000 + [b"\x04\x22\x4d\x18"])
    check_start(Compression.LZ4, full)
    with pytest.raises(ProtocolError, match="several frames"):
        check_start(Compression.LZ4, lz4_frame(0, [b"x"] * 15_000 + [b"\x04\x22\x4d\x18"]))


def test_an_lz4_frame_is_one_that_java_reads() -> None:
    """Of version 1, with blocks that do not depend on each other, without a dictionary; the bit between is reserved."""
    taken = set()
    for flags in range(256):
        with suppress(ProtocolError):
            check_start(Compression.LZ4, b"\x04\x22\x4d\x18" + bytes((flags, 0x40, 0)) + bytes(8))
            taken.add(flags)
    assert taken == {0b0110_0000 | parts << 2 for parts in range(8)}
