"""Fetch (1): read record batches from partitions.

v4    isolation level, aborted transactions, last stable offset
v5    log start offset
v7    sessions: every request is answered as one without a session, which clients accept (KIP-227);
      one that goes on with a session is told that it is forgotten
v9    the leader epoch that the reader knows
v11   rack
v12   flexible
v13   topic ids
v18   the high watermark that a follower knows
"""

from __future__ import annotations

import asyncio
from typing import Any

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.broker import Broker
from fencepost.broker.caller import Caller
from fencepost.broker.registry import serves
from fencepost.log.partition import Partition, Refused
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import FetchRequest, FetchResponse
from fencepost.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    PartitionData,
)
from fencepost.protocol.types import Isolation

_TOPIC_IDS_SINCE = 13
_NOT_HERE = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


@serves(FetchRequest)
def fetch(request: FetchRequest, caller: Caller, broker: Broker) -> Any:
    if request.session_epoch > 0:
        # It counts on what it asked for before: it asks for everything again when it hears that this is forgotten.
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    if request.isolation_level not in (0, 1):
        return _nonsense(request, caller)
    plan = _Plan(request, caller, broker)
    if plan.failed or request.max_wait_ms <= 0 or plan.readable() >= request.min_bytes:
        return plan.read()
    return _wait(plan, request.max_wait_ms / 1000)


async def _wait(plan: _Plan, seconds: float) -> FetchResponse:
    """Until there are min_bytes to read, or the time is up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        changed: asyncio.Future[None] = loop.create_future()

        def wake(changed: asyncio.Future[None] = changed) -> None:
            if not changed.done():
                changed.set_result(None)

        cancels = [partition.when_readable(wake) for partition in plan.partitions()]
        timer = loop.call_at(deadline, wake)
        try:
            await changed
        finally:
            timer.cancel()
            for cancel in cancels:
                cancel()
        plan.look_again()
        if plan.failed or loop.time() >= deadline or plan.readable() >= plan.min_bytes:
            return plan.read()


class _Plan:
    """What a request asks for, resolved once; read as often as it takes."""

    def __init__(self, request: FetchRequest, caller: Caller, broker: Broker) -> None:
        self.isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED
        self.min_bytes = request.min_bytes
        self._max_bytes = min(request.max_bytes, broker.settings.number("fetch.max.bytes"))
        self.failed = False
        self._storage = broker.storage
        self._gone = (
            ErrorCode.UNKNOWN_TOPIC_ID if caller.version >= _TOPIC_IDS_SINCE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        self._topics = [(topic, self._resolve(topic, caller, broker)) for topic in request.topics]

    def _resolve(
        self, topic: FetchTopic, caller: Caller, broker: Broker
    ) -> list[tuple[FetchPartition, Partition | ErrorCode]]:
        name: str | None = topic.topic
        if caller.version >= _TOPIC_IDS_SINCE:
            known = broker.topics.by_id.get(topic.topic_id)
            name = None if known is None else known.name
        found = [(wanted, self._find(name, wanted, caller, broker)) for wanted in topic.partitions]
        self.failed = self.failed or any(isinstance(place, ErrorCode) for _, place in found)
        return found

    def _find(self, name: str | None, wanted: FetchPartition, caller: Caller, broker: Broker) -> Partition | ErrorCode:
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not caller.may(Operation.READ, Resource.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partition = broker.storage.partition(name, wanted.partition)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if min(wanted.partition_max_bytes, self._max_bytes) < 0:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return _check_epoch(wanted.current_leader_epoch, partition)

    def look_again(self) -> None:
        """After a wait: a partition that was deleted meanwhile has no files any more."""
        for _, found in self._topics:
            for number, (wanted, place) in enumerate(found):
                if isinstance(place, Partition) and self._storage.partition(place.topic, place.index) is not place:
                    found[number] = wanted, self._gone
                    self.failed = True

    def partitions(self) -> list[Partition]:
        return [place for _, found in self._topics for _, place in found if isinstance(place, Partition)]

    def _at_once(self, wanted: FetchPartition, place: Partition) -> bool:
        """Whether the answer is an error, or the news that the reader has gone astray."""
        inside = place.log_start_offset <= wanted.fetch_offset <= place.log_end_offset
        return not inside or _diverging(wanted, place) is not None

    def readable(self) -> int:
        """About how many bytes a read would give; at least min_bytes where it would give an error."""
        total = 0
        for _, found in self._topics:
            for wanted, place in found:
                if isinstance(place, Partition):
                    if self._at_once(wanted, place):
                        return self.min_bytes
                    readable = place.readable_bytes(wanted.fetch_offset, self.isolation)
                    total += min(readable, wanted.partition_max_bytes)
        return total

    def read(self) -> FetchResponse:
        budget, responses = self._max_bytes, []
        for topic, found in self._topics:
            answers = []
            for wanted, place in found:
                answer = self._read_one(wanted, place, budget, first=budget == self._max_bytes)
                budget -= len(answer.records or b"")
                answers.append(answer)
            responses.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers))
        return FetchResponse(error_code=ErrorCode.NONE, session_id=0, responses=responses)

    def _read_one(
        self, wanted: FetchPartition, place: Partition | ErrorCode, budget: int, *, first: bool
    ) -> PartitionData:
        if isinstance(place, ErrorCode):
            return _refused(wanted, place, [] if place in _NOT_HERE else None)
        diverging = _diverging(wanted, place)
        if diverging is not None and diverging.end_offset < 0:
            return _refused(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
        if diverging is not None and wanted.fetch_offset >= place.log_start_offset:
            return PartitionData(
                partition_index=wanted.partition,
                error_code=ErrorCode.NONE,
                high_watermark=place.high_watermark,
                last_stable_offset=place.last_stable_offset,
                log_start_offset=place.log_start_offset,
                diverging_epoch=diverging,
                records=b"",
            )
        # The first batch of an answer is given however large it is, or a reader could never go on.
        limit = min(wanted.partition_max_bytes, budget)
        fetched = place.read(wanted.fetch_offset, max(limit, 0), self.isolation, at_least_one=first)
        if isinstance(fetched, Refused):
            return _refused(wanted, fetched.error)
        aborted = None
        if fetched.aborted is not None:
            aborted = [AbortedTransaction(producer_id=pid, first_offset=offset) for pid, offset in fetched.aborted]
        return PartitionData(
            partition_index=wanted.partition,
            error_code=ErrorCode.NONE,
            high_watermark=fetched.high_watermark,
            last_stable_offset=fetched.last_stable_offset,
            log_start_offset=fetched.log_start_offset,
            aborted_transactions=aborted,
            records=fetched.records,
        )


def _check_epoch(known: int, partition: Partition) -> Partition | ErrorCode:
    if known < 0 or known == partition.leader_epoch:
        return partition
    return ErrorCode.FENCED_LEADER_EPOCH if known < partition.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


def _diverging(wanted: FetchPartition, partition: Partition) -> EpochEndOffset | None:
    """Where the reader's last leader epoch ended here, if it has read something else; -1 for an epoch yet to come."""
    last = wanted.last_fetched_epoch
    if last < 0:
        return None
    epoch, end_offset = partition.end_offset_for_epoch(last)
    if end_offset >= 0 and epoch >= last and end_offset >= wanted.fetch_offset:
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end_offset)


def _nonsense(request: FetchRequest, caller: Caller) -> FetchResponse:
    """To an isolation that nobody knows: to take it for another would show what must not be seen."""
    error, responses = ErrorCode.UNKNOWN_SERVER_ERROR, []
    if caller.version < _TOPIC_IDS_SINCE:
        responses = [
            FetchableTopicResponse(
                topic=topic.topic, partitions=[_refused(wanted, error, []) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    return FetchResponse(error_code=error, responses=responses)


def _refused(
    wanted: FetchPartition, error: ErrorCode, aborted: list[AbortedTransaction] | None = None
) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        error_code=error,
        high_watermark=-1,
        last_stable_offset=-1,
        aborted_transactions=aborted,
        records=b"",  # never null: librdkafka does not survive it (KAFKA-18646)
    )
