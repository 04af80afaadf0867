"""Frames come out as they went in, however they arrive, and no more memory is held than has arrived."""

from __future__ import annotations

from random import Random

import pytest

from fencepost.broker.network.frame_buffer import SMALL, FrameBuffer
from fencepost.protocol.errors import ProtocolError

LARGEST = 100 * 1024 * 1024


def feed(buffer: FrameBuffer, data: bytes) -> list[bytes]:
    """Put data in as it fits, and take every frame at once."""
    found = []
    while data:
        room = buffer.room()
        assert len(room), "there is always room"
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        buffer.filled(count)
        while (frame := buffer.take()) is not None:
            found.append(bytes(frame))
    return found


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@pytest.mark.parametrize("seed", range(30))
def test_frames_come_out_as_they_went_in(seed: int) -> None:
    chance = Random(seed)
    sizes = (8, 9, 100, 4092, 4093, SMALL - 4, SMALL, SMALL + 1, 3 * SMALL, 700_000)
    bodies = [chance.randbytes(chance.choice(sizes)) for _ in range(40)]
    data, buffer = framed(*bodies), FrameBuffer(LARGEST)
    found: list[bytes] = []
    received = 0
    while received < len(data):
        count = chance.choice((1, 3, 4, 5, 1000, 4096, 70_000, 2_000_000))
        before = len(found)
        found += feed(buffer, data[received : received + count])
        received += count
        largest = max(map(len, bodies[: len(found) + 1]))
        assert buffer.size <= max(2 * largest, 2 * SMALL)
        if chance.random() < 0.2:
            buffer.shrink()
        assert found[before:] == bodies[before : len(found)]
    assert found == bodies
    buffer.shrink()
    assert buffer.size <= SMALL


@pytest.mark.parametrize("arrived", [4, 5, 5000, 100_000, 3_000_000])
def test_what_is_announced_and_does_not_come_takes_no_memory(arrived: int) -> None:
    buffer = FrameBuffer(LARGEST)
    assert buffer.size < SMALL, "a connection that says nothing"
    assert feed(buffer, LARGEST.to_bytes(4, "big") + bytes(arrived - 4)) == []
    assert buffer.announced == LARGEST + 4
    assert buffer.size <= max(2 * arrived, SMALL)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 7, LARGEST + 1, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes"):
        feed(FrameBuffer(LARGEST), framed(b"whole frame") + size.to_bytes(4, "big", signed=True))


def test_a_frame_that_was_taken_can_be_put_back_and_is_kept() -> None:
    buffer = FrameBuffer(LARGEST)
    data = framed(b"a" * 10, b"b" * 10, b"c" * 10)
    buffer.room()[: len(data)] = data
    buffer.filled(len(data))
    assert bytes(buffer.take() or b"") == b"a" * 10
    for _ in range(3):
        frame = buffer.take()
        assert frame is not None and bytes(frame) == b"b" * 10
        buffer.put_back(frame)
    kept = buffer.take()
    assert kept is not None
    large = framed(b"d" * 3 * SMALL)
    assert feed(buffer, large) == [b"c" * 10, b"d" * 3 * SMALL]
    assert bytes(kept) == b"b" * 10, "what somebody still looks at is not written over while a large frame comes in"


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "It speaks TLS"),
        (b"GET /metrics HTTP/1.1\r\n", "It speaks HTTP"),
        (b"\xff\xff\xff\xff", "-1 bytes announced: it must have 8 to 100$"),
    ],
)
def test_who_speaks_another_protocol_is_told_apart(sent: bytes, told: str) -> None:
    buffer = FrameBuffer(100)
    buffer.room()[: len(sent)] = sent
    buffer.filled(len(sent))
    with pytest.raises(ProtocolError, match=told):
        buffer.take()


def test_a_frame_may_be_as_long_as_the_longest_and_no_longer() -> None:
    assert feed(FrameBuffer(100), framed(bytes(8), bytes(100))) == [bytes(8), bytes(100)]
    for size in (7, 101):
        with pytest.raises(ProtocolError, match=f"a frame of {size} bytes announced: it must have 8 to 100"):
            feed(FrameBuffer(100), framed(bytes(size)))


def test_between_two_frames_nothing_is_announced_and_no_memory_is_asked_for() -> None:
    buffer = FrameBuffer(LARGEST)
    large = framed(bytes(3 * SMALL))
    assert feed(buffer, large[:-1]) == []
    assert buffer.announced == len(large) and buffer.needed > SMALL
    assert feed(buffer, large[-1:]) == [bytes(3 * SMALL)]
    assert (buffer.announced, buffer.needed) == (0, 0)
