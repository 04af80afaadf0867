"""The hash of Kafka's default partitioner, of a whole column."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from fencepost.compiled.in_use import compiled
from fencepost.protocol import record_kernel

_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)
_FEW: Final = 64
"""Values for which going on one by one takes less than going on with all of them at once."""
_AT_ONCE: Final = 256 * 1024
"""Bytes of a long value whose words are made numbers together: as objects they take ten times as much."""

_compiled_hash_rows = compiled(record_kernel.hash_rows)


def bytes_of(column: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], np.ndarray[Any, np.dtype[np.int32]]]:
    """The memory of a binary column: the bytes of all values, and where each ends, behind where the first begins."""
    _, offsets_buffer, data_buffer = column.buffers()
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    if offsets_buffer is None or not len(column):  # as it may be where there are no rows
        return data, np.zeros(1, np.int32)
    return data, np.frombuffer(offsets_buffer, np.int32)[column.offset : column.offset + len(column) + 1]


def murmur2(values: pa.Array) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The hash of Kafka's default partitioner, of every binary value; null counts as empty."""
    values = values.fill_null(b"")
    data, ends = bytes_of(values)
    count = len(values)
    if _compiled_hash_rows is not None:
        hashes = np.empty(count, np.uint32)
        _compiled_hash_rows(data, ends, hashes)
        return hashes
    offsets = ends.astype(np.int64)
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    starts, sizes = offsets[:-1][order], lengths[order]
    h = _SEED ^ sizes.astype(np.uint32)
    # Every place of the data as the word of four bytes that begins there.
    words = np.ndarray((max(len(data) - 3, 0),), "<u4", data, strides=(1,)) if len(data) else data.view("<u4")
    fours = sizes // 4
    with np.errstate(over="ignore"):
        for n in range(int(fours[0]) if count else 0):
            longer = int(np.searchsorted(-fours, -n, "left"))  # the longest come first
            if longer < _FEW:
                for row in range(longer):
                    h[row] = _mixed(int(h[row]), data[starts[row] + 4 * n : starts[row] + 4 * fours[row]])
                break
            k = words[starts[:longer] + 4 * n] * _M
            h[:longer] = h[:longer] * _M ^ (k ^ (k >> np.uint32(24))) * _M
        rest = sizes % 4
        tail = np.zeros(count, np.uint32)
        for n in range(3):
            more = np.flatnonzero(rest > n)
            tail[more] |= data[starts[more] + 4 * fours[more] + n].astype(np.uint32) << np.uint32(8 * n)
        h = np.where(rest > 0, (h ^ tail) * _M, h)
        h = (h ^ (h >> np.uint32(13))) * _M
        h ^= h >> np.uint32(15)
    found = np.empty(count, np.uint32)
    found[order] = h
    return found


def _mixed(h: int, words: np.ndarray[Any, np.dtype[np.uint8]]) -> int:
    """The state of a hash after some more whole words.

    What can be done with all words at once is; the rest takes one after the other, and is kept short.
    """
    m, mask = int(_M), 0xFFFFFFFF
    for begin in range(0, len(words), _AT_ONCE):
        k = words[begin : begin + _AT_ONCE].view("<u4") * _M
        for mixed in ((k ^ (k >> np.uint32(24))) * _M).tolist():
            h = h * m & mask ^ mixed
    return h
