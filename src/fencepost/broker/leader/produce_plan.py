"""What one Produce does: its writes found, verified, checked and appended, in the order of Apache Kafka (facts §6.3).

Some faults refuse the whole request, some one partition, and some are looked at only after the transaction coordinator
was asked.  Between two of these steps others may be served, so whatever was found is looked at again before it is
written to.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.leader import record_sets
from fencepost.broker.leader.record_sets import Flaw
from fencepost.broker.leader.verification import Mode, Verified, verify
from fencepost.broker.metadata.topic_rules import INTERNAL
from fencepost.broker.network.older_clients import Call, asks_for_new_epoch
from fencepost.broker.network.pacing import HandlerSteps, awaited
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.transaction import TransactionCoordinator
from fencepost.log.batch_check import Checked
from fencepost.log.partition import Appended, Partition, Refused
from fencepost.log.producer_state import Origin, VerificationGuard
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.steps import ITEM, Pace, Steps
from fencepost.protocol.types import NO_LSN, Lsn, Milliseconds, TopicPartition

IMPLICIT_ADD_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13


class Write:
    """The write of one partition of a Produce: its batch, what was found out about it, and its outcome, if any."""

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
    """Find the partition of a write, and the header of what is to be appended (facts §6.3 b-d).

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
    places: Counter[TopicPartition] = Counter()
    for write in writes:
        yield from pace.spend(1)
        places[write.at] += 1
    for write in writes:
        yield from pace.spend(1)
        if places[write.at] > 1 and write.outcome is None:
            write.refuse(ErrorCode.INVALID_REQUEST, f"{write.at} stands in the request more than once")


def failure(
    request: ProduceRequest, writes: list[Write], transactional: list[Write], context: RequestContext
) -> Refused | None:
    """Why nothing of the request is appended, in the order of Apache Kafka (facts §6.3 a, e; `record_sets`).

    `transactional`: those of the writes whose batch is.
    """
    for write in writes:
        if write.flaw is not None and write.flaw.in_any_place:
            return write.flaw.refused
        if transactional and write is transactional[0]:
            break
    if transactional and not _may_write_transactions(request, context):
        message = "a transactional batch needs a transactional id, and the right to write with it"
        return Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)
    for write in writes:
        if write.flaw is not None and write.flaw.in_its_place:
            return write.flaw.refused
    if len(transactional) < 2:
        return None
    found = [write.header for write in transactional if write.outcome is None and write.header is not None]
    pairs = {(header.producer_id, header.producer_epoch) for header in found if header.has_producer_id}
    if len(pairs) < 2:
        return None
    message = "the transactional batches of a request are of one producer"
    return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)


def _may_write_transactions(request: ProduceRequest, context: RequestContext) -> bool:
    name = request.transactional_id
    return name is not None and context.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, name)


def to_be_verified(transactional: list[Write], implicit: bool, now: Milliseconds) -> Waiting:
    """The transactional writes for which the transaction coordinator must vouch (KIP-890), with their guards.

    What a newer producer has fenced is refused.  `implicit`: the leader adds partitions to the transaction.
    """
    waiting: Waiting = {}
    for write in transactional:
        if write.outcome is not None:
            continue
        header = write.header
        assert write.partition is not None and header is not None
        if header.producer_id < 0 or not (implicit or write.partition.settings.verification_enabled):
            continue  # left to the log
        found = write.partition.start_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, implicit, now
        )
        if isinstance(found, Refused):
            write.outcome = found
        elif found is not None:
            write.guard = found
            waiting[write.at] = write
    return waiting


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


class ProducePlan:
    """One Produce on its way: the writes of its partitions, and the outcome of each."""

    __slots__ = (
        "_context",
        "_is_plain",
        "_lsn",
        "_node",
        "_now",
        "_request",
        "_transactional",
        "_waited",
        "_writes",
        "topics",
    )

    def __init__(self, request: ProduceRequest, context: RequestContext, node: Node) -> None:
        self._request = request
        self._context = context
        self._node = node
        self._now = node.clock.now()
        """The time of all that is done at once; another one where others were served meanwhile."""
        self._writes: list[Write] = []
        self._transactional: list[Write] = []
        """Those whose batch is part of a transaction."""
        self._is_plain = True
        """Whether nothing can refuse all of it, nor need be asked of a transaction coordinator."""
        self._waited = False
        """Whether others were served meanwhile: a partition that was found may have been deleted."""
        self._lsn = NO_LSN
        self.topics: Topics = []

    def own(self) -> None:
        """Copy the batches before anything is awaited: then the connection reuses the buffer (KAFKA-15653)."""
        self._waited = True
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = bytes(data.records)

    def look_up(self, pace: Pace) -> Steps[None]:
        """Find the partitions, and the headers of what is to be appended."""
        request, context, node = self._request, self._context, self._node
        for topic in request.topic_data:
            if pace.is_used_up(ITEM):
                yield from pace.rest()
            name, writes = self._name(topic), []
            for data in topic.partition_data:
                if pace.is_used_up(2 * ITEM):
                    yield from pace.rest()
                write = Write(TopicPartition(name, data.index), data)
                find(write, context, node)
                if write.header is not None and write.header.is_transactional:
                    self._transactional.append(write)
                if write.flaw is not None:
                    self._is_plain = False
                writes.append(write)
            self.topics.append((topic, writes))
            self._writes += writes
        self._is_plain &= not self._transactional
        if len(self._writes) > 1:
            yield from refuse_repeated(self._writes, pace)

    def _name(self, topic: TopicProduceData) -> str:
        if self._context.version < TOPIC_IDS_SINCE:
            return topic.name
        known = self._node.topics.by_id.get(topic.topic_id)
        return "" if known is None else known.name

    def is_refused(self) -> bool:
        """Whether something refuses the whole request; then it is the outcome of every write."""
        if self._is_plain:
            return False
        failed = failure(self._request, self._writes, self._transactional, self._context)
        if failed is not None:
            for write in self._writes:
                write.outcome = failed
        return failed is not None

    def verify(self) -> HandlerSteps[None]:
        """Have the transaction coordinator vouch for each transactional write that needs it (KIP-890)."""
        if self._is_plain:
            return
        for write in self._writes if self._waited else ():
            self._look_again(write)
        version, transactional_id = self._context.version, self._request.transactional_id
        waiting = to_be_verified(self._transactional, version >= IMPLICIT_ADD_SINCE, self._now)
        if not waiting:
            return
        header = next(iter(waiting.values())).header
        assert header is not None and transactional_id is not None
        pair = header.producer_id, header.producer_epoch
        verified = verify(self._node, Mode.of_produce(version), transactional_id, *pair, list(waiting))
        answer = verified if isinstance(verified, Verified) else (yield from awaited(verified))
        self._lsn = answer.lsn
        for at, error in answer.errors.items():
            if error and waiting[at].outcome is None:
                waiting[at].refuse(*answer.produce_error(at))

    def check(self, pace: Pace) -> Steps[None]:
        """Check each topic, and each batch as far as it tells by itself."""
        for write in self._writes:
            if pace.is_used_up(ITEM):
                yield from pace.rest()
            check_topic(write, self._request)
            if write.outcome is None and write.flaw is not None:
                write.outcome = write.flaw.refused
            if write.outcome is None:
                assert write.partition is not None and write.header is not None and write.data.records is not None
                if self._waited:
                    self._now = self._node.clock.now()
                write.checked = yield from write.partition.check(write.data.records, write.header, self._now, pace)

    def append(self, pace: Pace) -> Steps[bool]:
        """Append to the logs, where each verification guard still holds: much may have happened since it was asked.

        Whether everything was written.
        """
        complete = True
        for write in self._writes:
            if pace.is_used_up(ITEM):
                yield from pace.rest()
            if self._waited:
                self._look_again(write)
            if write.outcome is None:
                assert write.partition is not None and write.data.records is not None
                write.outcome = write.partition.append(
                    write.data.records, Origin.CLIENT, self._now, guard=write.guard, checked=write.checked
                )
            if isinstance(write.outcome, Appended):
                self._lsn = max(self._lsn, write.outcome.lsn)
            else:
                complete = False
        return complete

    def tell_timed_out(self) -> None:
        """Answer a time-out with the error after which the client goes on, where there is one (`older_clients`)."""
        version = self._context.version
        if version < IMPLICIT_ADD_SINCE and asks_for_new_epoch(self._context, Call.PRODUCE):
            tell_timed_out(self._request, self._writes, self._node.transactions)

    def lsn(self, complete: bool) -> Lsn:
        """The lsn that the answer depends on.  `complete`: whether everything was written.

        What is known of a producer when it is refused may not be durable yet either.
        """
        return self._lsn if complete else max(self._lsn, self._node.storage.lsn)

    def _look_again(self, write: Write) -> None:
        """Refuse a write whose partition was deleted while others were served, and take the time anew."""
        self._now = self._node.clock.now()
        if write.outcome is None and self._node.storage.partition(*write.at) is not write.partition:
            write.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{write.at} was deleted meanwhile")
