"""DescribeTransactions (65) and ListTransactions (66), facts §1.10 and §14."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.wire import Client, add, clients, ended, find_coordinator, init, new_topic

from fencepost.broker.network.answer_memory import AnswerMemory
from fencepost.broker.network.registry import SERVED
from fencepost.coordinator.transaction.listing import Listed, Listing
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeTransactionsRequest, ListTransactionsRequest
from fencepost.protocol.messages.describe_transactions import TransactionState
from fencepost.protocol.steps import Steps
from fencepost.protocol.types import Lsn, ProducerId
from fencepost.runtime import Slices

client = clients()
EVERY = range(3)


def describe(client: Client, name: str) -> TransactionState:
    (found,) = client.ask(DescribeTransactionsRequest(transactional_ids=[name])).transaction_states
    assert found.transactional_id == name
    state: TransactionState = found
    return state


@pytest.mark.promise("360.describe")
def test_a_transaction_through_its_life(client: Client) -> None:
    one, two = new_topic(client, 2), new_topic(client)
    pair = init(client, "t", timeout_ms=12_345)
    empty = describe(client, "t")
    assert (empty.error_code, empty.transaction_state, empty.transaction_timeout_ms) == (0, "Empty", 12_345)
    assert (empty.producer_id, empty.producer_epoch, empty.transaction_start_time_ms) == (*pair, -1)
    assert empty.topics == []

    for topic, partition in [(one, 0), (one, 1), (two, 0)]:
        assert add(client, "t", pair, topic, partition) == ErrorCode.NONE
    ongoing = describe(client, "t")
    assert ongoing.transaction_state == "Ongoing"
    assert ongoing.transaction_start_time_ms > 0
    assert {each.topic: sorted(each.partitions) for each in ongoing.topics} == {one: [0, 1], two: [0]}

    for commit, name in [(True, "CompleteCommit"), (False, "CompleteAbort")]:
        pair = ended(client, "t", pair, commit=commit)
        complete = describe(client, "t")
        assert (complete.transaction_state, complete.topics) == (name, [])
        assert (complete.producer_id, complete.producer_epoch) == pair
        assert complete.transaction_start_time_ms > 0, "as in Apache Kafka it stays set (facts §14)"


@pytest.mark.parametrize(
    ("name", "error"), [("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), ("", ErrorCode.INVALID_REQUEST)]
)
def test_nothing_is_known_of_an_unknown_id(client: Client, name: str, error: ErrorCode) -> None:
    find_coordinator(client, "t")
    assert describe(client, name) == TransactionState(
        error_code=error,
        transactional_id=name,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def listed(
    client: Client,
    states: tuple[str, ...] = (),
    producer_ids: tuple[int, ...] = (),
    duration: int = -1,
    pattern: str | None = None,
    version: int = 2,
) -> Any:
    return client.ask(
        ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=duration,
            transactional_id_pattern=pattern,
        ),
        version,
    )


def names(answer: Any) -> list[str]:
    assert answer.error_code == ErrorCode.NONE
    return sorted(each.transactional_id for each in answer.transaction_states)


@pytest.mark.parametrize("version", EVERY)
def test_a_list_is_filtered(client: Client, version: int) -> None:
    topic = new_topic(client)
    pairs = {name: init(client, name) for name in ("empty", "open", "done")}
    for name in ("open", "done"):
        assert add(client, name, pairs[name], topic) == ErrorCode.NONE
    ended(client, "done", pairs["done"])
    everything = listed(client, version=version)
    states = {each.transactional_id: each.transaction_state for each in everything.transaction_states}
    assert states == {"empty": "Empty", "open": "Ongoing", "done": "CompleteCommit"}
    told = {each.transactional_id: each.producer_id for each in everything.transaction_states}
    assert told == {name: pair.producer_id for name, pair in pairs.items()}
    assert names(listed(client, ("Ongoing", "Empty"), version=version)) == ["empty", "open"]
    assert names(listed(client, producer_ids=(pairs["done"].producer_id,), version=version)) == ["done"]
    assert names(listed(client, ("Ongoing",), (pairs["done"].producer_id,), version=version)) == []
    unknown = listed(client, ("Ongoing", "Sleeping"), version=version)
    assert (names(unknown), unknown.unknown_state_filters) == (["open"], ["Sleeping"])


def test_a_list_by_duration(client: Client) -> None:
    topic = new_topic(client)
    pair = init(client, "open")
    init(client, "empty")
    assert add(client, "open", pair, topic) == ErrorCode.NONE
    assert names(listed(client, duration=3_600_000)) == ["empty"], "its start is -1, so it always passes"
    assert names(listed(client, duration=3_600_000, version=1)) == ["empty"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        *((None, 3), ("", 3), ("orders-.*", 2), ("orders", 0), ("orders-1", 1), (".*-1", 2), ("(orders|bills)-1", 2)),
        *((r"\p{L}+-[[:digit:]]", 3), (r"\Qorders-\E.", 2), ("(?P<kind>[a-z]+)-1", 2)),
    ],
)
def test_a_list_by_pattern(client: Client, pattern: str | None, expected: int) -> None:
    for name in ("orders-1", "orders-2", "bills-1"):
        init(client, name)
    assert len(names(listed(client, pattern=pattern))) == expected


def test_a_pattern_that_stops_a_backtracking_engine(client: Client) -> None:
    for name in ("a" * 60, "a" * 20_000):
        init(client, name)
    for pattern in ("(a+)+b", "(a|aa)*c", "(x*a*z*)*b" + "(x*y*z*)*" * 100):
        assert names(listed(client, pattern=pattern)) == []
    assert len(names(listed(client, pattern="(a+)+"))) == 2


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "x" * 1025, r"(a)\1", "a(?=b)", r"\pL{1000}"])
def test_a_bad_pattern(client: Client, pattern: str) -> None:
    find_coordinator(client, "t")
    assert listed(client, pattern=pattern).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_of_many_transactional_ids_each_is_listed_once() -> None:
    """More than are put into the answer in one step."""
    listed = [Listed(f"t{number}", ProducerId(number), "Ongoing") for number in range(1500)]

    def in_steps(*_: object) -> Steps[Listing]:
        yield None
        return Listing(ErrorCode.NONE, transactions=listed, lsn=Lsn(7))

    async def ask() -> Any:
        node: Any = SimpleNamespace(
            transactions=SimpleNamespace(list_in_steps=in_steps), slices=Slices(), answer_memory=AnswerMemory(1)
        )
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
        context: Any = SimpleNamespace(may=lambda *_: True, version=2)
        return await SERVED[66].handler(request, context, node)  # type: ignore[misc]

    reply = asyncio.run(ask())
    assert [each.transactional_id for each in reply.response.transaction_states] == [name for name, *_ in listed]
    assert reply.lsn == 7
