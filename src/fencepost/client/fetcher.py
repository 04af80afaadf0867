"""Fetches batches ahead of the consumer, one request at a time to each leader."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from fencepost.client.cluster import Cluster
from fencepost.client.commit_order.options import CommitOrder
from fencepost.client.commit_order.partition import OpenTransaction, PartitionInCommitOrder
from fencepost.client.commit_order.position import Position
from fencepost.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    DamagedRecordsError,
    MisuseError,
    SpillError,
    UnreachableError,
)
from fencepost.client.fetch_requests import LEADER_MOVED, FetchSettings, aborted_in
from fencepost.client.fetch_session import Answer, Ends, Wanted
from fencepost.client.fetch_sessions import FetchSessions
from fencepost.client.followed import Fetched, Followed
from fencepost.client.lent import Lending, Working
from fencepost.client.partition_batch import PartitionBatch
from fencepost.client.records import ConsumerRecord
from fencepost.client.topic_lookups import TopicLookups
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.client.unread import Unread
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.messages import MetadataResponse
from fencepost.protocol.messages.fetch import EpochEndOffset, PartitionData
from fencepost.protocol.types import ZERO_UUID, Isolation, Offset, TopicPartition

logger = logging.getLogger(__name__)

_PAUSE: Final = 0.05


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
        order: CommitOrder | None = None,
    ) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._max_wait_ms = max_wait_ms
        self._sessions = FetchSessions(
            cluster, FetchSettings(max_wait_ms, min_bytes, max_bytes, max_partition_bytes, isolation)
        )
        self._order = order
        self.followed: dict[TopicPartition, Followed] = {}
        self.working: Working = {}
        """By partition, the position before the records handed out last, on which the caller may still be working."""
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._lookups = TopicLookups(cluster, self._looked_up)
        self._asked: set[int] = set()
        """The nodes that have a Fetch to answer."""
        self._current: Followed | None = None
        """The partition of which `take_one` took the last record."""
        self.lending = Lending()
        self.error: ClientError | None = None
        self._failed: DamagedRecordsError | SpillError | None = None
        """The error of one partition that came while others had records to hand out: the next call raises it."""
        self._unread = Unread()
        self.out_of_range: dict[TopicPartition, tuple[int, EpochEndOffset | None]] = {}
        """Partitions whose position is not in the log, or not as it was read: that offset, and where the log parted."""

    def follow(
        self, positions: Mapping[TopicPartition, int | OffsetAndMetadata], topic_ids: Mapping[str, uuid.UUID]
    ) -> None:
        """Read these partitions and no others, from these positions on.  Raises PositionMetadataError."""
        self.settle()
        followed = {at: self._follow(at, position, topic_ids) for at, position in positions.items()}
        for partition in self.followed.values():
            partition.let_go()
        self.followed = followed
        self.working = {}
        self.out_of_range.clear()
        self._current = None

    def follow_too(
        self, positions: Mapping[TopicPartition, int | OffsetAndMetadata], topic_ids: Mapping[str, uuid.UUID]
    ) -> None:
        """Read these partitions as well."""
        for at, position in positions.items():
            self.followed.setdefault(at, self._follow(at, position, topic_ids))

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions no more."""
        self.settle()
        for at in partitions:
            if at in self.followed:
                self.followed.pop(at).let_go()
            self.working.pop(at, None)
            self.out_of_range.pop(at, None)
            if self._current is not None and self._current.at == at:
                self._current = None

    def _follow(
        self, at: TopicPartition, position: int | OffsetAndMetadata, topic_ids: Mapping[str, uuid.UUID]
    ) -> Followed:
        return Followed(at, position, topic_ids.get(at.topic, ZERO_UUID), self._order)

    def seek(self, at: TopicPartition, position: int | OffsetAndMetadata) -> None:
        """Go on at `position` in a partition that is followed.  Raises PositionMetadataError."""
        self.settle()
        self.followed[at].seek(position)
        self.working.pop(at, None)
        self.out_of_range.pop(at, None)

    def before_work(self) -> dict[TopicPartition, int | OffsetAndMetadata]:
        """By partition, the position before the records that the caller may still be working on."""
        self.settle()
        return {at: found.committed() if isinstance(found, Position) else found for at, found in self.working.items()}

    def take_back(self) -> None:
        """Hand out again the records that were handed out last, as the caller never got them."""
        for at, position in self.before_work().items():
            self.seek(at, position)

    def lost(self) -> dict[TopicPartition, EpochEndOffset | None]:
        """Partitions with a leader whose log lacks the next offset to fetch, once all that was fetched is handed out.

        Each with where the log parts from what was read before, None if it does not (KIP-320).
        """
        self.settle()
        return {
            at: parted
            for at, (offset, parted) in self.out_of_range.items()
            if at in self.followed and self.followed[at].fetch_offset == offset and not self.followed[at].has_more
            if self._cluster.is_led(at)
        }

    def made_anew(self) -> dict[TopicPartition, uuid.UUID]:
        """Partitions whose topic was deleted and made anew since they are read, and the new topic's id."""
        self.settle()
        found = {}
        for at, partition in self.followed.items():
            topic = self._cluster.topics.get(at.topic)
            if topic is not None and self._cluster.is_led(at) and _differ(partition.topic_id, topic.topic_id):
                found[at] = topic.topic_id
        return found

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions whose end was not read yet, by partition.  Raises MisuseError in offset order."""
        if self._order is None:
            raise MisuseError("open_transactions() needs delivery='commit_order': give it to the consumer")
        now = asyncio.get_running_loop().time()
        readers = [partition.in_commit_order for _, partition in sorted(self.followed.items())]
        return [found for reader in readers if reader is not None for found in reader.open_transactions(now)]

    # Records out

    def take(self, count: int) -> list[ConsumerRecord]:
        """Up to `count` records that are here already, of partitions in turn.

        Raises DamagedRecordsError, SpillError; not before the records of others, which would be lost by that.
        """
        self._raise_what_failed()
        taken: list[ConsumerRecord] = []
        for at in list(self.followed):
            partition = self.followed[at]
            if partition.paused or not self._look_into(partition, Followed.decode):
                continue
            self.working[at] = partition.before_ready()
            while partition.ready and len(taken) < count:
                some = partition.ready[len(taken) - count :]
                del partition.ready[len(taken) - count :]
                taken += reversed(some)
                partition.handed_out(taken[-1].offset)
                self._look_into(partition, Followed.decode_on)
            # The next call begins with another partition.
            self.followed[at] = self.followed.pop(at)
            if len(taken) >= count:
                break
        if not taken:
            self._raise_what_failed()
        return taken

    def take_one(self, may_go_on: Callable[[], bool]) -> ConsumerRecord | None:
        """The next record that is here already, if there is one; of the same partition as long as that has some.

        `may_go_on`: whether to go on with another one then.  Raises as `take` does.
        """
        partition = self._current
        if partition is None or partition.paused or not self._look_into(partition, Followed.decode_on):
            self._current = partition = self._next_partition() if may_go_on() else None
            if partition is None:
                return None
        self.working = {partition.at: partition.before_ready()}
        record = partition.ready.pop()
        partition.handed_out(record.offset)
        return record

    def settle(self) -> None:
        """Take back the records that were lent to a thread, and that it has not taken."""
        self.lending.settle(self.followed, self.working)

    def take_batch(self) -> PartitionBatch | None:
        """All records here already of one partition, of partitions in turn; None: none are.  Raises as `take` does."""
        self._raise_what_failed()
        for at in list(self.followed):
            partition = self.followed[at]
            if partition.paused:
                continue
            before = partition.before_ready()
            try:
                batch = partition.take_batch()
            except (DamagedRecordsError, SpillError) as error:
                self._failed = error
                continue
            if batch is not None:
                self.working = {at: before}
                self.followed[at] = self.followed.pop(at)
                return batch
        self._raise_what_failed()
        return None

    def _next_partition(self) -> Followed | None:
        self._raise_what_failed()
        for at in list(self.followed):
            partition = self.followed[at]
            if not partition.paused and self._look_into(partition, Followed.decode):
                self.followed[at] = self.followed.pop(at)
                self.fetch()
                return partition
        self._raise_what_failed()
        return None

    def _look_into(self, partition: Followed, decode: Callable[[Followed], None]) -> bool:
        """Whether a partition has records to hand out, after more was decoded if it had none."""
        if not partition.ready:
            try:
                decode(partition)
            except (DamagedRecordsError, SpillError) as error:
                self._failed = error
        return bool(partition.ready)

    def _raise_what_failed(self) -> None:
        error, self._failed = self._failed, None
        if error is not None:
            raise error

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - it is no error if nothing comes
        """Wait, at most `timeout` seconds, until records may have come."""
        self._waiter = asyncio.get_running_loop().create_future()
        # Without an exception, which newer Pythons keep for a while, and with it all that waits: a forgotten consumer.
        timer = asyncio.get_running_loop().call_later(timeout, self.wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def wake(self) -> None:
        """Wake the caller in `wait`: records or an error may have come."""
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
                if topic is not None:
                    self._unread.failed(partition.at, "nobody leads it", asyncio.get_running_loop().time())
            elif topic is None or _differ(partition.topic_id, topic.topic_id):
                continue  # `made_anew`
            else:
                if not partition.topic_id.int:  # it was assigned before it was there, or known to be
                    partition.topic_id = topic.topic_id
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

    def refresh(self, topics: Sequence[str] | None) -> None:
        """Ask for the leaders and partitions of these topics (None: all), unless that is under way."""
        self._lookups.want(topics)

    def _looked_up(self, answered: MetadataResponse | ClientError) -> None:
        """Act on the answer to Metadata, or on its failure; an error that will not pass is raised by the next poll."""
        if isinstance(answered, ConnectionLostError | UnreachableError):
            self._unread.nobody_answers()
        elif isinstance(answered, ClientError):
            self.error = answered
        else:
            read = {at.topic: None for at in self.followed}
            for topic in answered.topics:
                error = ErrorCode(topic.error_code)
                if topic.name in read and error and not error.retriable:
                    self.error = BrokerError(error, f"topic {topic.name!r} cannot be read")
            if (warning := self._unread.warning(asyncio.get_running_loop().time(), self.followed)) is not None:
                logger.warning(warning)
        self.wake()

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work, name="fetch")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _fetch(self, node: int, partitions: list[Followed], max_wait_ms: int) -> None:
        wanted = {partition.at: partition.wanted for partition in partitions}
        asked = {partition.at: (partition, wanted[partition.at]) for partition in partitions}
        try:
            answer = await self._sessions.fetch(node, wanted, max_wait_ms, have_ids=_have_ids(partitions))
            if answer is not None:
                self._take_answer(answer, asked)
        except (ConnectionLostError, UnreachableError) as lost:
            self._cluster.topics.clear()
            now = asyncio.get_running_loop().time()
            for partition in partitions:
                self._unread.failed(partition.at, str(lost), now)
            await asyncio.sleep(_PAUSE)
        except ClientError as error:
            self.error = error
        except ProtocolError as error:
            self.error = ClientError(f"node {node} sent what cannot be read: {error}")
        finally:
            self._asked.discard(node)
            for partition in partitions:
                partition.in_flight = False
        self.wake()

    def _take_answer(self, answer: Answer, asked: Mapping[TopicPartition, tuple[Followed, Wanted]]) -> None:
        now, refused = asyncio.get_running_loop().time(), dict[TopicPartition, ErrorCode]()
        for at, (partition, wanted) in asked.items():
            if self.followed.get(at) is not partition or partition.wanted != wanted:
                continue  # no longer read, or from elsewhere
            found = answer.partitions.get(at)
            partition.had_some = found is not None and bool(found.records)
            if partition.in_commit_order is not None and at in answer.ends:
                self._told_ends(partition, partition.in_commit_order, answer.ends[at], now)
            if found is None:
                self._unread.answered(at)
            elif error := self._take_news(partition, found, now):
                refused[at] = error
        for at, error in refused.items():
            raise BrokerError(error, f"{at.topic}-{at.partition} cannot be read")

    def _take_news(self, partition: Followed, found: PartitionData, now: float) -> ErrorCode | None:
        """Take the answer of a node for a partition; the error to raise, None: none, or it is dealt with."""
        at, error = partition.at, ErrorCode(found.error_code)
        if error in LEADER_MOVED:
            self._cluster.forget_topic(at.topic)
            self._unread.failed(at, error.name, now)
            return None
        self._unread.answered(at)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE or (found.diverging_epoch is not None and not error):
            self.out_of_range[at] = partition.fetch_offset, None if error else found.diverging_epoch
        elif error:
            return error
        elif found.records:
            came = memoryview(found.records), aborted_in(found, self._isolation)
            partition.fetched = Fetched(partition.fetch_offset, *came, now, Offset(found.high_watermark))
        return None

    def _told_ends(self, partition: Followed, reader: PartitionInCommitOrder, ends: Ends, now: float) -> None:
        """Hand the newest `ends` of the log to a reader in commit order, and log its warnings."""
        if not partition.had_some:
            reader.answered(now, ends.high_watermark)
        for warning in reader.warnings(now, *ends):
            logger.warning(warning)

    async def close(self) -> None:
        """Fetch no more, and tell the nodes that have a session for us."""
        self._lookups.close()
        for task in list(self._tasks):
            task.cancel()
        if self._order is not None:
            self._order.buffers.close()
        self.wake()
        await self._sessions.end()


def _differ(known: uuid.UUID, answered: uuid.UUID) -> bool:
    """Whether these are ids of two topics; a zero id says nothing."""
    return known is not answered and known != answered and known != ZERO_UUID and answered != ZERO_UUID


def _have_ids(partitions: Sequence[Followed]) -> bool:
    return all(partition.topic_id.int for partition in partitions)
