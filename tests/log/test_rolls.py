"""When a segment is followed by another one, and when it must not be."""

from __future__ import annotations

import pytest
from tests.log.log_doubles import Node, append, batch, run

from fencepost.log.damage import FileDamaged
from fencepost.protocol.types import Offset

FARTHEST = 0x7FFFFFFF
"""An index has 31 bits for how far an offset is from the first of its segment."""


@pytest.mark.parametrize("first", [FARTHEST - 4, FARTHEST - 3, FARTHEST - 2])
def test_a_segment_ends_where_its_index_has_no_numbers_left_for_offsets(first: int) -> None:
    """Not before: five records from `first` on end at most at the farthest offset."""

    async def main() -> None:
        node = Node()
        append(node.partition, batch(1))
        node.partition.log_end_offset = Offset(first)
        append(node.partition, batch(5))
        assert node.partition.segments.bases == ([0] if first + 4 <= FARTHEST else [0, first])

    run(main())


def test_nothing_follows_a_segment_that_has_lost_its_end() -> None:
    """There would be a gap within the log."""

    async def main() -> None:
        node = Node()
        append(node.partition, batch(3))
        node.partition.segments[-1].file.truncate(10)
        with pytest.raises(FileDamaged):
            node.partition.roll()
        assert node.partition.segments.bases == [0]

    run(main())


def test_who_asks_for_a_start_of_the_log_that_was_asked_for_already_waits_for_it_too() -> None:
    """Else it would be told that records are gone which a power loss brings back."""

    async def main() -> None:
        node = Node()
        append(node.partition, batch(3))
        await node.settled()
        moved = node.partition.delete_records(Offset(2))
        assert isinstance(moved, int)
        for offset in (2, 1):
            again = node.partition.delete_records(Offset(offset))
            assert isinstance(again, int) and again >= moved > node.storage.durability.lsn

    run(main())
