"""Which leader epoch ended where, and that a new leader's begins behind the others."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fencepost.log.leader_epochs import assigned, end_offset_for_epoch
from fencepost.protocol.types import LeaderEpoch, Offset

LEADERS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=8)
"""By how much each leader's epoch is larger than the one's before it, and how much it has written."""


@given(LEADERS, st.integers(0, 3))
def test_an_epoch_ends_where_the_next_one_that_is_known_begins(leaders: list[tuple[int, int]], first: int) -> None:
    starts: list[tuple[LeaderEpoch, Offset]] = []
    epoch, end, wrote = -1, first, {}
    for more, count in leaders:
        epoch += more
        starts = assigned(starts, LeaderEpoch(epoch), Offset(end))
        for known in (epoch, epoch - 1):
            assert assigned(starts, LeaderEpoch(known), Offset(end)) == starts, "known already"
        end += count
        wrote[epoch] = (end - count, end)
    assert all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(starts))
    for asked in range(epoch + 2):
        found = end_offset_for_epoch(
            LeaderEpoch(asked), LeaderEpoch(epoch), starts, Offset(first + 1), Offset(end)
        )  # the log may begin behind the first
        older = [known for known in wrote if known <= asked and wrote[known][0] < wrote[known][1]]
        if asked > epoch:
            assert found == (-1, -1)
        elif asked == epoch:
            assert found == (epoch, end)
        elif older:
            assert found == (max(older), wrote[max(older)][1])
        else:
            assert found == (asked, first)
    assert end_offset_for_epoch(LeaderEpoch(0), LeaderEpoch(epoch + 1), [], Offset(first), Offset(end)) == (0, first), (
        "nothing else is known"
    )
