"""Produce (0): append record batches to partitions.

v0-2  older record formats: advertised because librdkafka looks for it, but refused
v3    transactional id, record batches of format 2
v7    zstd
v8    error messages
v9    flexible
v11   TRANSACTION_ABORTABLE may be answered (KIP-890 part 1)
v12   partitions are added to the transaction by the leader (KIP-890 part 2)
v13   topic ids
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple

from fencepost.broker.leader.verification import Verified
from fencepost.broker.leader.writes import (
    IMPLICIT_ADD_SINCE,
    TOPIC_IDS_SINCE,
    Topics,
    Waiting,
    Write,
    check_batches,
    check_topic,
    failure,
    find,
    refuse_repeated,
    tell_timed_out,
    verify_writes,
)
from fencepost.broker.network import pacing
from fencepost.broker.network.older_clients import Call, asks_for_new_epoch
from fencepost.broker.network.registry import CLOSE, NO_ANSWER, Later, Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.transaction import TransactionCoordinator
from fencepost.log.partition import Appended
from fencepost.log.producer_state import Origin
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest, ProduceResponse
from fencepost.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from fencepost.protocol.types import TopicPartition


class _Produce(NamedTuple):
    """One request, while its writes are verified and checked."""

    request: ProduceRequest
    topics: Topics
    writes: list[Write]
    coordinator: TransactionCoordinator | None
    """What tells a client that its transaction was timed out, where that is another error than fencing."""
    node: Node

    def own(self) -> None:
        """Before anything is awaited: what was read from the connection is its own again then (KAFKA-15653)."""
        for write in self.writes:
            write.data.records = bytes(write.data.records or b"")

    def refuse_deleted(self) -> None:
        """After something was awaited."""
        for write in self.writes:
            if write.outcome is None and self.node.storage.partition(*write.at) is not write.partition:
                write.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{write.at} was deleted meanwhile")


@serves(ProduceRequest, advertised_first=0, in_turn=True)
def produce(request: ProduceRequest, context: RequestContext, node: Node) -> Reply | Later:
    topics = [
        (
            topic,
            [Write(TopicPartition(_name(topic, context, node), data.index), data) for data in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    writes = [write for _, of_topic in topics for write in of_topic]
    for write in writes:
        find(write, context, node)
    refuse_repeated(writes)
    failed = failure(request, writes, context)
    if failed is not None:
        for write in writes:
            write.outcome = failed
        return _append(_Produce(request, topics, writes, None, node), 0)
    waiting, verified = verify_writes(request, writes, context, node)
    coordinator = None
    if context.version < IMPLICIT_ADD_SINCE and asks_for_new_epoch(context, Call.PRODUCE):
        coordinator = node.transactions
    produce = _Produce(request, topics, writes, coordinator, node)
    if verified is None or isinstance(verified, Verified):
        return _check(produce, waiting, verified)
    produce.own()
    return _check_later(produce, waiting, verified)


async def _check_later(produce: _Produce, waiting: Waiting, verified: Awaitable[Verified]) -> Reply:
    answer = await verified
    produce.refuse_deleted()
    checked = _check(produce, waiting, answer)
    return checked if isinstance(checked, Reply) else await checked


def _check(produce: _Produce, waiting: Waiting, verified: Verified | None) -> Reply | Later:
    """What was verified goes into the log if its batches are what they should be: at once, unless they are large."""
    lsn = 0
    if verified is not None:
        lsn = verified.lsn
        for at, error in verified.errors.items():
            if error and waiting[at].outcome is None:
                waiting[at].refuse(*verified.produce_error(at))
    for write in produce.writes:
        check_topic(write, produce.request)
        if write.outcome is None and write.flaw is not None:
            write.outcome = write.flaw.refused
    begun = pacing.begin(check_batches(produce.writes))
    if isinstance(begun, pacing.Done):
        return _append(produce, lsn)
    produce.own()
    return _append_later(produce, lsn, begun)


async def _append_later(produce: _Produce, lsn: int, checked: Awaitable[None]) -> Reply:
    await checked
    produce.refuse_deleted()
    return _append(produce, lsn)


def _append(produce: _Produce, lsn: int) -> Reply:
    """Into the log, if each guard still holds: much may have happened since it was asked."""
    request, writes, node = produce.request, produce.writes, produce.node
    for write in writes:
        if write.outcome is None:
            assert write.partition is not None and write.data.records is not None
            write.outcome = write.partition.append(
                write.data.records, Origin.CLIENT, guard=write.guard, checked=write.checked
            )
    if produce.coordinator is not None:
        tell_timed_out(request, writes, produce.coordinator)
    appended = [write.outcome.lsn for write in writes if isinstance(write.outcome, Appended)]
    if len(appended) < len(writes):
        # What is known of a producer when it is refused may not be durable yet either.
        lsn = node.storage.lsn
    if request.acks == 0:
        # The client hears of an error by the connection's end, since it reads no answer.
        return NO_ANSWER if len(appended) == len(writes) else CLOSE
    return Reply(_response(produce.topics), max(appended, default=0) if not lsn else max(lsn, *appended, 0))


def _name(topic: TopicProduceData, context: RequestContext, node: Node) -> str:
    if context.version < TOPIC_IDS_SINCE:
        return topic.name
    known = node.topics.by_id.get(topic.topic_id)
    return "" if known is None else known.name


def _response(topics: Topics) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=[_one(write) for write in writes]
            )
            for topic, writes in topics
        ]
    )


def _one(write: Write) -> PartitionProduceResponse:
    outcome = write.outcome
    if isinstance(outcome, Appended):
        return PartitionProduceResponse(
            index=write.at.partition,
            error_code=ErrorCode.NONE,
            base_offset=outcome.base_offset,
            log_append_time_ms=outcome.log_append_time,
            log_start_offset=outcome.log_start_offset,
        )
    assert outcome is not None, "every partition of a request is answered"
    return PartitionProduceResponse(
        index=write.at.partition,
        error_code=outcome.error,
        base_offset=-1,
        log_start_offset=outcome.log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=why)
            for number, why in outcome.record_errors
        ],
        error_message=outcome.message,
    )
