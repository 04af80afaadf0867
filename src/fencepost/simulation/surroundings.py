"""The surroundings of producers and readers of a workload, in the simulated world and on any other cluster alike."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from fencepost.protocol.types import TopicPartition
from fencepost.runtime import Runtime
from fencepost.simulation.script import Prompter

TOPICS: Final[Mapping[str, int]] = {"left": 2, "right": 3}
"""The topics that producers write to, with the number of partitions of each."""


class Cluster(NamedTuple):
    """The cluster that clients work on, and the topics and names that are theirs there."""

    host: str
    port: int
    topics: Mapping[str, int] = TOPICS
    prefix: str = ""
    """The beginning of their transactional ids and groups there."""

    @property
    def address(self) -> str:
        """The address that clients are given."""
        return f"{self.host}:{self.port}"

    @property
    def places(self) -> list[TopicPartition]:
        """The partitions that are written to."""
        return [TopicPartition(topic, n) for topic, count in self.topics.items() for n in range(count)]

    @property
    def position(self) -> TopicPartition:
        """The partition in which the groups of producers have a position; zombies write to it, too."""
        return self.places[0]

    def name_of(self, name: str) -> str:
        """The name that the cluster knows somebody by."""
        return self.prefix + name


class Surroundings(Protocol):
    """The time, the cluster and the chance that clients of one run have."""

    @property
    def cluster(self) -> Cluster: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def prompter(self) -> Prompter:
        """The source of what producers do next."""
        ...

    @property
    def may_end_early(self) -> bool:
        """Whether a transaction may have ended early: the clock was set ahead over a start, or a connection closed."""
        ...

    @property
    def patience(self) -> float:
        """Seconds in which everybody gets on, and every transaction ends, when nothing goes wrong any more."""
        ...

    def chance(self, name: str) -> Random:
        """A random generator for a part, which draws the same whatever other parts draw."""
        ...

    def note(self, text: str) -> None:
        """Write a line into the history."""
        ...

    def runtime(self, name: str) -> Runtime:
        """The runtime of a client of that name, whose requests meet no faults."""
        ...

    async def until(self, time: float) -> None:
        """Wait until this time of the loop, in seconds; not at all if it is over."""
        ...

    async def ends(self) -> Mapping[TopicPartition, int]:
        """The end offset of each partition of the cluster's topics now."""
        ...


class ClientProcess(Protocol):
    """A process of clients, whose requests may meet faults."""

    @property
    def name(self) -> str: ...

    @property
    def world(self) -> Surroundings: ...

    def runtime(self, name: str = "client") -> Runtime:
        """The runtime of a part of this process."""
        ...

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Run this in the process."""
        ...
