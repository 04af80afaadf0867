"""Chooses the partition of each record, after the topic was looked up if it is not known."""

from __future__ import annotations

from fencepost.client.cluster import Cluster, TopicView
from fencepost.client.errors import no_such_partition
from fencepost.client.partitioner import Partitioner, check_place


class Placement:
    """Chooses the partitions of the records of one producer."""

    def __init__(self, cluster: Cluster, partitioner: Partitioner) -> None:
        self._cluster = cluster
        self.partitioner = partitioner

    def known(self, topic: str, key: bytes | None, partition: int | None, size: int) -> int:
        """The partition of a value of `size` bytes; -1: the topic must be looked up, or has no such partition."""
        try:
            view = self._cluster.topics.get(topic)
        except TypeError:
            return -1  # what is no topic's name is refused where it is looked up
        return -1 if view is None else self.partitioner.choose(view, key, partition, size)

    async def view(self, topic: str) -> TopicView:
        """The topic as far as it is known; else as `looked_up`."""
        check_place(topic, None)
        return self._cluster.topics.get(topic) or await self.looked_up(topic, None)

    async def looked_up(self, topic: str, partition: int | None) -> TopicView:
        """The topic, looked up anew.  Raises TypeError, TimedOutError, BrokerError if there is no such partition."""
        check_place(topic, partition)
        self._cluster.forget_topic(topic)  # it may have got more partitions
        view = await self._cluster.topic(topic, self._cluster.deadline(f"looking up topic {topic!r}"))
        if partition is not None and partition not in view.leaders:
            raise no_such_partition(topic, partition, view.partition_count)
        return view
