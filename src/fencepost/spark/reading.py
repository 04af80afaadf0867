"""Reads a range of one partition as Arrow batches, in the columns of Spark's own Kafka source."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.errors import BrokerError, ConnectionLostError, UnreachableError
from fencepost.client.fetch_requests import fetch_partition
from fencepost.client.positions import list_offsets
from fencepost.client.records import visible_batches
from fencepost.client.security import Security
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.fetch_sessions import TOPIC_IDS_SINCE
from fencepost.protocol.messages import FetchRequest
from fencepost.protocol.messages.list_offsets import EARLIEST, LATEST
from fencepost.protocol.record_columns import record_batches
from fencepost.protocol.types import Isolation, TopicPartition
from fencepost.spark.losses import records_are_gone, topic_was_deleted, topic_was_made_anew

logger = logging.getLogger(__name__)

_FETCH_BYTES: Final = 8 * 1024 * 1024


def read_range(
    bootstrap_servers: str,
    security: Security | None,
    at: TopicPartition,
    start: int,
    end: int,
    isolation: Isolation,
    columns: list[str],
    fail_on_data_loss: bool,
    topic_id: str | None = None,
    patience_ms: int = 60_000,
) -> Iterator[pa.RecordBatch]:
    """The records in [start, end) that a reader of this isolation may see, fetched one request ahead.

    `topic_id`: of the topic that the range is in, None if it is not known.  `patience_ms`: how long, in ms, to wait for
    records.  Raises BrokerError if records are gone, or the topic is another one now, unless
    `fail_on_data_loss` says not to, and TimedOutError.
    """
    loop = asyncio.new_event_loop()
    cluster = Cluster(bootstrap_servers, client_id="fencepost-spark-source", security=security, patience_ms=patience_ms)
    reader = RangeReader(cluster, at, end, isolation, fail_on_data_loss, topic_id)
    position = start
    following = loop.create_task(reader.fetch(position))
    try:
        while position < end:
            position, data, aborted = loop.run_until_complete(following)
            if not data:
                if position >= end:
                    break
                following = loop.create_task(reader.fetch(position))
                continue
            there = list(visible_batches(data, aborted))
            # What lies behind the range may be most of an answer, and is not unfolded.
            batches = [(n, header) for n, header, visible in there if visible and header.base_offset < end]
            last = there[-1][1].last_offset if there else position - 1
            if last + 1 < end:
                following = loop.create_task(reader.fetch(last + 1))
                loop.run_until_complete(asyncio.sleep(0))  # so that the request leaves
            yield from record_batches(data, batches, at, position, end, columns)
            position = last + 1
        loop.run_until_complete(reader.check_topic())
    finally:
        following.cancel()  # whoever has rows enough waits for no more of them
        loop.run_until_complete(asyncio.wait({following}))
        loop.run_until_complete(cluster.close())
        loop.close()


class RangeReader:
    """Fetches the batches of a range of one partition from its leader."""

    def __init__(
        self,
        cluster: Cluster,
        at: TopicPartition,
        end: int,
        isolation: Isolation,
        fail_on_data_loss: bool,
        topic_id: str | None,
    ) -> None:
        self._cluster = cluster
        self._at = at
        self._end = end
        self._isolation = isolation
        self._fail_on_data_loss = fail_on_data_loss
        self._topic_id = topic_id
        self._asked_by_name = False
        """Whether a leader was asked that knows no topic ids, and may have answered of another topic of that name."""

    async def fetch(self, position: int) -> tuple[int, memoryview, list[tuple[int, int]] | None]:
        """The position of what follows (later than asked if records are lost), raw batches, and aborted transactions.

        Raises as `read_range`.
        """
        cluster, at = self._cluster, self._at
        deadline = cluster.deadline(f"reading {at.topic}-{at.partition} at {position}")
        while True:
            because: object
            try:
                if await self._is_another_topic(deadline):
                    return self._end, memoryview(b""), None
                leader = await cluster.leader(at, deadline)
                by_id = await self._id_for(leader)
                found = await fetch_partition(
                    *(cluster, leader, at, position, self._isolation), max_bytes=_FETCH_BYTES, topic_id=by_id
                )
            except (ConnectionLostError, UnreachableError) as error:
                because = error
            else:
                error_code = ErrorCode(found.error_code)
                if error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    return await self._passed_over(position), memoryview(b""), None
                if error_code and not error_code.retriable:
                    raise BrokerError(error_code, f"{at.topic}-{at.partition} cannot be read at offset {position}")
                if found.records:
                    if by_id is None and not self._fail_on_data_loss and await self._was_replaced():
                        return self._end, memoryview(b""), None
                    aborted = None
                    if self._isolation is Isolation.READ_COMMITTED:
                        aborted = [
                            (entry.producer_id, entry.first_offset) for entry in found.aborted_transactions or ()
                        ]
                    return position, memoryview(found.records), aborted
                because = error_code.name
            cluster.forget_topic(at.topic)
            await deadline.pause(because)

    async def _id_for(self, leader: int) -> uuid.UUID | None:
        """The topic's id, if it is known and the leader takes it: no other topic's records come then; else None."""
        connection = await self._cluster.connection(leader)
        if self._topic_id is None or connection.version_of(FetchRequest) < TOPIC_IDS_SINCE:
            self._asked_by_name = True
            return None
        return uuid.UUID(self._topic_id)

    async def check_topic(self) -> None:
        """Raises RecordsLostError, behind the last record, if the topic was deleted, or made anew.

        A fetch by name reads whichever there is.
        """
        if self._fail_on_data_loss and self._asked_by_name:
            await self._was_replaced()

    async def _was_replaced(self) -> bool:
        """Whether the topic is another one by now, as `_is_another_topic`.

        Where that is no error it is asked after each fetch: records of the new topic are read from its beginning later.
        """
        if self._topic_id is None:
            return False
        self._cluster.forget_topic(self._at.topic)
        return await self._is_another_topic(self._cluster.deadline(f"looking up topic {self._at.topic!r}"))

    async def _is_another_topic(self, deadline: Deadline) -> bool:
        """Whether the topic of the range was deleted or made anew.  Raises RecordsLostError if that is an error."""
        if self._topic_id is None:
            return False
        try:
            view = await self._cluster.topic(self._at.topic, deadline, create=False)
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if self._fail_on_data_loss:
                raise topic_was_deleted(self._at.topic) from None
            return True
        if str(view.topic_id) == self._topic_id:
            return False
        if self._fail_on_data_loss:
            raise topic_was_made_anew(self._at.topic)
        return True

    async def _passed_over(self, position: int) -> int:
        """The position to go on from, as this one is not in the log.  Raises RecordsLostError if that is an error."""
        cluster, at = self._cluster, self._at
        cluster.forget_topic(at.topic)
        if await self._is_another_topic(cluster.deadline(f"looking up topic {at.topic!r}")):
            return self._end
        first = (await list_offsets(cluster, [at], EARLIEST, self._isolation))[at][0]
        end = (await list_offsets(cluster, [at], LATEST, self._isolation))[at][0]
        if self._fail_on_data_loss:
            raise records_are_gone(at, position, first, end)
        following = min(first, self._end) if first > position else self._end
        where = f"{at.topic}-{at.partition} from offset {position} to {following - 1}"
        logger.warning("records are gone, and are left out as failOnDataLoss is false: %s", where)
        return following
