"""The cleaner never works longer than others, and enough to keep up with whatever they write."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.log.cleaner_doubles import SETTINGS, Writer
from tests.log.log_doubles import Node, run

from fencepost.log.cleaner.pace import LONGEST_TURN, LONGEST_WHILE_BEHIND, MUCH, backlog, turn

SECONDS = st.floats(0, 100)
BYTES = st.integers(0, 10 * MUCH)


@given(SECONDS, BYTES, BYTES)
def test_a_turn_is_never_longer_than_what_it_waited_for_and_grows_with_what_waits(
    late: float, one: int, two: int
) -> None:
    shorter, longer = turn(late, min(one, two)), turn(late, max(one, two))
    assert 0 <= shorter <= longer <= late
    assert turn(late, 0) == turn(late, MUCH) == min(late, LONGEST_TURN)
    assert turn(late, 2 * MUCH) == min(late, LONGEST_WHILE_BEHIND)
    assert turn(late, 20 * MUCH) == min(late, 10 * LONGEST_WHILE_BEHIND)


@given(st.floats(0.001, 10), st.floats(0, 0.3), st.integers(1, MUCH))
def test_what_waits_is_bounded_whatever_the_load(others: float, share: float, rate: int) -> None:
    """Others work for so long at a time, and each second of theirs makes `share` seconds of work for the cleaner.

    `rate`: bytes that it cleans in a second.
    """
    behind, rest = 0.0, 0.0
    enough = 2 * MUCH * max(others * share / LONGEST_WHILE_BEHIND, 1.0)
    for _ in range(500):
        behind += others * share * rate
        assert behind <= enough + others * share * rate
        rest = turn(max(others - rest, 0.0), int(behind))
        behind = max(behind - rest * rate, 0.0)


def test_what_a_journal_may_have_is_not_waiting() -> None:
    async def main() -> None:
        node = Node(**SETTINGS, journal_roll_bytes=1_000)
        writer = Writer(node, Random(3))
        seen = set()
        while node.partition.log_end_offset < 200:
            writer.step()
            for dirty_from in (0, node.partition.log_end_offset // 2):
                stable, segments = node.partition.last_stable_offset, node.partition.segments
                clean = sum(each.size for each in segments if each.base_offset < dirty_from)
                reached = sum(each.size for each in segments if each.base_offset <= stable)
                found = backlog([node.partition] * 2, lambda _, dirty_from=dirty_from: dirty_from)  # type: ignore[misc]
                assert found == 2 * max(reached - clean - max(clean, 1_000), 0)
                seen.add(found > 0)
        assert seen == {False, True}

    run(main())
