"""What a coordinator says of a transaction, told to clients of each version, and counted (facts §6.7, §7.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from types import SimpleNamespace
from typing import Any, Final

import pytest

from fencepost.broker.counters import Counters
from fencepost.broker.leader.registrar import Answer, Question
from fencepost.broker.leader.verification import Mode, Verified, of_leader, verify
from fencepost.protocol.errors import ErrorCode as E
from fencepost.protocol.messages import ProduceRequest, TxnOffsetCommitRequest
from fencepost.protocol.types import Epoch, ProducerId, TopicPartition
from fencepost.simulation.loop import VirtualLoop, run

AT: Final = TopicPartition("t", 0)
OLDEST, OLD, NEW = Mode.DEFAULT_ERROR, Mode.GENERIC_ERROR, Mode.ADD_PARTITION

#: what the coordinator says -> what Produce answers to the oldest clients, to those of v11, and since v12
OF_PRODUCE: Final[Mapping[E, tuple[E, E, E]]] = {
    E.NONE: (E.NONE,) * 3,
    E.TRANSACTION_ABORTABLE: (E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
    E.PRODUCER_FENCED: (E.INVALID_PRODUCER_EPOCH,) * 3,
    E.CONCURRENT_TRANSACTIONS: (E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS, E.CONCURRENT_TRANSACTIONS),
    E.COORDINATOR_LOAD_IN_PROGRESS: (E.NOT_ENOUGH_REPLICAS,) * 3,
    E.COORDINATOR_NOT_AVAILABLE: (E.NOT_ENOUGH_REPLICAS,) * 3,
    E.NOT_COORDINATOR: (E.NOT_ENOUGH_REPLICAS,) * 3,
    E.NETWORK_EXCEPTION: (E.NOT_ENOUGH_REPLICAS,) * 3,
    E.INVALID_PRODUCER_ID_MAPPING: (E.INVALID_PRODUCER_ID_MAPPING,) * 3,
}
#: the same of TxnOffsetCommit: to the oldest clients, to those of v4, and since v5
OF_OFFSETS: Final[Mapping[E, tuple[E, E, E]]] = {
    E.NONE: (E.NONE,) * 3,
    E.TRANSACTION_ABORTABLE: (E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
    E.PRODUCER_FENCED: (E.INVALID_PRODUCER_EPOCH,) * 3,
    E.CONCURRENT_TRANSACTIONS: (E.CONCURRENT_TRANSACTIONS,) * 3,
    E.COORDINATOR_LOAD_IN_PROGRESS: (E.COORDINATOR_LOAD_IN_PROGRESS,) * 3,
    E.NETWORK_EXCEPTION: (E.COORDINATOR_LOAD_IN_PROGRESS,) * 3,
    E.INVALID_PRODUCER_ID_MAPPING: (E.INVALID_PRODUCER_ID_MAPPING,) * 3,
}


def versions(request: Any) -> range:
    return range(int(request.__schema__.versions[1]) + 1)


def test_the_version_of_a_request_says_what_its_client_can_be_told() -> None:
    assert [*map(Mode.of_produce, versions(ProduceRequest))] == [*[OLDEST] * 11, OLD, *[NEW] * 2]
    assert [*map(Mode.of_offset_commit, versions(TxnOffsetCommitRequest))] == [*[OLDEST] * 4, OLD, *[NEW] * 2]


@pytest.mark.parametrize("said", OF_PRODUCE, ids=lambda said: said.name)
def test_a_producer_is_told_what_its_version_knows(said: E) -> None:
    told = [Verified(mode, {AT: of_leader(said, mode)}).produce_error(AT)[0] for mode in (OLDEST, OLD, NEW)]
    assert tuple(told) == OF_PRODUCE[said]


@pytest.mark.parametrize("timed_out", [False, True])
@pytest.mark.parametrize("said", OF_OFFSETS, ids=lambda said: said.name)
def test_who_commits_offsets_is_told_what_its_version_knows(said: E, timed_out: bool) -> None:
    """Only those since v5 abort and go on after TRANSACTION_ABORTABLE where the transaction's time was up."""
    told = []
    for mode in (OLDEST, OLD, NEW):
        verified = Verified(mode, {AT: of_leader(said, mode)}, timed_out=timed_out)
        told.append(verified.offsets_error(AT))
    oldest, old, new = OF_OFFSETS[said]
    assert told == [oldest, old, E.TRANSACTION_ABORTABLE if timed_out else new]


class Registrar:
    """Answers at once, or later."""

    def __init__(self, answer: Answer, after: float | None) -> None:
        self._answer, self._after = answer, after

    def ask(self, question: Question) -> Answer | Awaitable[Answer]:
        assert question.partitions == list(self._answer.errors)
        return self._answer if self._after is None else self._later(self._after)

    async def _later(self, seconds: float) -> Answer:
        await asyncio.sleep(seconds)
        return self._answer


def counted(*answers: tuple[list[E], float | None]) -> Counters:
    """After these answers, the errors of some partitions each, so many seconds after they were asked for."""
    counters = Counters()

    async def ask_all(_: VirtualLoop) -> None:
        for errors, after in answers:
            partitions = [TopicPartition("t", number) for number in range(len(errors))]
            registrar = Registrar(Answer(dict(zip(partitions, errors, strict=True))), after)
            node: Any = SimpleNamespace(registrar=registrar, counters=counters, settings={})
            verified = verify(node, NEW, "id", ProducerId(1), Epoch(0), partitions)
            verified = verified if isinstance(verified, Verified) else await verified
            assert list(verified.errors.values()) == errors

    run(ask_all)
    return counters


def test_each_partition_that_is_not_verified_counts_and_the_milliseconds_that_an_answer_took() -> None:
    found = counted(
        ([E.NONE], None),
        ([E.NONE, E.INVALID_PRODUCER_ID_MAPPING, E.TRANSACTION_ABORTABLE], 0.25),
        ([E.CONCURRENT_TRANSACTIONS], 0.05),
    )
    assert (found.verifications, found.verification_failures) == (3, 3)
    assert found.verification_time_ms == pytest.approx(300)
    assert found.longest_verification_ms == pytest.approx(250)
