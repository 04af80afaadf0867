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

from fencepost.broker.leader.verification import Verified
from fencepost.broker.leader.writes import (
    IMPLICIT_ADD_SINCE,
    TOPIC_IDS_SINCE,
    Topics,
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
from fencepost.broker.network.pacing import HandlerSteps, awaited
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
from fencepost.protocol.steps import ITEM, Pace, Steps
from fencepost.protocol.types import TopicPartition


class _Produce:
    """One request, while its writes are found, verified, checked and appended."""

    __slots__ = ("context", "node", "pace", "request", "topics", "waited", "writes")

    def __init__(self, request: ProduceRequest, context: RequestContext, node: Node) -> None:
        self.request = request
        self.context = context
        self.node = node
        self.pace = Pace()
        self.topics: Topics = []
        self.writes: list[Write] = []
        self.waited = False
        """Whether others were served meanwhile: a partition that was found may have been deleted."""

    def own(self) -> None:
        """Before anything is awaited: what was read from the connection is its own again then (KAFKA-15653)."""
        self.waited = True
        for topic in self.request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = bytes(data.records)

    def refuse_deleted(self, write: Write) -> None:
        if write.outcome is None and self.node.storage.partition(*write.at) is not write.partition:
            write.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{write.at} was deleted meanwhile")


@serves(ProduceRequest, advertised_first=0, in_turn=True)
def produce(request: ProduceRequest, context: RequestContext, node: Node) -> Reply | Later:
    produce = _Produce(request, context, node)
    begun = pacing.begin(_steps(produce), node.slices)
    if isinstance(begun, pacing.Done):
        reply: Reply = begun.result
        return reply
    produce.own()
    return begun


def _steps(produce: _Produce) -> HandlerSteps[Reply]:
    """The order of Apache Kafka: found, verified, checked, appended."""
    request, context, node, writes, pace = produce.request, produce.context, produce.node, produce.writes, produce.pace
    for topic in request.topic_data:
        pace.left -= ITEM
        if pace.left <= 0:
            yield from pace.spend(0)
        name, of_topic = _name(topic, context, node), []
        for data in topic.partition_data:
            pace.left -= 2 * ITEM
            if pace.left <= 0:
                yield from pace.spend(0)
            write = Write(TopicPartition(name, data.index), data)
            find(write, context, node)
            of_topic.append(write)
        produce.topics.append((topic, of_topic))
        writes += of_topic
    yield from refuse_repeated(writes, pace)
    failed = failure(request, writes, context)
    if failed is not None:
        for write in writes:
            write.outcome = failed
        return (yield from _append(produce, 0, None))
    for write in writes if produce.waited else ():
        produce.refuse_deleted(write)
    waiting, verified = verify_writes(request, writes, context, node)
    coordinator = None
    if context.version < IMPLICIT_ADD_SINCE and asks_for_new_epoch(context, Call.PRODUCE):
        coordinator = node.transactions
    lsn = 0
    if verified is not None:
        answer = verified if isinstance(verified, Verified) else (yield from awaited(verified))
        lsn = answer.lsn
        for at, error in answer.errors.items():
            if error and waiting[at].outcome is None:
                waiting[at].refuse(*answer.produce_error(at))
    for write in writes:
        pace.left -= 1
        if pace.left <= 0:
            yield from pace.spend(0)
        check_topic(write, request)
        if write.outcome is None and write.flaw is not None:
            write.outcome = write.flaw.refused
    yield from check_batches(writes, pace)
    return (yield from _append(produce, lsn, coordinator))


def _append(produce: _Produce, lsn: int, coordinator: TransactionCoordinator | None) -> Steps[Reply]:
    """Into the log, if each guard still holds: much may have happened since it was asked.

    `coordinator`: what tells a client that its transaction was timed out, where that is another error than fencing.
    """
    request, writes, pace = produce.request, produce.writes, produce.pace
    last = 0
    complete = True
    for write in writes:
        pace.left -= ITEM
        if pace.left <= 0:
            yield from pace.spend(0)
        if produce.waited:
            produce.refuse_deleted(write)
        if write.outcome is None:
            assert write.partition is not None and write.data.records is not None
            write.outcome = write.partition.append(
                write.data.records, Origin.CLIENT, guard=write.guard, checked=write.checked
            )
        if isinstance(write.outcome, Appended):
            last = max(last, write.outcome.lsn)
        else:
            complete = False
    if coordinator is not None:
        tell_timed_out(request, writes, coordinator)
    if request.acks == 0:
        # The client hears of an error by the connection's end, since it reads no answer.
        return NO_ANSWER if complete else CLOSE
    response = yield from _response(produce.topics, pace)
    if not complete:
        # What is known of a producer when it is refused may not be durable yet either.
        lsn = produce.node.storage.lsn
    return Reply(response, max(lsn, last))


def _name(topic: TopicProduceData, context: RequestContext, node: Node) -> str:
    if context.version < TOPIC_IDS_SINCE:
        return topic.name
    known = node.topics.by_id.get(topic.topic_id)
    return "" if known is None else known.name


def _response(topics: Topics, pace: Pace) -> Steps[ProduceResponse]:
    responses = []
    for topic, writes in topics:
        pace.left -= ITEM
        if pace.left <= 0:
            yield from pace.spend(0)
        told = []
        for write in writes:
            pace.left -= ITEM
            if pace.left <= 0:
                yield from pace.spend(0)
            told.append(_one(write))
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=told))
    return ProduceResponse(responses=responses)


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
