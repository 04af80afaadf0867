"""Fetches batches ahead of the consumer, one request at a time to each leader."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, ClientError, ConnectionLostError, UnreachableError
from fencepost.client.records import ConsumerRecord, records_of
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.messages import FetchRequest, ListOffsetsRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.types import ZERO_UUID, Isolation, TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
#: Newest Fetch that names topics; the ones after it need topic ids.
_NEWEST_FETCH_BY_NAME: Final = 12
_PAUSE: Final = 0.05
#: Seconds at least, as in Apache Kafka's clients (retry.backoff.ms).
_BETWEEN_REFRESHES: Final = 0.1
_LEADER_MOVED: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
)


class Fetched(NamedTuple):
    """What came for one partition: raw batches from `position` on."""

    position: int
    data: memoryview
    aborted: list[tuple[int, int]] | None


class Followed:
    """One partition that is being read."""

    __slots__ = ("at", "chunk", "fetched", "had_some", "in_flight", "paused", "position", "ready", "seeks", "topic_id")

    def __init__(self, at: TopicPartition, position: int, topic_id: uuid.UUID = ZERO_UUID) -> None:
        self.at = at
        self.topic_id = topic_id
        """Of the topic that the position is in; zero: not known."""
        self.position = position
        """Offset of the next record to hand out."""
        self.fetched: Fetched | None = None
        """The next data, not looked into yet."""
        self.ready: list[ConsumerRecord] = []
        self.chunk = position
        """Where to go on when `ready` is used up."""
        self.in_flight = False
        self.had_some = True
        """Whether the last answer had records, so that there may be more at once."""
        self.paused = False
        self.seeks = 0
        """How often it was said where to go on."""

    def seek(self, position: int) -> None:
        self.seeks += 1
        self.position = self.chunk = position
        self.ready, self.fetched = [], None

    @property
    def fetch_offset(self) -> int:
        return self.chunk

    def decode(self) -> None:
        """Look into what was fetched."""
        if not self.ready and self.fetched is not None:
            fetched, self.fetched = self.fetched, None
            if fetched.position == self.chunk:
                topic, partition = self.at
                found, self.chunk = records_of(topic, partition, fetched.data, fetched.aborted, self.chunk)
                found.reverse()
                self.ready = found
                if not found:
                    self.position = self.chunk


class Fetcher:
    """Fetches the assigned partitions from their leaders before the consumer asks, and keeps the position of each."""

    def __init__(
        self,
        cluster: Cluster,
        isolation: Isolation,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        max_partition_bytes: int,
    ) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._max_partition_bytes = max_partition_bytes
        self.followed: dict[TopicPartition, Followed] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._refresh_from = 0.0
        """When the leaders may be asked for again, by the loop's clock."""
        self._asked: set[int] = set()
        """Nodes that have a fetch to answer."""
        self._current: Followed | None = None
        """Where `take_one` took the last record."""
        self.error: ClientError | None = None
        self.out_of_range: dict[TopicPartition, int] = {}
        """Partitions whose position is not in the log, and that position."""

    def follow(self, positions: Mapping[TopicPartition, int], topic_ids: Mapping[str, uuid.UUID]) -> None:
        """Read these partitions and no others, from these positions on."""
        self.followed = {
            at: Followed(at, position, topic_ids.get(at.topic, ZERO_UUID)) for at, position in positions.items()
        }
        self.out_of_range.clear()
        self._current = None

    def follow_too(self, positions: Mapping[TopicPartition, int], topic_ids: Mapping[str, uuid.UUID]) -> None:
        """Read these partitions as well."""
        for at, position in positions.items():
            self.followed.setdefault(at, Followed(at, position, topic_ids.get(at.topic, ZERO_UUID)))

    def made_anew(self) -> dict[TopicPartition, uuid.UUID]:
        """Partitions whose topic is another one by now, and its id."""
        found = {}
        for at, partition in self.followed.items():
            topic = self._cluster.topics.get(at.topic)
            if topic is not None and at.partition in topic.leaders and _differ(partition.topic_id, topic.topic_id):
                found[at] = topic.topic_id
        return found

    # Records out

    def take(self, count: int) -> list[ConsumerRecord]:
        """Up to `count` records that are here already, of partitions in turn."""
        taken: list[ConsumerRecord] = []
        for at in list(self.followed):
            partition = self.followed[at]
            if partition.paused:
                continue
            partition.decode()
            before = len(taken)
            while partition.ready and len(taken) < count:
                taken.append(partition.ready.pop())
            if len(taken) > before:
                partition.position = taken[-1].offset + 1 if partition.ready else partition.chunk
                # The next call begins with another partition.
                self.followed[at] = self.followed.pop(at)
            if len(taken) >= count:
                break
        return taken

    def take_one(self, may_go_on: Callable[[], bool]) -> ConsumerRecord | None:
        """The next record that is here already, if there is one; of the same partition as long as that has some.

        Then it is asked whether to go on with another one.
        """
        partition = self._current
        if partition is None or not partition.ready or partition.paused:
            self._current = partition = self._next_partition() if may_go_on() else None
            if partition is None:
                return None
        record = partition.ready.pop()
        partition.position = record.offset + 1 if partition.ready else partition.chunk
        return record

    def _next_partition(self) -> Followed | None:
        for at in list(self.followed):
            partition = self.followed[at]
            if not partition.paused:
                partition.decode()
                if partition.ready:
                    self.followed[at] = self.followed.pop(at)
                    self.fetch()
                    return partition
        return None

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - it is no error if nothing comes
        """Wait until something may have come."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await self._waiter
        except TimeoutError:
            pass
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Fetching

    def fetch(self) -> None:
        """Ask each node for more of every partition that has nothing waiting, one request at a time.

        A node answers in order, so a request that waits for records holds up whatever comes after it.  While something
        of its partitions waits here, it is therefore asked only for more of those that had some, and not to wait.
        """
        by_node: dict[int, list[Followed]] = {}
        full: set[int] = set()
        lost: dict[str, None] = {}
        for partition in self.followed.values():
            if partition.in_flight or partition.paused:
                continue
            topic = self._cluster.topics.get(partition.at.topic)
            leader = -1 if topic is None else topic.leaders.get(partition.at.partition, -1)
            if partition.fetched is not None:
                full.add(leader)
            elif leader < 0 or leader not in self._cluster.nodes:
                lost[partition.at.topic] = None
            elif topic is not None and _differ(partition.topic_id, topic.topic_id):
                continue  # `made_anew`
            else:
                by_node.setdefault(leader, []).append(partition)
        for node, partitions in by_node.items():
            if node in self._asked or (node in full and not any(each.had_some for each in partitions)):
                continue
            self._asked.add(node)
            self._start(self._fetch(node, partitions, 0 if node in full else self._max_wait_ms))
            for partition in partitions:
                partition.in_flight = True
        if lost:
            self.refresh(list(lost))

    def refresh(self, topics: Sequence[str]) -> None:
        """Ask for the leaders and partitions of these topics, unless that is under way."""
        if not any(task.get_name() == "metadata" for task in self._tasks):
            self._start(self._find_leaders(topics), "metadata")

    def _start(self, work: Any, name: str = "fetch") -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _find_leaders(self, topics: Sequence[str]) -> None:
        # The first time at once; a node that was told the same again is not to be asked as fast as it answers.
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._refresh_from - loop.time())
        self._refresh_from = loop.time() + _BETWEEN_REFRESHES
        try:
            await self._cluster.refresh(topics)
        except (ConnectionLostError, UnreachableError):
            pass
        except ClientError as error:
            self.error = error
        if any(name not in self._cluster.topics for name in topics):
            await asyncio.sleep(_PAUSE)
        self._wake()

    async def _fetch(self, node: int, partitions: list[Followed], max_wait_ms: int) -> None:
        asked = {partition.at: (partition, partition.fetch_offset) for partition in partitions}
        try:
            answer = await self._cluster.call(
                node,
                self._request(asked, max_wait_ms),
                most=None if _have_ids(partitions) else _NEWEST_FETCH_BY_NAME,
                timeout_ms=self._cluster.request_timeout_ms + self._max_wait_ms,
            )
            self._take_answer(answer, asked)
        except (ConnectionLostError, UnreachableError):
            self._cluster.topics.clear()
            await asyncio.sleep(_PAUSE)
        except ClientError as error:
            self.error = error
        except ProtocolError as error:
            self.error = ClientError(f"node {node} sent what cannot be read: {error}")
        finally:
            self._asked.discard(node)
            for partition in partitions:
                partition.in_flight = False
        self._wake()

    def _request(self, asked: dict[TopicPartition, tuple[Followed, int]], max_wait_ms: int) -> FetchRequest:
        by_topic: dict[tuple[str, uuid.UUID], list[FetchPartition]] = {}
        for at, (partition, offset) in asked.items():
            by_topic.setdefault((at.topic, partition.topic_id), []).append(
                FetchPartition(
                    partition=at.partition, fetch_offset=offset, partition_max_bytes=self._max_partition_bytes
                )
            )
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation,
            topics=[
                FetchTopic(topic=name, topic_id=topic_id, partitions=wanted)
                for (name, topic_id), wanted in by_topic.items()
            ],
        )

    def _take_answer(self, answer: Any, asked: dict[TopicPartition, tuple[Followed, int]]) -> None:
        if answer.error_code:
            raise BrokerError(answer.error_code, "the fetch was refused")
        names = {partition.topic_id: at.topic for at, (partition, _) in asked.items()}
        for topic in answer.responses:
            for found in topic.partitions:
                at = TopicPartition(topic.topic or names[topic.topic_id], found.partition_index)
                partition, offset = asked[at]
                if self.followed.get(at) is not partition or partition.fetch_offset != offset:
                    continue  # no longer read, or from elsewhere
                partition.had_some = bool(found.records)
                error = ErrorCode(found.error_code)
                if error is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.out_of_range[at] = offset
                elif error in _LEADER_MOVED:
                    self._cluster.forget_topic(at.topic)
                elif error:
                    raise BrokerError(error, f"{at.topic}-{at.partition} cannot be read")
                elif found.records:
                    partition.fetched = Fetched(offset, memoryview(found.records), self._aborted(found))

    def _aborted(self, found: Any) -> list[tuple[int, int]] | None:
        if self._isolation is Isolation.READ_UNCOMMITTED:
            return None
        return [(entry.producer_id, entry.first_offset) for entry in found.aborted_transactions or ()]

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        self._wake()


def _differ(known: uuid.UUID, told: uuid.UUID) -> bool:
    """Whether these are ids of two topics; a zero id says nothing."""
    return known != told and known != ZERO_UUID and told != ZERO_UUID


def _have_ids(partitions: Sequence[Followed]) -> bool:
    return all(partition.topic_id != ZERO_UUID for partition in partitions)


async def fetch_partition(
    cluster: Cluster, leader: int, at: TopicPartition, position: int, isolation: Isolation, *, max_bytes: int
) -> Any:
    """Ask a leader once for one partition; its part of the answer.  Raises ConnectionLostError."""
    wanted = FetchPartition(partition=at.partition, fetch_offset=position, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=at.topic, partitions=[wanted])],
    )
    answer = await cluster.call(leader, request, most=_NEWEST_FETCH_BY_NAME)
    return answer.responses[0].partitions[0]


async def list_offsets(
    cluster: Cluster, partitions: Sequence[TopicPartition], timestamp: int, isolation: Isolation
) -> dict[TopicPartition, tuple[int, int]]:
    """(offset, timestamp) by time: EARLIEST, LATEST, or the first record not older than so many milliseconds.

    Raises BrokerError, TimedOutError.
    """
    deadline = cluster.deadline("looking up offsets")
    found: dict[TopicPartition, tuple[int, int]] = {}
    while True:
        by_node: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
        for at in partitions:
            if at not in found:
                wanted = ListOffsetsPartition(partition_index=at.partition, timestamp=timestamp)
                by_node.setdefault(await cluster.leader(at, deadline), {}).setdefault(at.topic, []).append(wanted)
        if not by_node:
            return found
        because: object = None
        for node, topics in by_node.items():
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in topics.items()],
            )
            try:
                answer = await deadline.within(cluster.call(node, request, most=7))
            except (ConnectionLostError, UnreachableError) as lost:
                because = lost
                for name in topics:
                    cluster.forget_topic(name)
                continue
            for topic in answer.topics:
                for part in topic.partitions:
                    error = ErrorCode(part.error_code)
                    if error.retriable:
                        because = error.name
                        cluster.forget_topic(topic.name)
                    elif error:
                        raise BrokerError(error, f"no offsets of {topic.name}-{part.partition_index} are told")
                    else:
                        found[TopicPartition(topic.name, part.partition_index)] = (part.offset, part.timestamp)
        if because is not None:
            await deadline.pause(because)
