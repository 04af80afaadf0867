"""What is done with each row of two columns, compiled and as text, against what writes and hashes one by one."""

from __future__ import annotations

import array
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.twins import need_compiled, python_alone

from fencepost.compiled.in_use import IN_USE
from fencepost.protocol import partitioning, records

#: Keys and values of rows.
CELLS = st.lists(st.tuples(st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=200)), max_size=12)


def _column(cells: list[bytes | None]) -> tuple[bytes, array.array[int]]:
    """The bytes of all, and where each ends, behind where the first begins; before them what belongs to none."""
    ends = array.array("i", [3])
    for cell in cells:
        ends.append(ends[-1] + len(cell or b""))
    return b"###" + b"".join(cell or b"" for cell in cells), ends


@given(CELLS, st.randoms(), st.integers(0, 2**40), st.sampled_from([0, 1, 130, 300, 10**6]), st.integers(0, 9000))
def test_rows_are_written_as_their_keys_and_values_are(
    kernel: Any, cells: list[tuple[bytes | None, bytes | None]], random: Random, late: int, room: int, place: int
) -> None:
    keys, values = [key for key, _ in cells], [value for _, value in cells]
    order = array.array("q", random.sample(range(len(cells)), len(cells)))
    begin = random.randint(0, len(cells))
    stop = random.randint(begin, len(cells))
    nulls = bytes((key is None) + 2 * (value is None) for key, value in cells)
    out = bytearray(b"before")
    taken = kernel.append_rows(out, place, late << 1, order, begin, stop, *_column(keys), *_column(values), nulls, room)
    wanted = order[begin:stop]
    with python_alone():
        parts = records._encode_until(place, late, [keys[n] for n in wanted], [values[n] for n in wanted], room)
    assert out == b"before" + b"".join(parts)
    assert taken == begin + len(parts)


@pytest.mark.parametrize("amiss", ["a key", "a value", "a row", "a null"])
def test_a_row_beyond_the_end_of_its_column_is_refused(amiss: str) -> None:
    """By compiled code, which takes bytes as they lie in memory."""
    need_compiled()
    good, ends, order = b"abcdef", array.array("i", [0, 3, 6]), array.array("q", [0, 1])
    long, far = array.array("i", [0, 3, 7]), array.array("q", [0, 2])
    where = {
        "a key": (order, good, long, good, ends, b"\0\0"),
        "a value": (order, good, ends, good, long, b"\0\0"),
        "a row": (far, good, ends, good, ends, b"\0\0\0"),
        "a null": (order, good, ends, good, ends, b"\0"),
    }[amiss]
    kernel: Any = IN_USE.module
    with pytest.raises(IndexError):
        kernel.append_rows(bytearray(), 0, 0, where[0], 0, 2, *where[1:], 10**6)
    if amiss == "a key":
        with pytest.raises(IndexError):
            kernel.hash_rows(good, long, array.array("I", [0, 0]))


@given(st.lists(st.binary(max_size=40)))
def test_rows_are_hashed_as_python_hashes_each(kernel: Any, values: list[bytes]) -> None:
    hashes = array.array("I", [0] * len(values))
    kernel.hash_rows(*_column(list(values)), hashes)
    with python_alone():
        assert hashes.tolist() == [partitioning.murmur2(value) for value in values]
