"""What one Produce does: its writes found, verified, checked and appended, in the order of Apache Kafka (facts §6.3).

Between two of these steps others may be served, so whatever was found is looked at again before it is written to.
"""

from __future__ import annotations

from fencepost.broker.leader.verification import Verified
from fencepost.broker.leader.writes import (
    IMPLICIT_ADD_SINCE,
    TOPIC_IDS_SINCE,
    Topics,
    Write,
    check_topic,
    failure,
    find,
    refuse_repeated,
    tell_timed_out,
    verify_writes,
)
from fencepost.broker.network.older_clients import Call, asks_for_new_epoch
from fencepost.broker.network.pacing import HandlerSteps, awaited
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.log.partition import Appended
from fencepost.log.producer_state import Origin
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.messages.produce import TopicProduceData
from fencepost.protocol.steps import ITEM, Pace, Steps
from fencepost.protocol.types import TopicPartition


class ProducePlan:
    """The writes of one request, and what became of them."""

    __slots__ = ("_context", "_lsn", "_node", "_request", "_waited", "_writes", "topics")

    def __init__(self, request: ProduceRequest, context: RequestContext, node: Node) -> None:
        self._request = request
        self._context = context
        self._node = node
        self._writes: list[Write] = []
        self._waited = False
        """Whether others were served meanwhile: a partition that was found may have been deleted."""
        self._lsn = 0
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
                writes.append(write)
            self.topics.append((topic, writes))
            self._writes += writes
        yield from refuse_repeated(self._writes, pace)

    def _name(self, topic: TopicProduceData) -> str:
        if self._context.version < TOPIC_IDS_SINCE:
            return topic.name
        known = self._node.topics.by_id.get(topic.topic_id)
        return "" if known is None else known.name

    def is_refused(self) -> bool:
        """Whether something refuses the whole request."""
        failed = failure(self._request, self._writes, self._context)
        if failed is not None:
            for write in self._writes:
                write.outcome = failed
        return failed is not None

    def verify(self) -> HandlerSteps[None]:
        """Have the transaction coordinator vouch for what is transactional."""
        for write in self._writes if self._waited else ():
            self._refuse_deleted(write)
        waiting, verified = verify_writes(self._request, self._writes, self._context, self._node)
        if verified is None:
            return
        answer = verified if isinstance(verified, Verified) else (yield from awaited(verified))
        self._lsn = answer.lsn
        for at, error in answer.errors.items():
            if error and waiting[at].outcome is None:
                waiting[at].refuse(*answer.produce_error(at))

    def check(self, pace: Pace) -> Steps[None]:
        """Check each topic, and each batch as far as it tells by itself."""
        for write in self._writes:
            if pace.is_used_up(1):
                yield from pace.rest()
            check_topic(write, self._request)
            if write.outcome is None and write.flaw is not None:
                write.outcome = write.flaw.refused
            if write.outcome is None:
                assert write.partition is not None and write.header is not None and write.data.records is not None
                write.checked = yield from write.partition.check(write.data.records, write.header, pace)

    def append(self, pace: Pace) -> Steps[bool]:
        """Append to the logs, where each verification guard still holds: much may have happened since it was asked.

        Whether everything was written.
        """
        complete = True
        for write in self._writes:
            if pace.is_used_up(ITEM):
                yield from pace.rest()
            if self._waited:
                self._refuse_deleted(write)
            if write.outcome is None:
                assert write.partition is not None and write.data.records is not None
                write.outcome = write.partition.append(
                    write.data.records, Origin.CLIENT, guard=write.guard, checked=write.checked
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

    def lsn(self, complete: bool) -> int:
        """What the answer depends on.

        What is known of a producer when it is refused may not be durable yet either.
        """
        return self._lsn if complete else max(self._lsn, self._node.storage.lsn)

    def _refuse_deleted(self, write: Write) -> None:
        if write.outcome is None and self._node.storage.partition(*write.at) is not write.partition:
            write.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{write.at} was deleted meanwhile")
