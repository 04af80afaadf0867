"""Requests about a transactional id: what an answer with an error for each partition comes to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientError, TimedOutError
from fencepost.client.outcomes import Outcome, outcome_of
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata, TransactionalId
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AddPartitionsToTxnResponse, TxnOffsetCommitResponse
from fencepost.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopicResult,
)
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition

WHO = ProducerIdAndEpoch.of(7, 3)
CODES = (
    ErrorCode.NONE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_GOES_ON = (Outcome.RETRY, Outcome.FIND_COORDINATOR)


class Patience:
    async def pause(self, because: object) -> None:
        """Nobody waits here."""

    async def within(self, work: Awaitable[Any]) -> Any:
        return await work


class Answering:
    """A cluster that gives these answers, one after the other."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.left = list(answers)

    def deadline(self, what: str) -> Patience:  # noqa: ARG002
        return Patience()

    async def coordinator(self, *_: object) -> int:
        return 1

    def forget_coordinator(self, *_: object) -> None:
        pass

    async def call(self, *_: object, **__: object) -> Any:
        return self.left.pop(0)


def added(codes: Sequence[ErrorCode]) -> AddPartitionsToTxnResponse:
    parts = [AddPartitionsToTxnPartitionResult(partition_index=n, partition_error_code=e) for n, e in enumerate(codes)]
    return AddPartitionsToTxnResponse(
        results_by_topic=[AddPartitionsToTxnTopicResult(name="t", results_by_partition=parts)]
    )


def committed(codes: Sequence[ErrorCode]) -> TxnOffsetCommitResponse:
    parts = [TxnOffsetCommitResponsePartition(partition_index=n, error_code=e) for n, e in enumerate(codes)]
    return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="t", partitions=parts)])


def ask(request: str, answers: Sequence[Sequence[ErrorCode]]) -> tuple[int, ClientError | None]:
    """How many answers were asked for, and what was raised."""
    form = added if request == "AddPartitionsToTxn" else committed
    cluster = Answering([form(codes) for codes in answers])
    transactional_id = TransactionalId(cast(Cluster, cluster), "id")
    at = TopicPartition("t", 0)

    async def work() -> None:
        if request == "AddPartitionsToTxn":
            await transactional_id.add_partitions(WHO, [at])
        else:
            group, offsets = ConsumerGroupMetadata("group"), {at: OffsetAndMetadata(1)}
            await transactional_id.commit_offsets(WHO, group, offsets, tv2=False)

    try:
        asyncio.run(work())
    except ClientError as error:
        return len(answers) - len(cluster.left), error
    return len(answers) - len(cluster.left), None


@given(
    st.sampled_from(["AddPartitionsToTxn", "TxnOffsetCommit"]),
    st.lists(st.sampled_from(CODES), min_size=1, max_size=4),
)
def test_of_several_errors_the_one_that_ends_it_decides_wherever_it_stands(
    request: str, codes: list[ErrorCode]
) -> None:
    """Else what can be repeated is repeated; it is done when every partition is."""
    outcomes = [outcome_of(request, code) for code in codes]
    asked, raised = ask(request, [codes, [ErrorCode.NONE] * len(codes)])
    if any(outcome not in (Outcome.DONE, *_GOES_ON) for outcome in outcomes):
        assert asked == 1
        assert raised is not None
    else:
        assert raised is None
        assert asked == 1 + any(outcome in _GOES_ON for outcome in outcomes)


@given(st.permutations([ErrorCode.OPERATION_NOT_ATTEMPTED] * 2 + [ErrorCode.CONCURRENT_TRANSACTIONS]))
def test_what_was_not_attempted_only_waits_for_the_others(codes: list[ErrorCode]) -> None:
    assert ask("AddPartitionsToTxn", [codes, [ErrorCode.NONE] * 3]) == (2, None)


@pytest.mark.parametrize("where", ["coordinator", "call"])
@pytest.mark.parametrize("how", [TimedOutError, asyncio.CancelledError])
def test_only_what_may_have_been_sent_is_in_doubt(where: str, how: type[BaseException]) -> None:
    """A coordinator that is not found in time was asked for nothing: a commit that is refused later was not made."""

    async def ends(*_: object, **__: object) -> Any:
        raise how

    async def main() -> bool:
        cluster = Answering([])
        setattr(cluster, where, ends)
        transactional_id = TransactionalId(cast(Cluster, cluster), "id")
        with pytest.raises(how):
            await transactional_id.end(ProducerIdAndEpoch.of(1, 0), True, False)
        return transactional_id.unsettled

    assert asyncio.run(main()) == (where == "call")
