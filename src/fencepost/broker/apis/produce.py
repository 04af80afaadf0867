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

from collections import Counter
from collections.abc import Awaitable, Iterator
from typing import NamedTuple

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.leader import record_sets
from fencepost.broker.leader.record_sets import Flaw
from fencepost.broker.leader.verification import Mode, Verified, verify
from fencepost.broker.network import pacing
from fencepost.broker.network.older_clients import Call, asks_for_new_epoch
from fencepost.broker.network.registry import CLOSE, NO_ANSWER, Later, Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.transaction import TransactionCoordinator
from fencepost.log.batch_check import Checked
from fencepost.log.partition import Appended, Partition, Refused
from fencepost.log.producer_state import Origin, VerificationGuard
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest, ProduceResponse
from fencepost.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from fencepost.protocol.steps import Pace, Steps
from fencepost.protocol.types import TopicPartition

_IMPLICIT_ADD_SINCE = 12
_TOPIC_IDS_SINCE = 13


class _Write:
    """One partition of the request on its way."""

    __slots__ = ("at", "checked", "data", "flaw", "guard", "header", "outcome", "partition")

    def __init__(self, at: TopicPartition, data: PartitionProduceData) -> None:
        self.at = at
        self.data = data
        self.partition: Partition | None = None
        self.header: BatchHeader | None = None
        self.flaw: Flaw | None = None
        self.guard: VerificationGuard | None = None
        self.checked: Checked | None = None
        self.outcome: Appended | Refused | None = None

    def refuse(self, error: ErrorCode, message: str | None = None) -> None:
        self.outcome = Refused(error, message)


Topics = list[tuple[TopicProduceData, list[_Write]]]
Waiting = dict[TopicPartition, _Write]


class _Produce(NamedTuple):
    """One request on its way."""

    request: ProduceRequest
    topics: Topics
    writes: list[_Write]
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
            [_Write(TopicPartition(_name(topic, context, node), data.index), data) for data in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    writes = [write for _, of_topic in topics for write in of_topic]
    for write in writes:
        _find(write, context, node)
    _refuse_repeated(writes)
    failed = _failure(request, writes, context)
    if failed is not None:
        for write in writes:
            write.outcome = failed
        return _append(_Produce(request, topics, writes, None, node), 0)
    waiting, verified = _verify(request, writes, context, node)
    coordinator = None
    if context.version < _IMPLICIT_ADD_SINCE and asks_for_new_epoch(context, Call.PRODUCE):
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
        _check_topic(write, produce.request)
        if write.outcome is None and write.flaw is not None:
            write.outcome = write.flaw.refused
    begun = pacing.begin(_check_batches(produce.writes))
    if isinstance(begun, pacing.Done):
        return _append(produce, lsn)
    produce.own()
    return _append_later(produce, lsn, begun)


def _check_batches(writes: list[_Write]) -> Steps[None]:
    pace = Pace()
    for write in writes:
        if write.outcome is None:
            assert write.partition is not None and write.header is not None and write.data.records is not None
            write.checked = yield from write.partition.check(write.data.records, write.header, pace)


async def _append_later(produce: _Produce, lsn: int, checked: Awaitable[None]) -> Reply:
    await checked
    produce.refuse_deleted()
    return _append(produce, lsn)


def _append(produce: _Produce, lsn: int) -> Reply:
    """Into the log, if each guard still holds: much may have happened since it was asked."""
    request, writes = produce.request, produce.writes
    for write in writes:
        if write.outcome is None:
            assert write.partition is not None and write.data.records is not None
            write.outcome = write.partition.append(
                write.data.records, Origin.CLIENT, guard=write.guard, checked=write.checked
            )
    if produce.coordinator is not None:
        _tell_timed_out(request, writes, produce.coordinator)
    appended = [write.outcome.lsn for write in writes if isinstance(write.outcome, Appended)]
    if request.acks == 0:
        # The client hears of an error by the connection's end, since it reads no answer.
        return NO_ANSWER if len(appended) == len(writes) else CLOSE
    return Reply(_response(produce.topics), max(appended, default=0) if not lsn else max(lsn, *appended, 0))


def _tell_timed_out(request: ProduceRequest, writes: list[_Write], coordinator: TransactionCoordinator) -> None:
    """UNKNOWN_PRODUCER_ID for a pair that was timed out, to clients that go on after it (`older_clients`)."""
    for write in writes:
        stale = isinstance(write.outcome, Refused) and write.outcome.error is ErrorCode.INVALID_PRODUCER_EPOCH
        if not stale or write.header is None or request.transactional_id is None:
            continue
        if coordinator.timed_out(request.transactional_id, write.header.producer_id, write.header.producer_epoch):
            write.refuse(ErrorCode.UNKNOWN_PRODUCER_ID, "the transaction was open for too long and has been aborted")


def _name(topic: TopicProduceData, context: RequestContext, node: Node) -> str:
    if context.version < _TOPIC_IDS_SINCE:
        return topic.name
    known = node.topics.by_id.get(topic.topic_id)
    return "" if known is None else known.name


def _find(write: _Write, context: RequestContext, node: Node) -> None:
    """The partition, and the header of what is to be appended (facts §6.3 b-d).

    The header is known even where the partition is not: its batch may be transactional.
    """
    if write.at.topic == "" and context.version >= _TOPIC_IDS_SINCE:
        write.refuse(ErrorCode.UNKNOWN_TOPIC_ID)
    elif not context.may(Operation.WRITE, Resource.TOPIC, write.at.topic):
        write.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    else:
        write.partition = node.storage.partition(*write.at)
        if write.partition is None:
            write.refuse(node.storage.refusal(*write.at))
    found = record_sets.read(write.data.records, context.version)
    if isinstance(found, BatchHeader):
        write.header = found
        return
    write.header = found.header
    write.flaw = found if write.outcome is None else found._replace(in_its_place=False)
    if write.outcome is None and not found.late:
        write.outcome = found.refused


def _refuse_repeated(writes: list[_Write]) -> None:
    """Each partition once: of two batches one would be verified for the other."""
    if len(writes) == 1:
        return
    places = Counter(write.at for write in writes)
    for write in writes:
        if places[write.at] > 1 and write.outcome is None:
            write.refuse(ErrorCode.INVALID_REQUEST, f"{write.at} stands in the request more than once")


def _transactional(writes: list[_Write]) -> Iterator[tuple[_Write, BatchHeader]]:
    for write in writes:
        if write.outcome is None and write.header is not None and write.header.is_transactional:
            yield write, write.header


def _failure(request: ProduceRequest, writes: list[_Write], context: RequestContext) -> Refused | None:
    """Why nothing of the request is appended, in the order of Apache Kafka (facts §6.3 a, e; `record_sets`)."""
    transactional = False
    for write in writes:
        if write.flaw is not None and write.flaw.in_any_place:
            return write.flaw.refused
        if write.header is not None and write.header.is_transactional:
            transactional = True
            break
    if transactional and not _may_write_transactions(request, context):
        message = "a transactional batch needs a transactional id, and the right to write with it"
        return Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)
    for write in writes:
        if write.flaw is not None and write.flaw.in_its_place:
            return write.flaw.refused
    if not transactional:
        return None
    pairs = {(of.producer_id, of.producer_epoch) for _, of in _transactional(writes) if of.has_producer_id}
    if len(pairs) < 2:
        return None
    message = "the transactional batches of a request are of one producer"
    return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)


def _may_write_transactions(request: ProduceRequest, context: RequestContext) -> bool:
    name = request.transactional_id
    return name is not None and context.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, name)


def _verify(
    request: ProduceRequest, writes: list[_Write], context: RequestContext, node: Node
) -> tuple[Waiting, Verified | Awaitable[Verified] | None]:
    """Have the transaction coordinator vouch for each transactional write that needs it (KIP-890)."""
    waiting: Waiting = {}
    implicit = context.version >= _IMPLICIT_ADD_SINCE
    for write, header in _transactional(writes):
        assert write.partition is not None
        if header.producer_id < 0 or not (implicit or write.partition.settings.verification_enabled):
            continue  # left to the log
        found = write.partition.start_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, implicit
        )
        if isinstance(found, Refused):
            write.outcome = found
        elif found is not None:
            write.guard = found
            waiting[write.at] = write
    if not waiting:
        return waiting, None
    first = next(iter(waiting.values())).header
    assert first is not None
    assert request.transactional_id is not None
    mode, name = Mode.of_produce(context.version), request.transactional_id
    return waiting, verify(node, mode, name, first.producer_id, first.producer_epoch, list(waiting))


def _check_topic(write: _Write, request: ProduceRequest) -> None:
    """These come after the implicit add, as in Kafka (facts §14, §6.3 f)."""
    if write.outcome is None:
        if write.at.topic.startswith("__") and write.at.topic in ("__consumer_offsets", "__transaction_state"):
            write.refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{write.at.topic} is written by the broker only")
        elif request.acks not in (-1, 0, 1):
            write.refuse(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: it must be -1, 0 or 1")


def _response(topics: Topics) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=[_one(write) for write in writes]
            )
            for topic, writes in topics
        ]
    )


def _one(write: _Write) -> PartitionProduceResponse:
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
