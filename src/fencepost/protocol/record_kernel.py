"""The loops over records that decide how fast a client or a leader is, written so that they can be compiled.

`record_kernel.pxd` beside this file gives their numbers the types of C; `fencepost.compiled.in_use` finds what was
built of the two.  As text they are Python too, which the tests run; nothing else does, because the functions that they
stand in for, their twins, are faster then.

Each answers only where all is as it should be: whole records, numbers of up to 62 bits, keys and values that are bytes.
Anything else it leaves to its twin, and says so: what is wrong with a batch is told by one piece of code, whether there
is a compiler or not.  No index is used unchecked: what lies beyond the end raises IndexError, compiled as well.
"""

# ruff: noqa: F405
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

# Where this is compiled these are those of `record_kernel.pxd`.
from fencepost.protocol.record_pieces import *  # noqa: F403
from fencepost.protocol.record_tuples import *  # noqa: F403

R = TypeVar("R", bound=tuple[Any, ...])

_NO_HEADERS: Final = ()
_FAR: Final = 1 << 61
"""Beyond it, on either side of 0, sums are left to Python."""
_INT32: Final = 2**31


def decode_records(
    body: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    kind: type[R],
    topic: str | None,
    partition: int,
    first: int,
) -> list[R] | None:
    """The records whose offset is `first` or more, as tuples of this kind: their topic and partition if one is given,
    offset, timestamp, key, value and headers.  None: ask the twin, `record_decoding.decode_records`.
    """
    view, chars, end, at, stamped = body, body, len(body), 0, 0 if append_time is None else append_time
    if count < 0 or count > end or not -_FAR < base_offset < _FAR or not -_FAR < base_timestamp < _FAR:
        return None
    found: list[R] = []
    try:
        for _ in range(count):
            n = view[at]
            at += 1
            if n > 127:
                n, at = _longer(view, at, n, 9)
            stop = at + (n >> 1)
            if n & 1 or stop > end:
                return None
            n = view[at + 1]
            at += 2
            if n > 127:
                n, at = _longer(view, at, n, 9)
            timestamp = base_timestamp + ((n >> 1) ^ -(n & 1))
            n = view[at]
            at += 1
            if n > 127:
                n, at = _longer(view, at, n, 9)
            offset = base_offset + ((n >> 1) ^ -(n & 1))
            n = view[at]
            at += 1
            if n > 127:
                n, at = _longer(view, at, n, 9)
            key = None
            if not n & 1:
                n = at + (n >> 1)
                if n > stop:
                    return None
                key = chars[at:n]
                at = n
            n = view[at]
            at += 1
            if n > 127:
                n, at = _longer(view, at, n, 9)
            value = None
            if not n & 1:
                n = at + (n >> 1)
                if n > stop:
                    return None
                value = chars[at:n]
                at = n
            headers: Any = _NO_HEADERS
            if view[at]:
                headers = []
                at = _decode_headers(body, view, at, stop, headers)
            else:
                at += 1
            if at != stop:
                return None
            if offset < first:
                continue
            if append_time is not None:
                timestamp = stamped
            if topic is None:
                found.append(tuple_of_five(kind, offset, timestamp, key, value, headers))
            else:
                found.append(tuple_of_seven(kind, topic, partition, offset, timestamp, key, value, headers))
    except (IndexError, UnicodeDecodeError):
        return None
    return found if at == end else None


def _decode_headers(body: bytes, view: Sequence[int], at: int, stop: int, found: list[tuple[str, bytes | None]]) -> int:
    """Put the headers there into `found`; where they end, -1 if the twin is to be asked."""
    n = view[at]
    at += 1
    if n > 127:
        n, at = _longer(view, at, n, 9)
    count = n >> 1
    if n & 1 or count > stop - at:
        return -1
    for _ in range(count):
        n = view[at]
        at += 1
        if n > 127:
            n, at = _longer(view, at, n, 9)
        end = at + (n >> 1)
        if n & 1 or end > stop:
            return -1
        name = body[at:end].decode("utf-8")
        n = view[end]
        at = end + 1
        if n > 127:
            n, at = _longer(view, at, n, 9)
        if n & 1:
            found.append((name, None))
            continue
        end = at + (n >> 1)
        if end > stop:
            return -1
        found.append((name, body[at:end]))
        at = end
    return at


def append_record(
    out: bytearray, place: int, timestamp_delta: int, key: bytes | None, value: bytes | None, room: int
) -> int:
    """Add a record without headers to those in `out`; how many bytes it has.

    0: it has more than `room` bytes.  -1: ask the twin, `records.encode_record`.  Nothing is changed then.
    """
    if type(timestamp_delta) is not int or not -_FAR < timestamp_delta < _FAR or not 0 <= place < _FAR:
        return -1
    return _append(out, place, timestamp_delta, key, value, room)


def append_records(
    out: bytearray, place: int, timestamp_delta: int, keys: list[bytes | None], values: list[bytes | None], room: int
) -> int:
    """Add records without headers, numbered from `place` on, until they have `room` bytes; how many were taken.

    -1: ask the twin, `BatchBuilder.extend`.  Nothing is changed then.
    """
    before, taken, count = len(out), 0, len(keys)
    if type(timestamp_delta) is not int or not -_FAR < timestamp_delta < _FAR or place < 0 or count != len(values):
        return -1
    while taken < count and room > 0:
        size = _append(out, place + taken, timestamp_delta, keys[taken], values[taken], _FAR)
        if size < 0:
            del out[before:]
            return -1
        room -= size
        taken += 1
    return taken


def _append(out: bytearray, place: int, timestamp_delta: int, key: bytes | None, value: bytes | None, room: int) -> int:
    key_size = value_size = -1
    if key is not None:
        if type(key) is not bytes:
            return -1
        key_size = len(key)
    if value is not None:
        if type(value) is not bytes:
            return -1
        value_size = len(value)
    delta = (timestamp_delta * 2) ^ (timestamp_delta >> 63)
    size = record_size(delta, place, key_size, value_size)
    whole = size + number_size(size << 1)
    if whole > room:
        return 0
    put_number(out, size << 1)
    out.append(0)
    put_number(out, delta)
    put_number(out, place << 1)
    put_number(out, key_size << 1 if key_size >= 0 else 1)
    if key is not None:
        out += key
    put_number(out, value_size << 1 if value_size >= 0 else 1)
    if value is not None:
        out += value
    out.append(0)
    return whole


def check_records(body: Sequence[int], at: int, first: int, until: int) -> tuple[int, int, int, int, int, bool] | None:
    """As its twin, `record_scan._run`, of one record or more, with no timestamps from before.  None: ask the twin."""
    end, keyless, place, stop = len(body), False, first, at
    earliest, latest = _FAR, -_FAR
    try:
        while place < until:
            n = body[at]
            at += 1
            if n > 127:
                n, at = _longer(body, at, n, 5)
            stop = at + (n >> 1)
            if stop > end or n & 1:
                return None
            n = body[at + 1]
            at += 2
            if n > 127:
                n, at = _longer(body, at, n, 9)
            n = (n >> 1) ^ -(n & 1)
            if n > latest:
                latest = n
            if n < earliest:
                earliest = n
            n = body[at]
            at += 1
            if n > 127:
                n, at = _longer(body, at, n, 5)
            if n != place + place:
                return None
            n = body[at]
            at += 1
            if n > 127:
                n, at = _longer(body, at, n, 5)
            if n == 1:
                keyless = True
            elif n & 1:
                return None
            else:
                at += n >> 1
            n = body[at]
            at += 1
            if n > 127:
                n, at = _longer(body, at, n, 5)
            if not n & 1:
                at += n >> 1
            elif n != 1:
                return None
            if body[at]:
                return at, place, stop, earliest, latest, keyless
            at += 1
            if at != stop:
                return None
            place += 1
    except IndexError:
        return None
    return at, until, stop, earliest, latest, keyless


def pass_over(body: Sequence[int], at: int, first: int, until: int) -> int:
    """Where records `first` up to `until` end, by their sizes.  -1: ask the twin, `record_scan._pass_over`."""
    try:
        while first < until:
            n = body[at]
            at += 1
            if n > 127:
                n, at = _longer(body, at, n, 5)
            if n < 12:
                return -1
            at += n >> 1
            first += 1
    except IndexError:
        return -1
    return at


def _longer(body: Sequence[int], at: int, n: int, most: int) -> tuple[int, int]:
    """The rest of a number whose first byte, `n`, said that more follow, and where it ends.

    Raises IndexError at the end of `body`, for more than `most` bytes, and for more than 32 bits in 5 bytes or 61 in 9.
    """
    n &= 127
    shift = 7
    byte = 128
    while byte > 127:
        if shift == 7 * most:
            raise IndexError
        byte = body[at]
        at += 1
        n |= (byte & 127) << shift
        shift += 7
    if (most == 5 and n >> 32) or n >> 61:
        raise IndexError
    return n, at


def index_records(
    body: Sequence[int],
    shift: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    low: int,
    high: int,
    places: Any,
    nulls: Any,
    offsets: Any,
    timestamps: Any,
    row: int,
) -> int:
    """Note where keys and values are, of the records with an offset from `low` to before `high`, from row `row` on.

    `places` gets four numbers a row: begin and end of key and of value, `shift` more than in `body`; `nulls` 1 for a
    key that is null and 2 for a value.  Returns how many rows there are then; -1: see `records.decode_batch` instead.
    """
    end, at, stamped = len(body), 0, 0 if append_time is None else append_time
    if not 0 <= count <= end < _INT32 - shift or not -_FAR < base_offset < _FAR or not -_FAR < base_timestamp < _FAR:
        return -1
    try:
        for _ in range(count):
            n = body[at]
            at += 1
            if n > 127:
                n, at = _longer(body, at, n, 9)
            stop = at + (n >> 1)
            if n & 1 or stop > end:
                return -1
            n = body[at + 1]
            at += 2
            if n > 127:
                n, at = _longer(body, at, n, 9)
            timestamp = base_timestamp + ((n >> 1) ^ -(n & 1))
            n = body[at]
            at += 1
            if n > 127:
                n, at = _longer(body, at, n, 9)
            offset = base_offset + ((n >> 1) ^ -(n & 1))
            n = body[at]
            at += 1
            if n > 127:
                n, at = _longer(body, at, n, 9)
            null, key_begin = n & 1, at
            if not n & 1:
                at += n >> 1
                if at > stop:
                    return -1
            key_end = at
            n = body[at]
            at += 1
            if n > 127:
                n, at = _longer(body, at, n, 9)
            value_begin = at
            if n & 1:
                null += 2
            else:
                at += n >> 1
                if at > stop:
                    return -1
            if body[at] or at + 1 != stop:
                return -1
            if low <= offset < high:
                places[4 * row] = shift + key_begin
                places[4 * row + 1] = shift + key_end
                places[4 * row + 2] = shift + value_begin
                places[4 * row + 3] = shift + at
                nulls[row] = null
                offsets[row] = offset
                timestamps[row] = timestamp if append_time is None else stamped
                row += 1
            at += 1
    except IndexError:
        return -1
    return row if at == end else -1


def murmur2(data: Sequence[int]) -> int:
    """As its twin, `partitioning.murmur2`."""
    return hash_bytes(data, 0, len(data))


def hash_rows(data: Any, ends: Any, hashes: Any) -> int:
    """Put the hash of each row's bytes into `hashes`; row n is `data[ends[n]:ends[n + 1]]`."""
    for n in range(len(hashes)):
        hashes[n] = hash_bytes(data, ends[n], ends[n + 1])
    return len(hashes)


def append_rows(
    out: bytearray,
    place: int,
    delta: int,
    rows: Any,
    row: int,
    stop: int,
    keys: Any,
    key_ends: Any,
    values: Any,
    value_ends: Any,
    nulls: Any,
    room: int,
) -> int:
    """Add records without headers, numbered from `place` on, until they have `room` bytes; the first that is not taken.

    They are the rows `rows[row:stop]` of two columns, whose bytes are as for `hash_rows`; `nulls` are those of
    `index_records`, `delta` the timestamp's in zig-zag form.
    """
    first, at, size = row, len(out), 0
    while row < stop and size < room:
        n = rows[row]
        n = row_size(delta, place + row - first, key_ends, value_ends, n, nulls[n])
        size += n + number_size(n << 1)
        row += 1
    grow(out, size)
    view = memoryview(out)
    for there in range(first, row):
        n = rows[there]
        at = put_row(view, at, delta, place + there - first, keys, key_ends, values, value_ends, n, nulls[n])
    return row
