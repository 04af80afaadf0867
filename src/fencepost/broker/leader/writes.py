"""What one Produce writes: each partition with its batch, what is wrong with it, and what became of it (facts §6.3).

The order of the checks is Apache Kafka's: some faults refuse the whole request, some one partition, and some are looked
at only after the transaction coordinator was asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Iterator
from typing import Final

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.leader import record_sets
from fencepost.broker.leader.record_sets import Flaw
from fencepost.broker.leader.verification import Mode, Verified, verify
from fencepost.broker.metadata.topic_rules import INTERNAL
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.transaction import TransactionCoordinator
from fencepost.log.batch_check import Checked
from fencepost.log.partition import Appended, Partition, Refused
from fencepost.log.producer_state import VerificationGuard
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.steps import Pace, Steps
from fencepost.protocol.types import TopicPartition

IMPLICIT_ADD_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13


class Write:
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


Topics = list[tuple[TopicProduceData, list[Write]]]
Waiting = dict[TopicPartition, Write]


def find(write: Write, context: RequestContext, node: Node) -> None:
    """The partition, and the header of what is to be appended (facts §6.3 b-d).

    The header is known even where the partition is not: its batch may be transactional.
    """
    if write.at.topic == "" and context.version >= TOPIC_IDS_SINCE:
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


def refuse_repeated(writes: list[Write], pace: Pace) -> Steps[None]:
    """Refuse each partition that is named twice: of two batches one would be verified for the other."""
    if len(writes) == 1:
        return
    places: Counter[TopicPartition] = Counter()
    for write in writes:
        yield from pace.spend(1)
        places[write.at] += 1
    for write in writes:
        yield from pace.spend(1)
        if places[write.at] > 1 and write.outcome is None:
            write.refuse(ErrorCode.INVALID_REQUEST, f"{write.at} stands in the request more than once")


def _transactional(writes: list[Write]) -> Iterator[tuple[Write, BatchHeader]]:
    for write in writes:
        if write.outcome is None and write.header is not None and write.header.is_transactional:
            yield write, write.header


def failure(request: ProduceRequest, writes: list[Write], context: RequestContext) -> Refused | None:
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


def verify_writes(
    request: ProduceRequest, writes: list[Write], context: RequestContext, node: Node
) -> tuple[Waiting, Verified | Awaitable[Verified] | None]:
    """Have the transaction coordinator vouch for each transactional write that needs it (KIP-890)."""
    waiting: Waiting = {}
    implicit = context.version >= IMPLICIT_ADD_SINCE
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


def check_topic(write: Write, request: ProduceRequest) -> None:
    """Refuse a topic that cannot be written to; after the implicit add, as in Kafka (facts §14, §6.3 f)."""
    if write.outcome is None:
        if write.at.topic in INTERNAL:
            write.refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{write.at.topic} is written by the broker only")
        elif request.acks not in (-1, 0, 1):
            write.refuse(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: it must be -1, 0 or 1")


def tell_timed_out(request: ProduceRequest, writes: list[Write], coordinator: TransactionCoordinator) -> None:
    """UNKNOWN_PRODUCER_ID for a pair that was timed out, to clients that go on after it (`older_clients`)."""
    for write in writes:
        stale = isinstance(write.outcome, Refused) and write.outcome.error is ErrorCode.INVALID_PRODUCER_EPOCH
        if not stale or write.header is None or request.transactional_id is None:
            continue
        if coordinator.timed_out(request.transactional_id, write.header.producer_id, write.header.producer_epoch):
            write.refuse(ErrorCode.UNKNOWN_PRODUCER_ID, "the transaction was open for too long and has been aborted")
