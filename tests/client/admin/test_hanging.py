"""Transactions that hang: found, told from those whose coordinator will end them, and ended (KIP-664)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.admin.nodes import CUT, Nodes, play
from tests.client.test_producer import producer, shown, simulate

from fencepost.client import Admin, BrokerError, HangingTransaction, MisuseError, ProducerState, TransactionDescription
from fencepost.client.admin.hanging import open_for_longer, without_coordinator
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    describe_producers,
    describe_transactions,
    list_transactions,
    write_txn_markers,
)
from fencepost.protocol.types import Epoch, Milliseconds, ProducerId, TopicPartition
from fencepost.simulation.world import ADDRESS, World

AT, ELSEWHERE = TopicPartition("t", 0), TopicPartition("t", 1)
JOURNAL = TopicPartition("__transaction_state", 0)
TIMEOUT_MS = 900_000


def state(producer_id: int = 7, *, last: int = 0, start: int | None = 3, coordinator_epoch: int = 5) -> ProducerState:
    return ProducerState(ProducerId(producer_id), Epoch(2), 0, last, coordinator_epoch, start)


def description(*partitions: TopicPartition) -> TransactionDescription:
    return TransactionDescription("id", "Ongoing", ProducerId(7), Epoch(2), 60_000, 0, list(partitions))


@given(
    last=st.integers(0, 10_000), now=st.integers(0, 10_000), timeout_ms=st.integers(0, 10_000), is_open=st.booleans()
)
def test_only_who_is_open_and_has_not_written_for_longer_than_a_transaction_may_take_is_looked_at(
    last: int, now: int, timeout_ms: int, is_open: bool
) -> None:
    found = open_for_longer({AT: [state(last=last, start=3 if is_open else None)]}, timeout_ms, Milliseconds(now))
    assert bool(found) == (is_open and now - last > timeout_ms)
    assert all((each.partition, each.start_offset, each.producer_id) == (AT, 3, 7) for each in found)


@pytest.mark.parametrize(
    ("ids", "described", "hangs"),
    [
        ({}, {}, True),
        ({8: "other"}, {"other": description(AT)}, True),
        ({7: "id"}, {"id": None}, True),
        ({7: "id"}, {"id": description()}, True),
        ({7: "id"}, {"id": description(ELSEWHERE)}, True),
        ({7: "id"}, {"id": description(ELSEWHERE, AT)}, False),
    ],
    ids=["nobody", "another producer", "forgotten", "ended", "elsewhere", "open"],
)
def test_it_hangs_unless_a_coordinator_names_its_partition(ids: Any, described: Any, hangs: bool) -> None:
    found = open_for_longer({AT: [state()]}, TIMEOUT_MS, Milliseconds(TIMEOUT_MS + 1))
    left = without_coordinator(found, ids, described)
    assert [each.partition for each in left] == ([AT] if hangs else [])
    assert all(each.transactional_id == ids.get(7) for each in left)


class Answers:
    """Of nodes: a partition with producers, and what coordinators know."""

    def __init__(self, nodes: Nodes, *states: ProducerState) -> None:
        self.states = {AT: list(states), ELSEWHERE: []}
        self.known: dict[str, tuple[int, list[TopicPartition]]] = {}
        """Transactional id -> producer id and the partitions of its transaction."""
        self.marker_error = ErrorCode.NONE
        self.settles = False
        """Whether the transaction ends while coordinators are asked about it."""
        nodes.leaders = {AT: 1, ELSEWHERE: 2, JOURNAL: 2, JOURNAL._replace(partition=1): 0}
        nodes.answer = self
        self.on_marker: Callable[[], Any] = lambda: None
        """What else happens when a marker is asked for; another answer to it, if it gives one."""

    def __call__(self, node: int, request: Any) -> Any:
        match request:
            case DescribeProducersRequest():
                return self._producers(request)
            case ListTransactionsRequest():
                if self.settles:
                    self.states[AT] = []
                found = [
                    list_transactions.TransactionState(
                        transactional_id=name, producer_id=producer_id, transaction_state="Ongoing"
                    )
                    for name, (producer_id, _) in self.known.items()
                    if producer_id in request.producer_id_filters and node == 2
                ]
                return ListTransactionsResponse(error_code=0, unknown_state_filters=[], transaction_states=found)
            case DescribeTransactionsRequest():
                return DescribeTransactionsResponse(
                    transaction_states=[self._described(name) for name in request.transactional_ids]
                )
            case WriteTxnMarkersRequest():
                return self.on_marker() or self._written(request)
        raise AssertionError(request)

    def _producers(self, request: DescribeProducersRequest) -> DescribeProducersResponse:
        topics = []
        for topic in request.topics:
            parts = []
            for number in topic.partition_indexes:
                known = self.states.get(TopicPartition(topic.name, number), [])
                active = [
                    describe_producers.ProducerState(
                        producer_id=each.producer_id,
                        producer_epoch=each.producer_epoch,
                        last_timestamp=each.last_timestamp,
                        coordinator_epoch=each.coordinator_epoch,
                        current_txn_start_offset=-1
                        if each.transaction_start_offset is None
                        else each.transaction_start_offset,
                    )
                    for each in known
                ]
                parts.append(
                    describe_producers.PartitionResponse(partition_index=number, error_code=0, active_producers=active)
                )
            topics.append(describe_producers.TopicResponse(name=topic.name, partitions=parts))
        return DescribeProducersResponse(topics=topics)

    def _described(self, name: str) -> describe_transactions.TransactionState:
        producer_id, partitions = self.known[name]
        return describe_transactions.TransactionState(
            error_code=0,
            transactional_id=name,
            transaction_state="Ongoing",
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=0,
            producer_id=producer_id,
            producer_epoch=2,
            topics=[describe_transactions.TopicData(topic=at.topic, partitions=[at.partition]) for at in partitions],
        )

    def _written(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        (marker,) = request.markers
        part = write_txn_markers.WritableTxnMarkerPartitionResult(partition_index=0, error_code=self.marker_error)
        topic = write_txn_markers.WritableTxnMarkerTopicResult(name="t", partitions=[part])
        result = write_txn_markers.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[topic])
        return WriteTxnMarkersResponse(markers=[result])


def long_ago(nodes: Nodes) -> int:
    return nodes.clock.now() - TIMEOUT_MS - 1


def test_what_nobody_knows_is_found_and_what_a_coordinator_knows_is_not() -> None:
    async def scenario(nodes: Nodes) -> None:
        last = long_ago(nodes)
        answers = Answers(nodes, state(7, last=last), state(8, last=last, start=4), state(9, last=last, start=None))
        answers.known = {"alive": (8, [AT])}
        async with nodes.admin() as admin:
            expected = HangingTransaction(AT, 3, ProducerId(7), Epoch(2), 5, last)
            assert await admin.find_hanging_transactions() == [expected]
            assert await admin.find_hanging_transactions(["t"]) == [expected]
            assert await admin.find_hanging_transactions(max_transaction_timeout_ms=2 * TIMEOUT_MS) == []
            with pytest.raises(BrokerError, match="topic 'none' cannot be described"):
                await admin.find_hanging_transactions(["none"])

    play(scenario)


def test_what_ends_while_it_is_asked_about_does_not_hang() -> None:
    async def scenario(nodes: Nodes) -> None:
        answers = Answers(nodes, state(last=long_ago(nodes)))
        answers.settles = True
        async with nodes.admin() as admin:
            assert await admin.find_hanging_transactions() == []

    play(scenario)


def test_a_partition_that_nobody_leads_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(nodes: Nodes) -> None:
        Answers(nodes, state(last=long_ago(nodes)))
        nodes.leaders[ELSEWHERE] = -1
        async with nodes.admin(max_block_ms=1000) as admin:
            assert [each.partition for each in await admin.find_hanging_transactions()] == [AT]
        assert "as nobody leads them: t-1" in caplog.text

    play(scenario)


@pytest.mark.parametrize("others", [0, 1])
def test_a_topic_that_is_deleted_while_it_is_looked_at_is_left_out(others: int) -> None:
    async def scenario(nodes: Nodes) -> None:
        answers = Answers(nodes, state(last=long_ago(nodes)))
        if not others:
            del nodes.leaders[AT]
        goes = TopicPartition("goes", 0)
        nodes.leaders[goes] = 0

        def answer(node: int, request: Any) -> Any:
            if isinstance(request, DescribeProducersRequest) and request.topics[0].name == "goes":
                nodes.leaders.pop(goes, None)
                part = describe_producers.PartitionResponse(
                    partition_index=0, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, active_producers=[]
                )
                return DescribeProducersResponse(
                    topics=[describe_producers.TopicResponse(name="goes", partitions=[part])]
                )
            return answers(node, request)

        nodes.answer = answer
        async with nodes.admin() as admin:
            assert [each.partition for each in await admin.find_hanging_transactions()] == [AT] * others

    play(scenario)


@pytest.mark.parametrize("coordinator_epoch", [-1, 0, 5])
def test_a_hanging_transaction_is_aborted_at_the_leader_in_the_name_of_its_last_coordinator(
    coordinator_epoch: int,
) -> None:
    async def scenario(nodes: Nodes) -> None:
        Answers(nodes, state(6, start=9), state(last=long_ago(nodes), coordinator_epoch=coordinator_epoch))
        async with nodes.admin() as admin:
            await admin.abort_transaction(AT, 3)
        ((node, request),) = nodes.requests(WriteTxnMarkersRequest)
        (marker,) = request.markers
        assert (node, marker.producer_id, marker.producer_epoch, marker.transaction_result) == (1, 7, 2, False)
        assert marker.coordinator_epoch == max(coordinator_epoch, 0)
        assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [0])]
        assert marker.transaction_version == 0

    play(scenario)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_what_is_found_is_what_may_be_aborted_to_the_millisecond(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(nodes: Nodes) -> None:
        now = nodes.clock.now()
        monkeypatch.setattr(nodes.clock, "now", lambda: now)
        Answers(nodes, state(last=now - TIMEOUT_MS - more))
        async with nodes.admin() as admin:
            found = await admin.find_hanging_transactions(["t"])
            assert [each.start_offset for each in found] == ([3] if more > 0 else [])
            if found:
                await admin.abort_transaction(AT, 3)
            else:
                with pytest.raises(MisuseError, match="wait for that"):
                    await admin.abort_transaction(AT, 3)

    play(scenario)


def test_only_a_hanging_transaction_is_aborted() -> None:
    async def scenario(nodes: Nodes) -> None:
        answers = Answers(nodes, state(last=long_ago(nodes)))
        async with nodes.admin() as admin:
            with pytest.raises(MisuseError, match=r"no transaction that is open in t-0 begins at offset 4"):
                await admin.abort_transaction(AT, 4)
            with pytest.raises(MisuseError, match="begins at offset 3"):
                await admin.abort_transaction(ELSEWHERE, 3)
            with pytest.raises(MisuseError, match=r"written to 900\d+ ms ago, and one may take 990000 ms"):
                await admin.abort_transaction(AT, 3, max_transaction_timeout_ms=990_000)
            answers.known = {"id": (7, [AT])}
            with pytest.raises(MisuseError, match=r"offset 3 of t-0 does not hang: .*initialize a producer"):
                await admin.abort_transaction(AT, 3)
        assert nodes.requests(WriteTxnMarkersRequest) == []

    play(scenario)


@pytest.mark.parametrize("next_one", [False, True])
def test_a_transaction_that_ends_while_its_coordinator_is_asked_is_not_aborted(next_one: bool) -> None:
    """An abort would be of the one that its producer has begun since, which the coordinator may commit."""

    async def scenario(nodes: Nodes) -> None:
        answers = Answers(nodes, state(last=long_ago(nodes)))

        def answer(node: int, request: Any) -> Any:
            if isinstance(request, ListTransactionsRequest):
                answers.states[AT] = [state(last=long_ago(nodes), start=9 if next_one else None)]
            return answers(node, request)

        nodes.answer = answer
        async with nodes.admin() as admin:
            with pytest.raises(MisuseError, match=r"no transaction that is open in t-0 begins at offset 3"):
                await admin.abort_transaction(AT, 3)
        assert nodes.requests(WriteTxnMarkersRequest) == []

    play(scenario)


def test_nothing_hangs_for_sure_while_a_coordinator_is_away() -> None:
    """It may come back, and commit."""

    async def scenario(nodes: Nodes) -> None:
        answers = Answers(nodes, state(last=long_ago(nodes)))
        answers.known = {"id": (7, [AT])}
        nodes.leaders[ELSEWHERE] = 0
        nodes.stop(2)  # it has the transaction
        async with nodes.admin() as admin:
            with pytest.raises(BrokerError, match="nobody leads __transaction_state-0") as told:
                await admin.find_hanging_transactions(["t"])
            assert told.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            with pytest.raises(BrokerError, match="nobody leads __transaction_state-0"):
                await admin.abort_transaction(AT, 3)
        assert nodes.requests(WriteTxnMarkersRequest) == []

    play(scenario)


@pytest.mark.parametrize("silent", [False, True])
def test_nothing_hangs_for_sure_while_a_coordinator_moves(silent: bool) -> None:
    """The one that has it is asked, wherever that is, until all of them have answered and none has moved."""

    async def scenario(nodes: Nodes) -> None:
        answers = Answers(nodes, state(last=long_ago(nodes)))
        answers.known = {"id": (7, [AT])}
        nodes.leaders[JOURNAL] = 0

        def answer(node: int, request: Any) -> Any:
            if isinstance(request, ListTransactionsRequest) and nodes.leaders[JOURNAL] == 0:
                nodes.leaders[JOURNAL] = 2
                return CUT if silent else answers(node, request)
            return answers(node, request)

        nodes.answer = answer
        async with nodes.admin() as admin:
            assert await admin.find_hanging_transactions(["t"]) == []

    play(scenario)


@pytest.mark.parametrize("cut", [False, True])
def test_a_marker_is_asked_for_again_only_while_the_same_transaction_hangs(cut: bool) -> None:
    """Another one of the same producer may have begun since."""

    async def scenario(nodes: Nodes) -> None:
        answers = Answers(nodes, state(last=long_ago(nodes)))
        tries: list[None] = []

        def repeated() -> Any:
            tries.append(None)
            if len(tries) == 2:
                answers.states[AT] = [state(last=long_ago(nodes), start=9)]
                answers.known = {"id": (7, [AT])}
            if cut:
                return CUT
            answers.marker_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return None

        answers.on_marker = repeated
        async with nodes.admin() as admin:
            await admin.abort_transaction(AT, 3)
        assert len(tries) == 2

    play(scenario)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ],
)
def test_a_marker_that_is_refused_is_told(error: ErrorCode) -> None:
    async def scenario(nodes: Nodes) -> None:
        Answers(nodes, state(last=long_ago(nodes))).marker_error = error
        async with nodes.admin() as admin:
            with pytest.raises(BrokerError, match="begins at offset 3 of t-0 was not aborted") as told:
                await admin.abort_transaction(AT, 3)
            assert told.value.code == error

    play(scenario)


def test_a_transaction_that_its_coordinator_lost_is_found_and_aborted_on_a_node() -> None:
    """Its state is taken from the coordinator by force; readers go on when it is aborted."""

    async def scenario(world: World) -> None:
        assert world.broker is not None
        async with Admin(ADDRESS, runtime=world.runtime("looking")) as admin, producer(world, "lost") as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await (await writer.send("t", b"hangs", partition=0))
            assert await admin.find_hanging_transactions(["t"], max_transaction_timeout_ms=0) == []
            world.broker.node.transactions._shards.forget("lost")
            await asyncio.sleep(0.01)
            (found,) = await admin.find_hanging_transactions(["t"], max_transaction_timeout_ms=0)
            assert (found.partition, found.start_offset) == (AT, 0)
            async with producer(world, "other") as other:
                await other.init_transactions()
                async with other.transaction():
                    await other.send("t", b"after", partition=0)
            assert await shown(world) == []
            await admin.abort_transaction(found.partition, found.start_offset, max_transaction_timeout_ms=0)
            assert await shown(world) == [b"after"]
            assert await admin.find_hanging_transactions(["t"], max_transaction_timeout_ms=0) == []
            await writer.abandon()

    simulate(scenario)
