"""What a declared class is: slots, keywords, defaults, equality; and how each kind of field stands on the wire."""

from __future__ import annotations

import pytest

from fencepost.protocol.codec import decode, encode
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.message import between, data, since, struct, tagged, until
from fencepost.protocol.types import binary, boolean, float64, int8, int16, int32, int64, string, uint16, uint32


@struct
class Point:
    x: int8
    y: int8 = since(2, default=9)


@data(versions="0-3", flexible="2+")
class Sample:
    """One field of every age."""

    always: int32
    early: int16 = until(1, default=-2)
    middle: int16 = between(1, 2, default=-3)
    late: string = since(2, default="none")
    points: list[Point] = since(1, default=[])
    low: int32 = tagged(0, since=2, default=5)
    high: string | None = tagged(300, since=2, default=None)
    place: Point | None = tagged(1, since=3, default=None)


@data(versions="0-1", flexible="1+")
class Plain:
    text: string
    raw: binary
    numbers: list[int32]
    words: list[string]


@data(versions="0-1", flexible="1+")
class Nullable:
    text: string | None = None
    raw: binary | None = None
    numbers: list[int32] | None = None
    point: Point | None = None


@data(versions="0")
class Fixed:
    flag: boolean
    port: uint16
    count: uint32
    offset: int64
    share: float64


def test_fields_are_keywords_with_defaults_and_slots() -> None:
    sample = Sample(always=1)
    assert (sample.early, sample.middle, sample.late, sample.points, sample.low) == (-2, -3, "none", [], 5)
    with pytest.raises(TypeError):
        Sample()  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        sample.unheard_of = 1  # type: ignore[attr-defined]


def test_a_default_list_belongs_to_one_message_only() -> None:
    Sample(always=1).points.append(Point(x=1))
    assert Sample(always=1).points == []
    decode(Sample, encode(Sample(always=1), 0), 0).points.append(Point(x=1))
    assert decode(Sample, encode(Sample(always=1), 0), 0).points == []


def test_messages_are_equal_by_their_fields_and_kind() -> None:
    assert Point(x=1, y=2) == Point(x=1, y=2)
    assert Point(x=1, y=2) != Point(x=1, y=3)
    other: object = Sample(always=1)
    assert other != Point(x=1)
    assert repr(Point(x=1, y=2)) == "Point(x=1, y=2)"


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, b"\0\0\0\x01\0\x0a"),
        (1, b"\0\0\0\x01\0\x0a\0\x0b\0\0\0\x01\x07"),
        (2, b"\0\0\0\x01\0\x0b\x03hi\x02\x07\x08\0\0"),
        (3, b"\0\0\0\x01\x03hi\x02\x07\x08\0\0"),
    ],
)
def test_a_version_has_its_own_fields(version: int, body: bytes) -> None:
    sample = Sample(always=1, early=10, middle=11, late="hi", points=[Point(x=7, y=8)])
    assert encode(sample, version) == body
    again = decode(Sample, body, version)
    assert again.early == (10 if version < 2 else -2)
    assert again.middle == (11 if version in (1, 2) else -3)
    assert again.late == ("hi" if version >= 2 else "none")
    assert again.points == ([] if version == 0 else [Point(x=7, y=8 if version >= 2 else 9)])


def test_tagged_fields_are_written_in_order_and_only_where_they_differ() -> None:
    front = b"\0\0\0\x01\x05none\x01"
    assert encode(Sample(always=1), 3) == front + b"\0"
    assert encode(Sample(always=1, high="a", low=6), 3) == front + b"\x02\0\x04\0\0\0\x06\xac\x02\x02\x02a"
    assert encode(Sample(always=1, place=Point(x=3, y=4)), 3) == front + b"\x01\x01\x03\x03\x04\0"
    both = front + b"\x02\x01\x03\x03\x04\0\xac\x02\x02\x02a"
    assert encode(Sample(always=1, high="a", place=Point(x=3, y=4)), 3) == both


def test_tagged_fields_of_a_later_version_are_neither_written_nor_read() -> None:
    front = b"\0\0\0\x01\xff\xfd\x05none\x01"
    assert encode(Sample(always=1, place=Point(x=3, y=4)), 2) == front + b"\0"
    assert decode(Sample, front + b"\x01\x01\x03\x03\x04\0", 2) == Sample(always=1)


def test_unknown_tagged_fields_are_stepped_over() -> None:
    """At every level, before, between and behind the known ones (KIP-482)."""
    body = b"\0\0\0\x01\x05none\x02\x07\x08\x01\x63\x02??" + b"\x03\0\x04\0\0\0\x06\x09\0\xac\x02\x02\x02a"
    assert decode(Sample, body, 3) == Sample(always=1, points=[Point(x=7, y=8)], low=6, high="a")


@pytest.mark.parametrize("tag", [b"\x09", b"\xff\x7f", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f"])
def test_a_tag_may_be_any_number_of_32_bits(tag: bytes) -> None:
    body = b"\0\0\0\x01\x05none\x01\x01" + tag + b"\x03abc"
    assert decode(Sample, body, 3) == Sample(always=1)


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01\0\x03\0\0\0",  # shorter than its type
        b"\x01\0\x05\0\0\0\x06\0",  # longer than its type
        b"\x01\0\x04\0\0",  # cut off
        b"\x01\x09\x7f",  # an unknown one, cut off
        b"\x02\0\x04\0\0\0\x06",  # fewer than announced
        b"\xff\xff\xff\xff\x0f",  # far more than announced
        b"\x01\xac\x02\x02\x09a",  # its string is longer than itself
        b"\x01\xff\xff\xff\xff\xff\x01\0",  # a tag of too many bytes
    ],
)
def test_tagged_fields_that_do_not_fit_are_refused(tags: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(Sample, b"\0\0\0\x01\x05none\x01" + tags, 3)


def test_null_is_refused_where_it_may_not_be() -> None:
    for body in (b"\xff\xff", b"\0\0\xff\xff\xff\xff", b"\0\0\0\0\0\0\xff\xff\xff\xff"):
        with pytest.raises(ProtocolError, match="is null"):
            decode(Plain, body + bytes(20), 0)
    for body in (b"\0", b"\x01\0", b"\x01\x01\0", b"\x01\x01\x01\0"):
        with pytest.raises(ProtocolError, match="is null"):
            decode(Plain, body + bytes(20), 1)
    for message in (
        Plain(text=None, raw=b"", numbers=[], words=[]),  # type: ignore[arg-type]
        Plain(text="", raw=None, numbers=[], words=[]),  # type: ignore[arg-type]
        Plain(text="", raw=b"", numbers=None, words=[]),  # type: ignore[arg-type]
        Plain(text="", raw=b"", numbers=[], words=[None]),  # type: ignore[list-item]
    ):
        for version in (0, 1):
            with pytest.raises(TypeError, match="None"):
                encode(message, version)


def test_nulls_and_their_opposites() -> None:
    assert encode(Nullable(), 0) == b"\xff" * 11
    assert encode(Nullable(), 1) == b"\0\0\0\xff\0"
    full = Nullable(text="", raw=b"", numbers=[], point=Point(x=1))
    assert encode(full, 0) == bytes(10) + b"\x01\x01"
    assert encode(full, 1) == b"\x01\x01\x01\x01\x01\0\0"
    for message in (Nullable(), full):
        for version in (0, 1):
            assert decode(Nullable, encode(message, version), version) == message


@pytest.mark.parametrize("body", [b"\x80\x00", b"\xff\xfe", b"\x7f\xffabc"])
def test_lengths_that_cannot_be_are_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(Nullable, body + bytes(20), 0)


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode(Plain, b"\0\x02\xc3\x28" + bytes(12), 0)


def test_numbers_are_big_endian_and_keep_their_range() -> None:
    largest = Fixed(flag=True, port=65535, count=2**32 - 1, offset=-(2**63), share=-0.5)
    body = b"\x01\xff\xff\xff\xff\xff\xff\x80" + bytes(7) + b"\xbf\xe0" + bytes(6)
    assert encode(largest, 0) == body
    assert decode(Fixed, body, 0) == largest


@pytest.mark.parametrize("length", [0, 126, 127, 128, 1022, 1023, 1024, 16382, 16383, 16384, 2_097_151])
def test_compact_lengths_of_every_size(length: int) -> None:
    message = Plain(text="x" * min(length, 32_767), raw=bytes(length), numbers=[], words=[])
    assert decode(Plain, encode(message, 1), 1) == message


def test_a_string_is_no_longer_in_flexible_versions_than_in_others() -> None:
    longest = Plain(text="x" * 32_767, raw=b"", numbers=[], words=[])
    encoded = encode(longest, 1)
    assert decode(Plain, encoded, 1) == longest
    assert encoded.startswith(b"\x80\x80\x02x"), "its length and one, in three bytes"
    with pytest.raises(ProtocolError, match="text has 32768 bytes"):
        encode(Plain(text="x" * 32_768, raw=b"", numbers=[], words=[]), 1)
    with pytest.raises(ProtocolError, match="text has 32768 bytes"):
        decode(Plain, b"\x81\x80\x02x" + encoded[4:], 1)


def test_a_field_has_one_type() -> None:
    @data(versions="0")
    class Unclear:
        value: int32 | string

    with pytest.raises(TypeError, match="one type"):
        encode(Unclear(value=1), 0)
