"""Routes: which node answers for an item, be it the leader of a partition, a coordinator, the controller, a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.errors import BrokerError, no_such_partition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import TopicPartition

Item = TypeVar("Item")

#: Coordinators that are looked up at once.
_AT_ONCE: Final = 500

Place: TypeAlias = int | str | BrokerError
"""The id of a node; or (a str) why no node can be asked yet; or the error, if none ever can."""


class Route(Protocol[Item]):
    """Finds the node that is to be asked about each item."""

    async def places(self, items: Sequence[Item], deadline: Deadline) -> Mapping[Item, Place]:
        """The node to ask about each item.  Raises ConnectionLostError, UnreachableError, TimedOutError."""
        ...

    def forget(self, item: Item) -> None:
        """Forget the node of an item, which has proved wrong: `places` looks it up again."""
        ...


class Leaders:
    """The route of partitions: each to its leader."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def places(self, items: Sequence[TopicPartition], deadline: Deadline) -> Mapping[TopicPartition, Place]:
        # Also where only the partition is not known: it may have been added since.
        names = dict.fromkeys(at.topic for at in items if not self._knows(at))
        refused: dict[str, ErrorCode] = {}
        if names:
            answer = await deadline.within(self._cluster.refresh(list(names)))
            refused = {topic.name or "": ErrorCode(topic.error_code) for topic in answer.topics if topic.error_code}
        return {at: self._place(at, refused.get(at.topic, ErrorCode.NONE)) for at in items}

    def _knows(self, at: TopicPartition) -> bool:
        known = self._cluster.topics.get(at.topic)
        return known is not None and at.partition in known.leaders

    def _place(self, at: TopicPartition, error: ErrorCode) -> Place:
        known = self._cluster.topics.get(at.topic)
        if known is None:
            if error.retriable and error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return f"{error.name} for topic {at.topic!r}"
            return BrokerError(error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {at.topic!r} cannot be used")
        if at.partition not in known.leaders:
            return no_such_partition(*at, known.partition_count)
        leader = known.leaders[at.partition]
        return leader if leader in self._cluster.nodes else f"nobody leads {at}"

    def forget(self, item: TopicPartition) -> None:
        self._cluster.forget_topic(item.topic)


class Coordinators:
    """The route of groups, or of transactional ids (`kind`): each to its coordinator."""

    def __init__(self, cluster: Cluster, kind: int) -> None:
        self._cluster = cluster
        self._kind = kind

    async def places(self, items: Sequence[str], deadline: Deadline) -> Mapping[str, Place]:
        found: dict[str, Place] = {}
        for first in range(0, len(items), _AT_ONCE):
            some = items[first : first + _AT_ONCE]
            found.update(zip(some, await asyncio.gather(*(self._place(item, deadline) for item in some)), strict=True))
        return found

    async def _place(self, item: str, deadline: Deadline) -> Place:
        try:
            return await self._cluster.coordinator(self._kind, item, deadline)
        except BrokerError as refused:
            return refused

    def forget(self, item: str) -> None:
        self._cluster.forget_coordinator(self._kind, item)


class Controller:
    """The route of changes of the whole cluster: to its controller."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def places(self, items: Sequence[Item], deadline: Deadline) -> Mapping[Item, Place]:
        if self._cluster.controller_id not in self._cluster.nodes:
            await deadline.within(self._cluster.refresh([]))
        found = self._cluster.controller_id
        place: Place = found if found in self._cluster.nodes else "there is no controller"
        return dict.fromkeys(items, place)

    def forget(self, item: object) -> None:  # noqa: ARG002 - it is one for all
        self._cluster.controller_id = -1


class Brokers:
    """The route of broker ids: each to the broker itself."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def places(self, items: Sequence[int], deadline: Deadline) -> Mapping[int, Place]:
        if any(item not in self._cluster.nodes for item in items):
            await deadline.within(self._cluster.refresh([]))
        return {item: self._place(item) for item in items}

    def _place(self, item: int) -> Place:
        if item in self._cluster.nodes:
            return item
        known = ", ".join(map(str, sorted(self._cluster.nodes)))
        return BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"the cluster has no broker {item}; there are {known}")

    def forget(self, item: int) -> None:
        self._cluster.nodes.pop(item, None)


class AnyBroker:
    """The route of what every broker knows: to one of them, after a failure to the next."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turn = 0
        self._must_look = False

    async def places(self, items: Sequence[Item], deadline: Deadline) -> Mapping[Item, Place]:
        if self._must_look or not self._cluster.nodes:
            await deadline.within(self._cluster.refresh([]))
            self._must_look = False
        nodes = sorted(self._cluster.nodes)
        place: Place = nodes[self._turn % len(nodes)] if nodes else "no broker is known"
        self._turn += 1
        return dict.fromkeys(items, place)

    def forget(self, item: object) -> None:  # noqa: ARG002 - the next one is asked about all
        self._must_look = True
