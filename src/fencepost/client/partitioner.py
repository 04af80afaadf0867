"""Chooses the partition of a record that is sent without one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from fencepost.client.bulk import AS_ANY, Chunk, Column
from fencepost.client.cluster import TopicView
from fencepost.protocol.partitioning import partition_for_key

Partitioning: TypeAlias = Callable[[str, bytes | None, Sequence[int]], int]
"""Topic, key and the topic's partitions -> one of these."""
#: Bytes of a record beside its value, about.
_OVERHEAD: Final = 10


def check_place(topic: object, partition: object) -> None:
    """Raises TypeError unless `topic` is a str and `partition` an int (no bool) or None."""
    if not isinstance(topic, str):
        raise TypeError(f"topic={topic!r}: it must be a str")
    if partition is not None and type(partition) is not int:
        raise TypeError(f"partition={partition!r}: it must be an int")


class Partitioner:
    """Chooses partitions: by the user's function, or the key's hash; without a key one for about `batch_bytes`."""

    def __init__(self, random: Random, batch_bytes: int, by_user: Partitioning | None = None) -> None:
        self._random = random
        self._batch_bytes = batch_bytes
        self._by_user = by_user
        self._asking = threading.RLock()
        """Held while the user's function is called: by one thread at a time."""
        self._sticky: dict[str, list[int]] = {}
        """Topic -> the partition of records without a key, and for how many bytes yet."""

    def choose(self, topic: TopicView, key: bytes | None, partition: int | None, size: int) -> int:
        """The partition of a value of `size` bytes; -1 if `partition` is given and there is none of that number.

        Raises ValueError if the user's function returns what is no partition of the topic.
        """
        if partition is not None:
            check_place(topic.name, partition)
            return partition if partition in topic.leaders else -1
        if self._by_user is not None:
            return self._chosen_by_user(self._by_user, topic, key)
        if key is not None:
            return partition_for_key(key, topic.partition_count)
        sticky = self._sticky.get(topic.name)
        if sticky is None or sticky[1] <= 0 or sticky[0] not in topic.leaders:
            led = [number for number, leader in topic.leaders.items() if leader >= 0] or list(topic.leaders)
            sticky = self._sticky[topic.name] = [led[self._random.randrange(len(led))], self._batch_bytes]
        sticky[1] -= size + _OVERHEAD
        return sticky[0]

    def spread(self, topic: TopicView, chunk: Chunk, partition: int | None) -> dict[int, tuple[Column, Column]]:
        """Partition -> its keys and values, in their order; those without a key go to one partition."""
        keyless = -1
        if partition is not None or self._by_user is None:
            keyless = self.choose(topic, None, partition, chunk.size)
        if partition is not None or (self._by_user is None and chunk.keys.count(None) == len(chunk.keys)):
            return {keyless: (chunk.keys, chunk.values)}
        found: dict[int, tuple[Column, Column]] = {}
        for key, value in zip(chunk.keys, chunk.values, strict=True):
            number = keyless if keyless >= 0 and key is None else self.choose(topic, key, None, 0)
            keys, values = found.setdefault(number, ([], []))
            keys.append(key)
            values.append(value)
        return found

    def numbers(self, topic: TopicView, chunk: Chunk, partition: int | None) -> list[int]:
        """The partition of each record: its own if it names one, else as `spread` has it."""
        keyless = (
            self.choose(topic, None, partition, chunk.size) if self._by_user is None or partition is not None else -1
        )
        return [
            own if own != AS_ANY else keyless if keyless >= 0 and key is None else self.choose(topic, key, partition, 0)
            for key, (own, *_) in zip(chunk.keys, chunk.own or (), strict=True)
        ]

    def _chosen_by_user(self, by_user: Partitioning, topic: TopicView, key: bytes | None) -> int:
        with self._asking:
            chosen = by_user(topic.name, key, list(topic.leaders))
        if type(chosen) is not int or chosen not in topic.leaders:
            raise ValueError(
                f"partitioner returned {chosen!r} for a record of topic {topic.name!r}: it must return one of the "
                f"partitions that it is given, here 0 to {topic.partition_count - 1}"
            )
        return chosen

    def another(self, topic: str) -> None:
        """Choose another partition for the next records of this topic without a key, as a batch of it is full."""
        self._sticky.pop(topic, None)
