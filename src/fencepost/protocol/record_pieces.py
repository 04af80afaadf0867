"""What `record_kernel` does with each row of two columns: hash its key, say how long its record is, write it.

`record_kernel.pxd` has the same in C, where bytes are copied without making an object of them.  No index is used
unchecked there either: what lies beyond the end raises IndexError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

__all__ = ["grow", "hash_bytes", "number_size", "put_number", "put_row", "record_size", "row_size"]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def hash_bytes(data: Sequence[int], at: int, end: int) -> int:
    """The hash of Kafka's default partitioner, of the bytes from `at` to before `end`."""
    h = (_SEED ^ (end - at)) & _MASK
    while at + 4 <= end:
        k = data[at + 3]
        k = k << 24 | data[at + 2] << 16 | data[at + 1] << 8 | data[at]
        k = k * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
        at += 4
    if at < end:
        k = 0
        while end > at:
            end -= 1
            k = k << 8 | data[end]
        h = (h ^ k) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def grow(out: bytearray, size: int) -> None:
    """Have room for so many more bytes, whatever is in them."""
    out += bytes(size)


def number_size(n: int) -> int:
    """Bytes of a number of variable length."""
    return max((n.bit_length() + 6) // 7, 1)


def put_number(out: bytearray, n: int) -> int:
    """Add a number of variable length."""
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return 0


def _size_at(ends: Sequence[int], n: int, is_null: int) -> int:
    """Bytes of row n of a column, -1 if it is null."""
    return -1 if is_null else ends[n + 1] - ends[n]


def record_size(delta: int, place: int, key_size: int, value_size: int) -> int:
    """Bytes of a record without headers behind its length; `delta` is in zig-zag form, the size of what is null -1."""
    size = 2 + number_size(delta) + number_size(place << 1)
    size += number_size(key_size << 1) + key_size if key_size >= 0 else 1
    return size + (number_size(value_size << 1) + value_size if value_size >= 0 else 1)


def row_size(delta: int, place: int, key_ends: Sequence[int], value_ends: Sequence[int], n: int, null: int) -> int:
    """The same of row n of two columns; `null`: 1 where its key is null, and 2 more where its value is."""
    return record_size(delta, place, _size_at(key_ends, n, null & 1), _size_at(value_ends, n, null & 2))


def put_row(
    out: Any, at: int, delta: int, place: int, keys: Any, key_ends: Any, values: Any, value_ends: Any, n: int, null: int
) -> int:
    """Write the record of row n there; where it ends."""
    record = bytearray()
    for number in (row_size(delta, place, key_ends, value_ends, n, null) << 1, 0, delta, place << 1):
        put_number(record, number)
    for data, ends, is_null in ((keys, key_ends, null & 1), (values, value_ends, null & 2)):
        size = _size_at(ends, n, is_null)
        put_number(record, 1 if is_null else size << 1)
        record += data[ends[n] : ends[n] + max(size, 0)]
    record.append(0)
    out[at : at + len(record)] = record
    return at + len(record)
