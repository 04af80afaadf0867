"""What a transaction loop has handed out, and where reading begins when that is put back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.records import ConsumerRecord
from fencepost.client.transaction_loop import Handed
from fencepost.client.transactional_id import OffsetAndMetadata
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
    reader: Any = SimpleNamespace(group_metadata=lambda: None, next_offsets=dict)
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


@given(st.sets(st.integers(0, 2)), st.sets(st.integers(0, 2)), st.booleans())
def test_records_follow_only_where_all_that_was_handed_out_is_read_still(
    handed_out: set[int], assigned: set[int], same: bool
) -> None:
    """A partition may be taken away, and given back and begun elsewhere, while who we are stays (KIP-848)."""

    def reader(generation: int, numbers: set[int]) -> Any:
        places = [TopicPartition("t", number) for number in numbers]

        def position(at: TopicPartition) -> int:
            assert at in places, "of others nobody can be asked"
            return 1

        return SimpleNamespace(
            group_metadata=lambda: generation,
            position=position,
            next_offsets=lambda: {at: OffsetAndMetadata(1) for at in places},
            assignment=lambda: places,
        )

    records = [ConsumerRecord("t", number, Offset(0), 0, None, None, ()) for number in handed_out]
    handed = Handed(reader(1, handed_out), records)
    assert handed.goes_on_with(reader(1 if same else 2, assigned), []) == (same and handed_out <= assigned)
