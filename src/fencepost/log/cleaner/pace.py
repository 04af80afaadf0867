"""The length of the cleaner's turns, in seconds.

Pure, but for `backlog`, which looks at segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from fencepost.log.partition import Partition

#: Seconds that the cleaner may work without a break, if others have worked as long before, while little waits for it.
LONGEST_TURN: Final = 0.01

#: The same while up to two times MUCH waits: on a machine that other programs keep busy, who waits for its turn may
#: wait for seconds, and the node's clients would for as long again.
LONGEST_WHILE_BEHIND: Final = 0.1

#: Bytes of journals that wait to be cleaned beside what each may have: more of them make longer turns.
MUCH: Final = 8 * 1024 * 1024

#: Journals that are cleaned at once: each pass waits for the disk a few times, and there may be a hundred of them.
TOGETHER: Final = 8


def backlog(journals: Iterable[Partition], dirty_from: Callable[[Partition], int]) -> int:
    """Bytes that the cleaner is behind with these journals.

    Not counted is what each may have before it gets a new segment (`choice.should_roll`), and what begins behind its
    last stable offset, which cannot be cleaned yet.
    """
    behind = 0
    for partition in journals:
        first, stable = dirty_from(partition), partition.last_stable_offset
        clean = dirty = 0
        for segment in partition.segments:
            if segment.base_offset < first:
                clean += segment.size
            elif segment.base_offset <= stable:
                dirty += segment.size
        behind += max(dirty - max(clean, partition.settings.journal_roll_bytes), 0)
    return behind


def turn(late: float, behind: int) -> float:
    """Seconds that the cleaner may work now, after others have made it wait for `late` seconds.

    Never longer than these others have worked: at most half of the time is the cleaner's.  Ten milliseconds are enough
    while little waits; between one and two times MUCH bytes they become LONGEST_WHILE_BEHIND, and from there on grow
    with what waits, so that no load makes the journals grow without end.
    """
    share = min(max(behind / MUCH - 1, 0.0), 1.0)
    longest = LONGEST_WHILE_BEHIND * max(behind / (2 * MUCH), 1.0)
    return max(min(late, LONGEST_TURN), min(late, longest) * share)
