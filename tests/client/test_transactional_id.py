"""Requests about a transactional id: what an answer with an error for each partition comes to."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.cluster import Cluster
from fencepost.client.errors import (
    BrokerError,
    ClientError,
    ClosedError,
    CommitInDoubtError,
    ConnectionLostError,
    ProducerFencedError,
    TimedOutError,
    TransactionAbortableError,
    TransactionTimedOutError,
)
from fencepost.client.outcomes import OUTCOMES, Outcome, outcome_of
from fencepost.client.transactional_id import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    StaleProducerEpochError,
    TransactionalId,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from fencepost.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from fencepost.protocol.types import NO_PRODUCER, ProducerIdAndEpoch, TopicPartition

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
    """A cluster that gives these answers, or raises them, one after the other."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.left = list(answers)
        self.asked: list[Any] = []
        self.least: list[int] = []

    def deadline(self, what: str) -> Patience:  # noqa: ARG002
        return Patience()

    async def coordinator(self, *_: object) -> int:
        return 1

    def forget_coordinator(self, *_: object) -> None:
        pass

    async def call(self, _: int, request: Any, *, least: int, **__: object) -> Any:
        self.asked.append(request)
        self.least.append(least)
        answer = self.left.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


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


@given(
    st.lists(st.sampled_from(["lost", "timed out", "cancelled", "in time"]), max_size=4),
    st.sampled_from(["refused", "failed", "closed"]),
    st.booleans(),
    st.booleans(),
)
def test_an_end_is_in_doubt_if_any_try_of_it_may_have_been_carried_out(
    before: list[str], then: str, commit: bool, tv2: bool
) -> None:
    """However many calls ago that was; with transaction.version 2 a repetition is told what became of the first one."""
    tries = {
        "lost": ConnectionLostError("x"),
        "timed out": TimedOutError("x"),
        "cancelled": asyncio.CancelledError(),
        "in time": EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS),
    }
    ends = {
        "refused": EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE),
        "failed": EndTxnResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR),
        "closed": ClosedError("x"),
    }
    answers = [*(tries[each] for each in before), ends[then]]
    transactional_id = TransactionalId(cast(Cluster, Answering(answers)), "id")

    async def main() -> type[BaseException]:
        while True:
            try:
                await transactional_id.end(WHO, commit, tv2)
            except (TimedOutError, asyncio.CancelledError):
                continue  # the caller asks again
            except ClientError as error:
                return type(error)

    found = asyncio.run(main())
    was_lost = any(each != "in time" for each in before)
    is_in_doubt = commit and (then == "failed" or (was_lost and (then == "closed" or not tv2)))
    assert (found is CommitInDoubtError) == is_in_doubt


@pytest.mark.parametrize("commit", [True, False])
def test_a_commit_after_the_broker_aborted_is_told_why_and_what_to_do(commit: bool) -> None:
    """Apache Kafka answers INVALID_TXN_STATE to a commit after the time-out, which says neither."""
    answers = [EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)]
    transactional_id = TransactionalId(cast(Cluster, Answering(answers)), "id")
    said = r"no transaction of 'id' open any more .*transaction_timeout_ms\. Abort, then go on"
    with pytest.raises(TransactionAbortableError) as raised:
        asyncio.run(transactional_id.end(WHO, commit, tv2=True))
    assert bool(re.search(said, str(raised.value))) == commit, "what is not aborted may have been committed"


def test_a_commit_whose_answer_was_lost_is_not_called_aborted() -> None:
    """Its first try may have been carried out."""
    answers = [ConnectionLostError("lost"), EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)]
    transactional_id = TransactionalId(cast(Cluster, Answering(answers)), "id")
    with pytest.raises(CommitInDoubtError, match="committed or not") as raised:
        asyncio.run(transactional_id.end(WHO, True, tv2=False))
    assert "has aborted it" not in str(raised.value)


@pytest.mark.parametrize("lost", ["the end", "what came before it"])
def test_what_was_lost_is_remembered_as_long_as_it_may_come_late(lost: str) -> None:
    """By the next transaction an end that was answered counts no more; a request until there is a new epoch."""
    nothing = ErrorCode.INVALID_TXN_STATE
    before, end = ([], [ConnectionLostError("x")]) if lost == "the end" else ([ConnectionLostError("x")], [])
    answers = [*before, AddOffsetsToTxnResponse(error_code=0), *end, EndTxnResponse(error_code=0)]
    answers.append(EndTxnResponse(error_code=nothing))
    answers.append(InitProducerIdResponse(error_code=0, producer_id=1, producer_epoch=2))
    found = TransactionalId(cast(Cluster, Answering(answers)), "id")

    async def main() -> None:
        await found.add_offsets(WHO, "g")
        await found.end(WHO, True, tv2=False)
        assert found.unsettled
        with pytest.raises(TransactionAbortableError):
            await found.end(WHO, True, tv2=False)
        await found.init(1000, WHO)
        assert not found.unsettled

    asyncio.run(main())


@given(st.integers(0, 2**40), st.integers(0, 2**15 - 1))
def test_the_pair_to_go_on_with_is_the_one_that_the_end_was_answered(producer_id: int, epoch: int) -> None:
    cluster = Answering(
        [EndTxnResponse(error_code=0, producer_id=producer_id, producer_epoch=epoch), EndTxnResponse(error_code=0)]
    )
    transactional_id = TransactionalId(cast(Cluster, cluster), "id")

    async def main() -> list[ProducerIdAndEpoch]:
        return [await transactional_id.end(WHO, True, tv2) for tv2 in (True, False)]

    assert asyncio.run(main()) == [ProducerIdAndEpoch.of(producer_id, epoch), WHO]


def test_requests_carry_all_that_they_are_about() -> None:
    """Nothing of what a call was given, or is known, is left at the default of its field."""
    answers: list[Any] = [
        InitProducerIdResponse(error_code=0, producer_id=1, producer_epoch=2),
        added([ErrorCode.NONE]),
        AddOffsetsToTxnResponse(error_code=0),
        committed([ErrorCode.NONE]),
        EndTxnResponse(error_code=0),
    ]
    cluster = Answering(answers)
    transactional_id = TransactionalId(cast(Cluster, cluster), "id")
    first, second = TopicPartition("t", 5), TopicPartition("u", 6)
    group = ConsumerGroupMetadata("g", 8, "member", "instance")
    positions = {first: OffsetAndMetadata(10, "why", 11), second: OffsetAndMetadata(12)}

    async def main() -> None:
        await transactional_id.init(9000, WHO)
        await transactional_id.add_partitions(WHO, [first, second])
        await transactional_id.add_offsets(WHO, "g")
        await transactional_id.commit_offsets(WHO, group, positions, tv2=True)
        await transactional_id.end(WHO, True, tv2=True)

    asyncio.run(main())
    pair: dict[str, Any] = {"producer_id": WHO.producer_id, "producer_epoch": WHO.producer_epoch}
    parts = [
        TxnOffsetCommitRequestPartition(
            partition_index=5, committed_offset=10, committed_leader_epoch=11, committed_metadata="why"
        ),
        TxnOffsetCommitRequestPartition(
            partition_index=6, committed_offset=12, committed_leader_epoch=-1, committed_metadata=""
        ),
    ]
    assert cluster.asked == [
        InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=9000, **pair),
        AddPartitionsToTxnRequest(
            transactional_id="id",
            **pair,
            topics=[
                AddPartitionsToTxnTopic(name="t", partitions=[5]),
                AddPartitionsToTxnTopic(name="u", partitions=[6]),
            ],
        ),
        AddOffsetsToTxnRequest(transactional_id="id", **pair, group_id="g"),
        TxnOffsetCommitRequest(
            transactional_id="id",
            group_id="g",
            **pair,
            generation_id=8,
            member_id="member",
            group_instance_id="instance",
            topics=[TxnOffsetCommitRequestTopic(name=n, partitions=[p]) for n, p in zip("tu", parts, strict=True)],
        ),
        EndTxnRequest(transactional_id="id", **pair, committed=True),
    ]


def raised_for(request: str, error: ErrorCode, *, timed_out: bool = False) -> type[BaseException]:
    """What a call raises whose request is answered so, and then, if it is asked again, that something else is wrong."""
    else_wrong = ErrorCode.UNKNOWN_SERVER_ERROR
    how = {} if request == "InitProducerId" else {"transaction_timed_out": timed_out}
    form: Any = {
        "InitProducerId": lambda code: InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1),
        "AddPartitionsToTxn": lambda code: added([code]),
        "AddOffsetsToTxn": lambda code: AddOffsetsToTxnResponse(error_code=code),
        "TxnOffsetCommit": lambda code: committed([code]),
        "EndTxn": lambda code: EndTxnResponse(error_code=code),
    }[request]
    answers = [form(error), form(else_wrong)]
    for name, value in how.items():
        setattr(answers[0], name, value)
    found = TransactionalId(cast(Cluster, Answering(answers)), "id")
    at, group = TopicPartition("t", 0), ConsumerGroupMetadata("g")
    calls: dict[str, Any] = {
        "InitProducerId": lambda: found.init(1000, WHO),
        "AddPartitionsToTxn": lambda: found.add_partitions(WHO, [at]),
        "AddOffsetsToTxn": lambda: found.add_offsets(WHO, "g"),
        "TxnOffsetCommit": lambda: found.commit_offsets(WHO, group, {at: OffsetAndMetadata(0)}, tv2=True),
        "EndTxn": lambda: found.end(WHO, False, tv2=True),
    }
    with pytest.raises(ClientError) as raised:
        asyncio.run(calls[request]())
    if isinstance(raised.value, BrokerError):
        assert raised.value.code in (error, else_wrong)
        assert (raised.value.code is else_wrong) == (outcome_of(request, error) in _GOES_ON or error is else_wrong)
        return BrokerError
    return type(raised.value)


REQUESTS = [name for name in OUTCOMES if name != "Produce"]
ERRORS = [error for error in ErrorCode if error]


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("error", ERRORS)
def test_what_a_refused_request_raises(request_name: str, error: ErrorCode) -> None:
    """Only to who asks for a new epoch with its pair an old pair means that somebody else has the id."""
    outcome = outcome_of(request_name, error)
    expected: type[BaseException] = BrokerError
    if request_name == "InitProducerId" and error in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
        expected = ProducerFencedError
    elif outcome is Outcome.STALE:
        expected = StaleProducerEpochError
    elif outcome is Outcome.ABORTABLE:
        expected = TransactionAbortableError
    assert raised_for(request_name, error) is expected
    if request_name != "InitProducerId" and outcome not in _GOES_ON:
        assert raised_for(request_name, error, timed_out=True) is TransactionTimedOutError


@pytest.mark.parametrize(("current", "least"), [(NO_PRODUCER, 0), (WHO, 3)])
def test_only_a_broker_that_reads_the_pair_is_given_it(current: ProducerIdAndEpoch, least: int) -> None:
    """Before version 3 a request has no room for it, and is one of whoever takes the id over (KIP-360)."""
    cluster = Answering([InitProducerIdResponse(error_code=0, producer_id=1, producer_epoch=2)])
    asyncio.run(TransactionalId(cast(Cluster, cluster), "id").init(1000, current))
    assert cluster.least == [least]
