"""What a transaction loop has handed out, and where reading begins when that is put back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.records import ConsumerRecord
from fencepost.client.transaction_loop import Handed
from fencepost.protocol.types import Offset, TopicPartition

#: Of each poll whether its records were taken in, and their partitions and offsets.
POLLS = st.lists(
    st.tuples(st.booleans(), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)))), min_size=1, max_size=4
)


@given(POLLS)
def test_what_is_put_back_begins_with_the_first_record_of_each_partition(
    polls: list[tuple[bool, list[tuple[int, int]]]],
) -> None:
    """Of all that was taken in, and of what came of other partitions, or in front of it, and was not."""
    reader: Any = SimpleNamespace(group_metadata=lambda: None, position=lambda at: at.partition)
    handed = Handed(reader, [])
    expected: dict[TopicPartition, int] = {}
    for is_taken, found in polls:
        records = [ConsumerRecord("t", number, Offset(offset), 0, None, None, ()) for number, offset in found]
        if is_taken:
            handed.add(reader, records)
        else:
            handed.precede(records)
        for number, offset in found:
            at = TopicPartition("t", number)
            expected[at] = min(expected.get(at, offset), offset) if not is_taken else expected.get(at, offset)
    assert handed.first == expected
