"""Looks up the names of topics that a coordinator gives by their ids, and has topics made that are missing."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Final

from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.consumer_group.heartbeats import Place
from fencepost.client.errors import BrokerError, ConnectionLostError, UnreachableError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import TopicPartition

#: How often is looked for an id before the others are gone on with: a broker may not know of a new topic yet.
_LOOKS: Final = 5


class TopicNames:
    """Looks topics up by name and by id, for one member."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def look_at(self, topics: Sequence[str], create: bool, deadline: Deadline) -> None:
        """Have topics made that are not there, where the broker does that; those that stay missing are logged once.

        Raises BrokerError for one that cannot be read, TimedOutError.
        """
        while topics:
            try:
                answer = await deadline.within(self._cluster.refresh(topics, create))
            except (ConnectionLostError, UnreachableError) as lost:
                await deadline.pause(lost)
                continue
            for topic in answer.topics:
                error = ErrorCode(topic.error_code)
                if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._cluster.missing.miss(topic.name or "")
                elif error and not error.retriable:
                    raise BrokerError(error, f"topic {topic.name!r} cannot be used")
                else:
                    self._cluster.missing.found(topic.name or "")
            return

    async def of(
        self, places: Iterable[Place], topics: Sequence[str] | None, deadline: Deadline
    ) -> dict[TopicPartition, Place]:
        """Places by topic name and number, those of unknown topics left out; `topics`: names to ask for, None: all.

        One that is not known to any broker that was asked is about to be made, or was deleted.  Raises TimedOutError.
        """
        wanted = frozenset(places)
        looks = 0
        while True:
            names = {view.topic_id: name for name, view in self._cluster.topics.items()}
            unknown = {topic_id for topic_id, _ in wanted} - names.keys()
            if not unknown or looks == _LOOKS:
                return {TopicPartition(names[place[0]], place[1]): place for place in wanted if place[0] in names}
            because: object = f"the name of topic {self._one_of(unknown)} is not known"
            try:
                await deadline.within(self._cluster.refresh(topics))
                looks += 1
            except (ConnectionLostError, UnreachableError) as lost:
                because = lost
            if looks > 1 or not looks:
                await deadline.pause(because)

    @staticmethod
    def _one_of(unknown: Iterable[uuid.UUID]) -> uuid.UUID:
        return min(unknown)
