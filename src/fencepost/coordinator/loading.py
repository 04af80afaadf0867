"""Reading journals when a node takes them over, a little at a time, so that requests are answered meanwhile.

Whoever asks for something that lives in a partition that is not read yet is told COORDINATOR_LOAD_IN_PROGRESS (but for
Heartbeat and SyncGroup, whose clients do not know that), and nothing of a partition is used before all of it is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from fencepost.node_log import get_logger
from fencepost.protocol.types import Offset
from fencepost.runtime import Work

logger = get_logger(__name__)

K = TypeVar("K")
V = TypeVar("V")

#: Batches of a journal partition that are read before other work gets a turn.
LOAD_STEP: Final = 16


class JournalUnreadable(Exception):
    """A journal partition holds what this coordinator cannot read; nothing of it is used."""

    def __init__(self, topic: str, partition: int, offset: Offset, reason: str) -> None:
        super().__init__(f"{topic}-{partition} cannot be read at offset {offset}: {reason}")
        self.topic = topic
        self.partition = partition
        self.offset = offset


def taken_from(records: dict[K, V]) -> Iterator[V]:
    """Empty `records` and give the values in their order; none is kept once it is given, to save memory."""
    left = list(records.values())
    records.clear()
    left.reverse()
    while left:
        yield left.pop()


def in_turn(works: Iterable[Work[None]]) -> Work[None]:
    """Read journal partitions, a step of each in turn, while others work in between.

    One that cannot be read is said in the log and left: what lives there goes on being answered 14.
    """
    waiting = deque(works)
    while waiting:
        work = waiting.popleft()
        try:
            next(work)
            waiting.append(work)
        except StopIteration:
            pass
        except JournalUnreadable as unreadable:
            logger.error(
                "everything that lives in a journal partition is answered COORDINATOR_LOAD_IN_PROGRESS, for it cannot "
                "be read: put back a copy of its directory and start again topic=%s partition=%d reason=%s",
                unreadable.topic,
                unreadable.partition,
                unreadable,
            )
        yield
