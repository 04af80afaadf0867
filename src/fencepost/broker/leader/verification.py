"""KIP-890: is the transaction of a write open? Asked of the transaction coordinator before a partition takes it.

Older clients registered the partition themselves, so it is looked up; newer ones rely on the leader to add it. What the
coordinator says is translated into codes that a client of that version understands (facts §6.7, §7.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from fencepost.broker.leader.registrar import Answer, Question
from fencepost.coordinator.group.journal import APPEND_ERRORS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import NO_LSN, Epoch, Lsn, ProducerId, TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.node import Node


class Mode(Enum):
    """How a request has its transaction verified, by its version: looked up or added to, and the errors it knows."""

    DEFAULT_ERROR = 1
    GENERIC_ERROR = 2
    ADD_PARTITION = 3

    @classmethod
    def of_produce(cls, version: int) -> Mode:
        return cls.ADD_PARTITION if version >= 12 else cls.GENERIC_ERROR if version == 11 else cls.DEFAULT_ERROR

    @classmethod
    def of_offset_commit(cls, version: int) -> Mode:
        return cls.ADD_PARTITION if version >= 5 else cls.GENERIC_ERROR if version == 4 else cls.DEFAULT_ERROR


_COORDINATOR_AWAY: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@dataclass(frozen=True, slots=True)
class Verified:
    """The coordinator's error for each partition; `lsn`: what must be durable before the answer leaves."""

    mode: Mode
    errors: Mapping[TopicPartition, ErrorCode]
    lsn: Lsn = NO_LSN
    timed_out: bool = False

    def produce_error(self, at: TopicPartition) -> tuple[ErrorCode, str | None]:
        """The error of a Produce, and a message or None; a coordinator's own errors become NOT_ENOUGH_REPLICAS."""
        error = self.errors[at]
        if error in _COORDINATOR_AWAY or (
            error is ErrorCode.CONCURRENT_TRANSACTIONS and self.mode is not Mode.ADD_PARTITION
        ):
            return ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction could not be verified yet: {error.name}"
        if error is ErrorCode.INVALID_TXN_STATE:
            return error, f"{at} is not part of an ongoing transaction of this producer"
        return error, None

    def offsets_error(self, at: TopicPartition) -> ErrorCode:
        """The error of a TxnOffsetCommit.  Only v5 knows 120, by which a timed-out producer aborts and goes on."""
        if self.timed_out and self.mode is Mode.ADD_PARTITION:
            return ErrorCode.TRANSACTION_ABORTABLE
        return APPEND_ERRORS.get(self.errors[at], self.errors[at])


def verify(
    node: Node,
    mode: Mode,
    transactional_id: str,
    producer_id: ProducerId,
    producer_epoch: Epoch,
    partitions: Sequence[TopicPartition],
) -> Verified | Awaitable[Verified]:
    """Look the partitions up in the transaction, or add them to it; an awaitable if the coordinator is elsewhere."""
    add = mode is Mode.ADD_PARTITION
    if not add and not node.settings["transaction.partition.verification.enable"]:
        return Verified(mode, dict.fromkeys(partitions, ErrorCode.NONE))
    begun = asyncio.get_running_loop().time()
    answer = node.registrar.ask(Question(transactional_id, producer_id, producer_epoch, partitions, add))
    if isinstance(answer, Answer):
        return _verified(node, mode, answer, begun)
    return _wait(node, mode, answer, begun)


async def _wait(node: Node, mode: Mode, answer: Awaitable[Answer], begun: float) -> Verified:
    return _verified(node, mode, await answer, begun)


def _verified(node: Node, mode: Mode, answer: Answer, begun: float) -> Verified:
    errors = answer.errors
    failures = sum(error is not ErrorCode.NONE for error in errors.values())
    node.counters.verified(failures, (asyncio.get_running_loop().time() - begun) * 1000)
    translated = {at: of_leader(error, mode) for at, error in errors.items()}
    return Verified(mode, translated, answer.lsn, answer.timed_out)


def of_leader(error: ErrorCode, mode: Mode) -> ErrorCode:
    """A coordinator's error, as a leader tells it: without PRODUCER_FENCED, and to older clients without 120."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and mode is Mode.DEFAULT_ERROR:
        return ErrorCode.INVALID_TXN_STATE
    return error
