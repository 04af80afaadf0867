"""The records of a batch looked at one after the other, without making anything of them.

A leader learns in this way whether they are what the header says, and where a record of some time is.  Every length in
a batch is its writer's word: all work here is bounded by the bytes that there are, and done in steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from fencepost.compiled.in_use import compiled
from fencepost.protocol import record_kernel
from fencepost.protocol.batch import HEADER_SIZE, MAX_INT32, BatchHeader
from fencepost.protocol.compression import Compression, TooLarge, decompress
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.record_decoding import continue_varint
from fencepost.protocol.steps import STEP, UNFOLDED_IN_A_UNIT, Pace, Steps, elsewhere
from fencepost.protocol.types import Buffer

UNFOLDED_AT_ONCE: Final = 256 * 1024
"""Bytes that anybody may unfold in place, and while others wait for room: at most a millisecond of work for every
codec.  All who ask at one moment may have as much unfolded before anybody else is served, and a kilobyte may unfold to
16 MB."""

_INT64: Final = 1 << 63
_SMALLEST_SIZE: Final = 6 << 1
"""Of a record, as it stands before it."""
_WORTH_PASSING_OVER: Final = 512
"""Bytes that records have on average, if to add up their sizes is to take little time beside writing them."""
_PASSED_OVER_IN_A_UNIT: Final = 4
"""Records of which only the size is looked at."""


_compiled_run = compiled(record_kernel.check_records)
_compiled_pass_over = compiled(record_kernel.pass_over)


class Scanned(NamedTuple):
    """What the records of a batch say, each of which is whole and in its place."""

    earliest: int
    latest: int
    """Of their own timestamps (ms)."""
    keyless: bool
    """Whether any of them has no key."""


Moment: TypeAlias = tuple[int, int, bool]
"""What one record says: its timestamp, its offset after that of the batch, and whether it has no key."""


def scan(body: Buffer, header: BatchHeader, pace: Pace, most: int = MAX_INT32) -> Steps[Scanned]:
    """Check that `body`, unfolded, is as many records as the header says, numbered from 0 on, and nothing else.

    Of the records from number `most` on only that their sizes add up, and not even that where they are small.  Raises
    ProtocolError where it is not so.
    """
    count, at, place, keyless = header.record_count, 0, 0, False
    close = min(count, most)
    earliest, latest = _INT64, -_INT64
    while place < close:
        first, until = place, min(place + max(pace.left, 1), close)
        at, place, stop, earliest, latest, without = _run(body, at, first, until, earliest, latest)
        keyless = keyless or without
        if place < until:
            at = yield from _headers(body, at, stop, place, pace)
            place += 1
        yield from pace.spend(place - first)
    if close < count and _are_small(body, count):
        return _scanned(header, earliest, latest, keyless)
    while place < count:
        until = min(place + _PASSED_OVER_IN_A_UNIT * max(pace.left, 1), count)
        at = _pass_over(body, at, place, until)
        yield from pace.spend((until - place) // _PASSED_OVER_IN_A_UNIT)
        place = until
    if at != len(body):
        raise _too_short(body, at, count)
    return _scanned(header, earliest, latest, keyless)


def scan_at_once(body: Buffer, header: BatchHeader, pace: Pace, most: int = MAX_INT32) -> Scanned | None:
    """The same where it takes one step, as it does nearly always; else None.  Here records have no headers."""
    count = header.record_count
    close = min(count, most)
    passed_over = close < count and not _are_small(body, count)
    units = close + (count - close) // _PASSED_OVER_IN_A_UNIT if passed_over else close
    if units > pace.left:
        return None
    pace.left -= units
    run = _compiled_run(body, 0, 0, close) if _compiled_run is not None and close else None
    at, place, _, earliest, latest, keyless = run or _run(body, 0, 0, close, _INT64, -_INT64)
    if place < close:
        return None
    if passed_over:
        at = _pass_over(body, at, close, count)
    if at != len(body) and (passed_over or close == count):
        raise _too_short(body, at, count)
    return _scanned(header, earliest, latest, keyless)


def _are_small(body: Buffer, count: int) -> bool:
    return len(body) < _WORTH_PASSING_OVER * count


def _too_short(body: Buffer, at: int, count: int) -> ProtocolError:
    return ProtocolError(f"the {count} records of the header end {len(body) - at} bytes before the batch")


def _scanned(header: BatchHeader, earliest: int, latest: int, keyless: bool) -> Scanned:
    earliest, latest = header.base_timestamp + earliest, header.base_timestamp + latest
    if earliest < -_INT64 or latest >= _INT64:
        raise ProtocolError("the timestamp of a record is no 64-bit number")
    return Scanned(earliest, latest, keyless)


def _run(
    body: Buffer, at: int, first: int, until: int, earliest: int, latest: int
) -> tuple[int, int, int, int, int, bool]:
    """Check records `first` up to `until`, or up to the first one with headers.

    Returns where it came to, the number of the record there and where that one ends, the earliest and latest timestamp
    delta so far, and whether one of these records has no key.  The hot path of every leader: a number has one byte
    or two nearly always, and neighbours have the same timestamp.
    """
    if _compiled_run is not None and first < until:
        done = _compiled_run(body, at, first, until)
        if done is not None:
            at, place, stop, first_time, last_time, keyless = done
            return at, place, stop, min(first_time, earliest), max(last_time, latest), keyless
    end, last, keyless, place, stop = len(body), -1, False, first, at
    try:
        for place in range(first, until):
            n = body[at]
            at += 1
            if n > 127:
                m = body[at]
                at += 1
                n += (m << 7) - 128
                if m > 127:
                    n, at = _number(body, at - 2, 32)
            stop = at + (n >> 1)
            if stop > end or n & 1:
                raise ProtocolError(f"record {place} of the batch is longer than the batch")
            n = body[at + 1]
            at += 2
            if n > 127:
                m = body[at]
                at += 1
                n += (m << 7) - 128
                if m > 127:
                    n, at = _number(body, at - 2, 64)
            if n != last:
                last = n
                n = (n >> 1) ^ -(n & 1)
                if n > latest:
                    latest = n
                if n < earliest:
                    earliest = n
            n = body[at]
            at += 1
            if n > 127:
                m = body[at]
                at += 1
                n += (m << 7) - 128
                if m > 127:
                    n, at = _number(body, at - 2, 32)
            if n != place + place:
                n = (n >> 1) ^ -(n & 1)
                raise ProtocolError(f"record {place} of the batch has number {n}: they count from 0 on, one by one")
            n = body[at]
            at += 1
            if n > 127:
                n, at = _number(body, at - 1, 32)
            if n == 1:
                keyless = True
            elif n & 1:
                raise _negative(place)
            else:
                at += n >> 1
            n = body[at]
            at += 1
            if n > 127:
                m = body[at]
                at += 1
                n += (m << 7) - 128
                if m > 127:
                    n, at = _number(body, at - 2, 32)
            if not n & 1:
                at += n >> 1
            elif n != 1:
                raise _negative(place)
            if body[at]:
                return at, place, stop, earliest, latest, keyless
            at += 1
            if at != stop:
                raise _not_whole(place)
    except IndexError:
        raise _not_whole(place) from None
    return at, until, stop, earliest, latest, keyless


def _not_whole(place: int) -> ProtocolError:
    return ProtocolError(f"record {place} of the batch does not end where it should")


def _negative(place: int) -> ProtocolError:
    """Apache Kafka takes any length below 0 for null; librdkafka stops reading for ever at others than -1."""
    return ProtocolError(f"record {place} of the batch has a length below -1")


def _pass_over(body: Buffer, at: int, first: int, until: int) -> int:
    """Where records `first` up to `until` end, by their sizes."""
    if _compiled_pass_over is not None:
        passed = _compiled_pass_over(body, at, first, until)
        if passed >= 0:
            return passed
    place = first
    try:
        for place in range(first, until):
            n = body[at]
            if n > 127:
                m = body[at + 1]
                if 0 < m < 128:
                    at += (m << 6) + (n >> 1) - 62  # two bytes, and as many as they say
                    continue
                n, at = _number(body, at, 32)
                at -= 1
            if n < _SMALLEST_SIZE:
                raise _not_whole(place)
            at += 1 + (n >> 1)
    except IndexError:
        raise _not_whole(place) from None
    return at


def _headers(body: Buffer, at: int, stop: int, place: int, pace: Pace) -> Steps[int]:
    """Check the headers of a record, which begin at `at`, and that they end with the record, at `stop`."""
    try:
        count, at = _signed(body, at)
        if count < 0 or count > stop - at:
            raise ProtocolError(f"record {place} of the batch claims {count} headers in {stop - at} bytes")
        for number in range(count):
            length, at = _signed(body, at)
            if length < 0 or at + length > stop:
                raise _not_whole(place)
            bytes(body[at : at + length]).decode()
            at += length
            length, at = _signed(body, at)
            if length < -1:
                raise _negative(place)
            at += max(length, 0)
            if number % 64 == 63:
                yield from pace.spend(64)
    except IndexError:
        raise _not_whole(place) from None
    except UnicodeDecodeError:
        raise ProtocolError(f"record {place} of the batch: the key of header {number} is not UTF-8") from None
    if at != stop:
        raise _not_whole(place)
    return at


def _number(body: Buffer, at: int, bits: int) -> tuple[int, int]:
    """The variable-length number there, not zig-zag decoded, and where it ends; ProtocolError if it has more bits.

    Java's reader counts bytes: 5 for 32 bits, 10 for 64.
    """
    n, end = continue_varint(body, at + 1, body[at])
    if n >> bits or end - at > bits // 7 + 1:
        raise ProtocolError(f"a number in a record of the batch has more than {bits} bits")
    return n, end


def _signed(body: Buffer, at: int) -> tuple[int, int]:
    n = body[at]
    if n > 127:
        n, at = _number(body, at, 32)
    else:
        at += 1
    return (n >> 1) ^ -(n & 1), at


def moments(body: Buffer, header: BatchHeader) -> Iterator[Moment]:
    """What each record says; the rest of it is passed over.  Records of log-append time have the time of the batch.

    Raises ProtocolError where a record cannot be read.
    """
    append_time = header.max_timestamp if header.is_log_append_time else None
    at, end = 0, len(body)
    try:
        for _ in range(header.record_count):
            n = body[at]
            at += 1
            if n > 127:
                n, at = continue_varint(body, at, n)
            stop = at + (n >> 1)
            if stop > end or n & 1:
                raise ProtocolError("a record is longer than its batch")
            n = body[at + 1]
            at += 2
            if n > 127:
                n, at = continue_varint(body, at, n)
            timestamp = header.base_timestamp + ((n >> 1) ^ -(n & 1)) if append_time is None else append_time
            n = body[at]
            at += 1
            if n > 127:
                n, at = continue_varint(body, at, n)
            yield timestamp, (n >> 1) ^ -(n & 1), body[at] & 1 == 1
            at = stop
    except IndexError:
        raise ProtocolError("a record does not end where it should") from None


def unfolded(compression: Compression, body: Buffer, limit: int, pace: Pace) -> Steps[bytes]:
    """As `decompress`; what becomes large waits for room, and is unfolded in another thread.

    Who has called this says `pace.hold(0)` when nothing of it is needed any more.
    """
    has_room = pace.room is not None and pace.room.claim(limit)
    pace.held += limit if has_room else 0
    try:
        data = decompress(compression, body, min(limit, UNFOLDED_AT_ONCE))
    except TooLarge:
        if limit <= UNFOLDED_AT_ONCE:
            raise
        body = bytes(body)  # it may be a view of a buffer that is used again
        if pace.room is not None and not has_room:
            yield from pace.room.wait_for(limit)
            pace.held += limit
        data = yield from elsewhere(partial(decompress, compression, body, limit))
    pace.hold(len(data))
    return data


def first_moment(
    batch: bytes, header: BatchHeader, timestamp: int, offset: int, limit: int, pace: Pace
) -> Steps[tuple[int, int] | None]:
    """Timestamp and offset of the first record of a batch that is at `offset` or after it, and not older than
    `timestamp`; None if there is none.

    Raises ProtocolError if it comes to a record that cannot be read, or the records unfold to more than `limit` bytes.
    """
    try:
        return (yield from _first_moment(batch, header, timestamp, offset, limit, pace))
    finally:
        pace.hold(0)


def _first_moment(
    batch: bytes, header: BatchHeader, timestamp: int, offset: int, limit: int, pace: Pace
) -> Steps[tuple[int, int] | None]:
    body = bytes(memoryview(batch)[HEADER_SIZE:])
    if header.attributes & 7:
        body = yield from unfolded(header.compression, body, limit, pace)
        pace.left -= len(body) // UNFOLDED_IN_A_UNIT
    until, base = max(pace.left, 1), header.base_offset
    for number, (time, place, _) in enumerate(moments(body, header), 1):
        if time >= timestamp and base + place >= offset:
            pace.left -= number % STEP
            return time, base + place
        if number == until:
            pace.left = 0
            yield from pace.spend(1)
            until += STEP
    return None
