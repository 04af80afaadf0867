"""Changes of many topics in few writes to the metadata store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fencepost.broker.metadata.topic import Topic, described_topic
from fencepost.broker.metadata.topic_rules import TopicRefused
from fencepost.protocol.errors import ErrorCode
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


def changed(
    changes: Mapping[Topic, Mapping[str, str]],
    save: Callable[[Mapping[str, tuple[bytes, int]]], bool],
    use: Callable[[Topic], None],
) -> Work[dict[str, TopicRefused]]:
    """Replace the settings of topics by those given, as the topics are now; the refusals, by name.

    `save` writes what is to be known of topics, by their names, and the versions that they have; False: others have
    changed one meanwhile.  `use` has the partitions of a topic go by its settings.
    """
    versions = {topic: topic.version for topic in changes}

    def write(topics: Sequence[Topic]) -> None:
        described = {
            topic.name: (described_topic(topic.topic_id, topic.count, changes[topic]), versions[topic])
            for topic in topics
        }
        if not save(described):
            message = f"topic {topics[0].name!r} was changed meanwhile"
            raise TopicRefused(ErrorCode.CONCURRENT_TRANSACTIONS, message)
        for topic in topics:
            topic.version += 1
            topic.settings = dict(changes[topic])
            use(topic)

    return by_halves(list(changes), write)


def or_raised(found: Topic | TopicRefused) -> Topic:
    """The topic that was made.  Raises TopicRefused."""
    if isinstance(found, TopicRefused):
        raise found
    return found
