"""Transactional ids as their coordinators know them (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from fencepost.client.admin.asking import ItemResult, Question, ask, ask_each_broker
from fencepost.client.admin.routes import Coordinators
from fencepost.client.cluster import Cluster, Deadline
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeTransactionsRequest, ListTransactionsRequest
from fencepost.protocol.messages.find_coordinator import TRANSACTION
from fencepost.protocol.types import Epoch, ProducerId, TopicPartition

_DURATION_SINCE: Final = 1
_PATTERN_SINCE: Final = 2


class TransactionDescription(NamedTuple):
    """State of one transactional id (KIP-664), with Apache Kafka's names for states.

    `timeout_ms`: the transaction's time-out in milliseconds.  `start_time_ms`: when the transaction that is
    open, or else was the last, began, in milliseconds since 1970; -1 before the first.
    """

    transactional_id: str
    state: str
    producer_id: ProducerId
    producer_epoch: Epoch
    timeout_ms: int
    start_time_ms: int
    partitions: list[TopicPartition]


class TransactionListing(NamedTuple):
    """A transactional id, its state, and the producer id that it has now."""

    transactional_id: str
    state: str
    producer_id: ProducerId


class TransactionFilter(NamedTuple):
    """A filter of transactional ids: those are listed that fit all fields which are given; None or empty: not given."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    running_longer_than_ms: int | None = None
    pattern: str | None = None


async def list_transactions(
    cluster: Cluster, given: TransactionFilter, deadline: Deadline, brokers: Iterable[int] | None = None
) -> dict[str, TransactionListing]:
    """The transactions by transactional id, of these brokers, each of which must answer, or of all there are.

    Raises ValueError for a state that there is not.
    """

    def read(answer: Any, asked: Sequence[int]) -> Iterator[ItemResult[int, list[TransactionListing]]]:
        found = [
            TransactionListing(state.transactional_id, state.transaction_state, ProducerId(state.producer_id))
            for state in answer.transaction_states
        ]
        unknown = [state for state in given.states if state in answer.unknown_state_filters]
        if unknown:
            raise ValueError(f"states={list(given.states)}: there is no state {', '.join(unknown)}")
        yield ItemResult(asked[0], answer.error_code, None, found)

    duration = given.running_longer_than_ms
    question = Question(
        request=lambda _: ListTransactionsRequest(
            state_filters=list(given.states),
            producer_id_filters=list(given.producer_ids),
            duration_filter=-1 if duration is None else duration,
            transactional_id_pattern=given.pattern,
        ),
        read=read,
        refused=lambda broker: f"broker {broker} does not list its transactions",
        least=_PATTERN_SINCE if given.pattern is not None else _DURATION_SINCE if duration is not None else 0,
    )
    by_broker = await ask_each_broker(cluster, question, deadline, brokers)
    return {
        listed.transactional_id: listed for listed in sorted(each for found in by_broker.values() for each in found)
    }


async def describe_transactions(
    cluster: Cluster, names: Iterable[str], deadline: Deadline | None = None
) -> dict[str, TransactionDescription | None]:
    """State of several transactional ids, None for one that there is not, one request to each coordinator.

    Raises BrokerError.
    """

    def read(answer: Any, _: object) -> Iterator[ItemResult[str, TransactionDescription | None]]:
        for state in answer.transaction_states:
            gone = state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            described = None if gone else _description(state)
            yield ItemResult(state.transactional_id, 0 if gone else state.error_code, None, described)

    question = Question(
        request=lambda asked: DescribeTransactionsRequest(transactional_ids=list(asked)),
        read=read,
        refused=lambda name: f"transactional id {name!r} cannot be described",
    )
    deadline = deadline or cluster.deadline("describing transactions")
    return await ask(cluster, names, Coordinators(cluster, TRANSACTION), question, deadline)


def _description(state: Any) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=state.transactional_id,
        state=state.transaction_state,
        producer_id=ProducerId(state.producer_id),
        producer_epoch=Epoch(state.producer_epoch),
        timeout_ms=state.transaction_timeout_ms,
        start_time_ms=state.transaction_start_time_ms,
        partitions=[TopicPartition(topic.topic, number) for topic in state.topics for number in topic.partitions],
    )
