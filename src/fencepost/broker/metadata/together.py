"""Changes of many topics in few writes to the metadata store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fencepost.broker.metadata.topic import Topic
from fencepost.broker.metadata.topic_rules import TopicRefused
from fencepost.runtime import Work

TOGETHER: Final = 100
"""Topics of one write to the store, at most: everybody waits while the disk syncs it, be it one topic or as many."""


def by_halves(topics: Sequence[Topic], write: Callable[[Sequence[Topic]], None]) -> Work[dict[str, TopicRefused]]:
    """Write all of them at once or, where that is refused, the halves; those that were refused alone, by name."""
    try:
        if topics:
            write(topics)
        return {}
    except TopicRefused as refused:
        if len(topics) == 1:
            return {topics[0].name: refused}
    yield
    middle = len(topics) // 2
    first = yield from by_halves(topics[:middle], write)
    return first | (yield from by_halves(topics[middle:], write))


def or_raised(found: Topic | TopicRefused) -> Topic:
    """The topic that was made.  Raises TopicRefused."""
    if isinstance(found, TopicRefused):
        raise found
    return found
