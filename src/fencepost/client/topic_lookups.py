"""Asks for the leaders and partitions of topics: one request at a time, and not as fast as they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from fencepost.client.arguments import one
from fencepost.client.cluster import Cluster, Deadline, TopicView
from fencepost.client.errors import BrokerError, ClientError, ConnectionLostError, UnreachableError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import MetadataRequest, MetadataResponse
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.types import TopicPartition

#: Seconds at least, as in Apache Kafka's clients (retry.backoff.ms), and at most, while a partition is led by nobody.
_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 0.5
#: Seconds in which a broker makes a topic by itself, if it does; shorter than any session of a group.
_MADE_WITHIN: Final = 0.3


class TopicLookups:
    """Asks for topics.  Those wanted meanwhile are in the next request, unless they are in the one under way.

    `answered` is called with each answer, or with the error if there is none.
    """

    def __init__(self, cluster: Cluster, answered: Callable[[MetadataResponse | ClientError], None]) -> None:
        self._cluster = cluster
        self._answered = answered
        self._wanted: dict[str, None] | None = {}
        """The topics to ask for in the next request; None: all."""
        self._asked: dict[str, None] | None = {}
        """The topics in the request that is under way; None: all."""
        self._from = 0.0
        """When the next request may be sent, in seconds of the loop's clock."""
        self._pause = _PAUSE
        self._task: asyncio.Task[None] | None = None

    def want(self, topics: Sequence[str] | None) -> None:
        """Ask for these topics (None: all)."""
        if self._asked is None or (topics is not None and self._asked.keys() >= set(topics)):
            return
        self._wanted = None if topics is None or self._wanted is None else {**self._wanted, **dict.fromkeys(topics)}
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._ask())

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        while self._wanted is None or self._wanted:
            # The first time at once; who was told the same again is not to ask as fast as it is answered.
            await asyncio.sleep(self._from - loop.time())
            self._asked, self._wanted = self._wanted, {}
            asked = None if self._asked is None else list(self._asked)
            try:
                answer: MetadataResponse | ClientError = await self._cluster.refresh(asked)
            except ClientError as error:
                answer = error
            finally:
                self._asked = {}
            self._pause = _PAUSE if self._are_led(asked) else min(2 * self._pause, _LONGEST_PAUSE)
            self._from = loop.time() + self._pause
            self._answered(answer)

    def _are_led(self, topics: Sequence[str] | None) -> bool:
        """Whether each partition of these topics has a leader, as far as is known."""
        known = self._cluster.topics
        return all(
            name in known and all(self._cluster.is_led(TopicPartition(name, number)) for number in known[name].leaders)
            for name in (topics or ())
        )

    def close(self) -> None:
        """Cancel the request under way; `answered` is not called any more."""
        if self._task is not None:
            self._task.cancel()


async def those_there(
    cluster: Cluster, topics: Iterable[str], deadline: Deadline, create: bool, *, anew: bool = False
) -> dict[str, TopicView]:
    """The topics of these that exist, by name; one request at a time asks for all that are unknown.

    `create`: have the others made, where the broker does that; what it does not make soon is said to be missing, and
    not waited for again.  `anew`: go by nothing that is known.  Raises BrokerError, TimedOutError.
    """
    names, loop = list(topics), asyncio.get_running_loop()
    if anew:
        for name in names:
            cluster.forget_topic(name)
    until = loop.time() + (min(_MADE_WITHIN, deadline.left / 2) if create else 0)
    found = await _as_of_now(cluster, names, deadline, create)
    while loop.time() < until and any(name not in found and name not in cluster.missing for name in names):
        await deadline.pause(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name)
        found |= await _as_of_now(cluster, [name for name in names if name not in found], deadline, create)
    for name in names:
        if name in found:
            cluster.missing.found(name)
        elif create:
            cluster.missing.miss(name)
    return {name: found[name] for name in names if name in found}


async def _as_of_now(cluster: Cluster, names: Sequence[str], deadline: Deadline, create: bool) -> dict[str, TopicView]:
    """As `those_there`, without waiting for any topic to be made."""
    unknown = [name for name in names if name not in cluster.topics]
    missing = await _missing(cluster, unknown, deadline, create) if unknown else frozenset[str]()
    found = {}
    for name in names:
        if name not in missing:
            try:
                found[name] = await cluster.topic(name, deadline, create=False)
            except BrokerError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
    return found


async def _missing(cluster: Cluster, names: Sequence[str], deadline: Deadline, create: bool) -> frozenset[str]:
    """Those of these topics of which a broker says that they are not there.  Raises TimedOutError."""
    while True:
        try:
            answer = await deadline.within(cluster.refresh(names, create))
        except (ConnectionLostError, UnreachableError) as lost:
            await deadline.pause(lost)
        else:
            gone = (each for each in answer.topics if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return frozenset(each.name for each in gone if each.name is not None)


async def topics_as_of_now(cluster: Cluster) -> list[str]:
    """Names of all topics that may be read, sorted, without the broker's own.  Raises TimedOutError."""
    answer = await _metadata_of(cluster, None, cluster.deadline("looking up the topics that there are"))
    return sorted(each.name for each in answer.topics if each.name and not (each.is_internal or each.error_code))


async def partitions_as_of_now(cluster: Cluster, topic: str) -> list[int]:
    """Numbers of a topic's partitions, sorted; it is not made.  Raises BrokerError, TimedOutError."""
    deadline = cluster.deadline(f"looking up topic {one('topic', topic)!r}")
    while True:
        (described,) = (await _metadata_of(cluster, topic, deadline)).topics
        error = ErrorCode(described.error_code)
        if error and (not error.retriable or error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise BrokerError(error, f"topic {topic!r} cannot be used")
        if described.partitions and not error:
            return sorted(part.partition_index for part in described.partitions)
        await deadline.pause(error.name if error else "no partitions yet")


async def _metadata_of(cluster: Cluster, topic: str | None, deadline: Deadline) -> MetadataResponse:
    """The Metadata of a topic, or (None) of all; the cluster's own metadata stays as it is.  Raises TimedOutError."""
    asked = None if topic is None else [MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    while True:
        try:
            connection = await deadline.within(cluster.any_connection())
            version = connection.version_of(MetadataRequest, 12)
            answer: MetadataResponse = await deadline.within(connection.request(request, version))
        except (ConnectionLostError, UnreachableError) as lost:
            await deadline.pause(lost)
        else:
            return answer
