"""The topics that a consumer reads: their partitions and ids, asked for again when they are old."""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from fencepost.client.cluster import Cluster, TopicView
from fencepost.client.errors import MisuseError
from fencepost.protocol.types import TopicPartition


class Subscription:
    """Topics by name.  `max_age` of what is known of them is in seconds."""

    def __init__(self, cluster: Cluster, topics: Iterable[str], max_age: float) -> None:
        self.topics = list(topics)
        self._cluster = cluster
        self._max_age = max_age
        self._since = -math.inf

    async def partitions(self) -> list[TopicPartition]:
        """All of the topics.  Raises MisuseError if there are no topics, BrokerError, TimedOutError."""
        if not self.topics:
            raise MisuseError("there is nothing to read: give the consumer topics, or assign() partitions")
        found = []
        for name in self.topics:
            view = await self._cluster.topic(name, self._cluster.deadline(f"looking up topic {name!r}"))
            found += [TopicPartition(name, number) for number in view.leaders]
        return found

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, uuid.UUID]:
        """Of these topics, as they are now.  Raises BrokerError, TimedOutError."""
        found = {}
        for name in topics:
            self._cluster.forget_topic(name)
            view = await self._cluster.topic(name, self._cluster.deadline(f"looking up topic {name!r}"))
            found[name] = view.topic_id
        self._since = asyncio.get_running_loop().time()
        return found

    def is_led(self, at: TopicPartition) -> bool:
        """Whether somebody leads a partition, as far as is known."""
        return self._cluster.is_led(at)

    def views(self, topics: Sequence[str], refresh: Callable[[Sequence[str]], None]) -> Mapping[str, TopicView]:
        """What is known of these; `refresh` is called where that is old, and what it finds is there later."""
        now = asyncio.get_running_loop().time()
        if topics and now - self._since >= self._max_age:
            self._since = now
            refresh(topics)
        return {name: self._cluster.topics[name] for name in topics if name in self._cluster.topics}
