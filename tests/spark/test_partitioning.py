"""The vectorised hash is Kafka's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.partitioning import murmur2
from fencepost.spark import partitioning
from fencepost.spark.partitioning import murmur2 as vectorised

VALUES = st.lists(st.one_of(st.none(), st.binary(max_size=40)), min_size=1)
MANY = st.lists(st.binary(max_size=40), min_size=partitioning._FEW, max_size=3 * partitioning._FEW)


@given(VALUES | MANY, st.integers(0, 3))
def test_every_value_is_hashed_as_kafka_does(values: list[bytes | None], skipped: int) -> None:
    """By compiled code where there is some; else together as long as many are as long."""
    array = pa.array([b"skip"] * skipped + values, pa.binary()).slice(skipped)
    due = [murmur2(value or b"") for value in values]
    assert vectorised(array).tolist() == due
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitioning, "_compiled_hash_rows", None)
        patch.setattr(partitioning, "_AT_ONCE", 8)
        assert vectorised(array).tolist() == due


def test_a_null_counts_as_empty_whatever_stands_in_its_place() -> None:
    """As Arrow allows: it says of a value that it is null, and where its bytes are even so."""
    valid, ends, data = (
        pa.py_buffer(part) for part in (b"\x05", np.array([0, 1, 3, 6], np.int32).tobytes(), b"abbccc")
    )
    array = pa.Array.from_buffers(pa.binary(), 3, [valid, ends, data])
    assert array.to_pylist() == [b"a", None, b"ccc"]
    assert vectorised(array).tolist() == [murmur2(b"a"), murmur2(b""), murmur2(b"ccc")]
