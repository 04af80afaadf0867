"""The vectorised hash is Kafka's."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.partitioning import murmur2
from fencepost.spark.routing import murmur2 as vectorised


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), min_size=1), st.integers(0, 3))
def test_every_value_is_hashed_as_kafka_does(values: list[bytes | None], skipped: int) -> None:
    array = pa.array([b"skip"] * skipped + values, pa.binary()).slice(skipped)
    assert vectorised(array).tolist() == [murmur2(value or b"") for value in values]
