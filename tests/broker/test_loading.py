"""Requests that come while the journals are read: come again where it is not known yet, right answers elsewhere."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.broker.group_talk import commit, committed_offset, find_group, txn_commit
from tests.broker.wire import (
    SETTINGS,
    Client,
    add,
    batch,
    end,
    ended,
    fetch,
    init,
    init_answer,
    killed_copy,
    new_topic,
    produce,
    values,
    wait_until,
)

from fencepost.broker import Broker, running_broker
from fencepost.coordinator.group.journal_loading import Loading as GroupLoading
from fencepost.coordinator.transaction.shards import Loading
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeTransactionsRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.partitioning import partition_for_id
from fencepost.protocol.types import ProducerIdAndEpoch

COUNT = 50
MANY = {**SETTINGS, "transaction.state.log.num.partitions": COUNT, "offsets.topic.num.partitions": COUNT}
COME_AGAIN = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Gate:
    """Journal partitions are read when the test lets them be."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.transactions: set[int] = set()
        self.groups: set[int] = set(range(COUNT))
        self.batches_of_groups = sys.maxsize
        read, read_groups = Loading.step, GroupLoading.step

        def step(loading: Loading, batches: int) -> bool:  # noqa: ARG001
            return loading.index in self.transactions and read(loading, 1)

        def step_groups(loading: GroupLoading, batches: int) -> bool:  # noqa: ARG001
            if loading.shard.index not in self.groups or self.batches_of_groups == 0:
                return False
            self.batches_of_groups -= 1
            return read_groups(loading, 1)

        patch.setattr(Loading, "step", step)
        patch.setattr(GroupLoading, "step", step_groups)

    def open_all(self) -> None:
        self.transactions |= set(range(COUNT))
        self.groups |= set(range(COUNT))
        self.batches_of_groups = sys.maxsize


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def listens(broker: Broker) -> bool:
    try:
        socket.create_connection((broker.host, broker.port)).close()
    except ConnectionRefusedError:
        return False
    return True


@contextmanager
def starting(data: Path, gate: Gate) -> Iterator[tuple[Broker, Future[object]]]:
    """A broker that listens, and the end of its start."""
    broker = Broker(data=data, settings=MANY)
    broker._parts.slices._steps = 1  # what waits at the gate goes round without end
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    started: Future[object] = asyncio.run_coroutine_threadsafe(broker.start(), loop)
    try:
        wait_until("it listens", lambda: broker.port != 0 and listens(broker))
        yield broker, started
    finally:
        gate.open_all()
        started.result(20)
        asyncio.run_coroutine_threadsafe(broker.stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Known(NamedTuple):
    """A transactional id as the node knew it before."""

    name: str
    pair: ProducerIdAndEpoch
    state: str

    @property
    def home(self) -> int:
        return partition_for_id(self.name, COUNT)


STATES = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")


def described(client: Client, known: Known) -> tuple[int, str, int, int]:
    (found,) = client.ask(DescribeTransactionsRequest(transactional_ids=[known.name])).transaction_states
    return found.error_code, found.transaction_state, found.producer_id, found.producer_epoch


def wait_until_read(client: Client, known: Known) -> None:
    wait_until(f"{known.name} is read", lambda: described(client, known)[0] == 0)


def brought(client: Client, name: str, state: str, topic: str) -> Known:
    pair = init(client, name)
    if state != "Empty":
        written = produce(client, topic, batch(name, pair=pair, sequence=0, transactional=True), name)
        assert written.error_code == ErrorCode.NONE
    if state.startswith("Complete"):
        pair = ended(client, name, pair, commit=state == "CompleteCommit")
    return Known(name, pair, state)


def verified(client: Client, known: Known, topic: str, version: int) -> int:
    one = AddPartitionsToTxnTransaction(
        transactional_id=known.name,
        producer_id=known.pair.producer_id,
        producer_epoch=known.pair.producer_epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    answer = client.ask(AddPartitionsToTxnRequest(transactions=[one]), version).results_by_transaction[0]
    return int(answer.topic_results[0].results_by_partition[0].partition_error_code)


def refusals(client: Client, known: Known, other: str, number: int) -> Iterator[tuple[str, int, int]]:
    """Every request of a transactional producer: what it is, its error, and the error that it must have."""
    name, pair = known.name, known.pair
    add_offsets = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, group_id="g"
    )
    yield "InitProducerId", init_answer(client, name, version=number % 6).error_code, COME_AGAIN
    yield "InitProducerId with a pair", init_answer(client, name, pair, version=3 + number % 3).error_code, COME_AGAIN
    yield "AddPartitionsToTxn", add(client, name, pair, other, version=number % 6), COME_AGAIN
    yield "AddPartitionsToTxn to verify", verified(client, known, other, 4 + number % 2), COME_AGAIN
    yield "AddOffsetsToTxn", client.ask(add_offsets, number % 5).error_code, COME_AGAIN
    for commits in (True, False):
        yield "EndTxn", end(client, name, pair, commit=commits, version=number % 6).error_code, COME_AGAIN
    for version in (1, 4, 6):
        (told,) = txn_commit(client, name, pair, other, 5, version=version)
        yield "TxnOffsetCommit", told, ErrorCode.COORDINATOR_NOT_AVAILABLE if version < 2 else COME_AGAIN
    data = batch("x", pair=pair, sequence=0, transactional=True)
    for version in (3, 11, 12, 13):
        told = produce(client, other, data, name, version=version).error_code
        yield "Produce", told, ErrorCode.NOT_ENOUGH_REPLICAS
    yield "DescribeTransactions", described(client, known)[0], COME_AGAIN
    everything = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    yield "ListTransactions", client.ask(everything).error_code, COME_AGAIN


def test_while_fifty_partitions_are_read_nobody_gets_a_wrong_answer(tmp_path: Path, gate: Gate) -> None:
    gate.open_all()
    with running_broker(data=tmp_path / "one", settings=MANY) as broker:
        client = Client(broker)
        find_group(client)
        topic, other = new_topic(client), new_topic(client)
        ids = [brought(client, f"id{n}", STATES[n % 4], topic) for n in range(120)]
        killed_copy(broker, tmp_path / "two")
        client.close()
    assert len({known.home for known in ids}) > 40
    gate.transactions.clear()
    with starting(tmp_path / "two", gate) as (broker, started):
        client = Client(broker)
        for first in range(0, COUNT, 10):
            for number, known in enumerate(ids):
                told = described(client, known)
                if known.home < first:
                    assert told == (0, known.state, *known.pair), "it is read, and as it was"
                else:
                    assert told[0] == COME_AGAIN
                if known.home in range(first, first + 2):
                    for what, error, expected in refusals(client, known, other, number):
                        assert error == expected, (what, known)
            assert init_answer(client, None).error_code == ErrorCode.NONE, "this depends on no journal"
            assert not started.done()
            gate.transactions |= set(range(first, first + 10))
            for known in ids:
                if known.home < first + 10:
                    wait_until_read(client, known)
        started.result(10)
        go_on(client, ids, topic, other)
        client.close()


def go_on(client: Client, ids: list[Known], topic: str, other: str) -> None:
    """What was refused has left no trace, and everybody goes on where they were."""
    for known in ids:
        assert described(client, known) == (0, known.state, *known.pair)
    assert fetch(client, other, committed=False).high_watermark == 0
    for known in ids:
        pair = known.pair
        if known.state == "Ongoing":
            pair = ended(client, known.name, pair)
        written = produce(client, other, batch(known.name, pair=pair, sequence=0, transactional=True), known.name)
        assert written.error_code == ErrorCode.NONE
        ended(client, known.name, pair)
    assert values(fetch(client, other)) == [known.name for known in ids]
    shown = fetch(client, topic)
    committed = [known.name for known in ids if known.state in ("Ongoing", "CompleteCommit")]
    assert sorted(values(shown)) == sorted(committed)
    assert shown.last_stable_offset == shown.high_watermark


def test_groups_that_are_not_read_yet_come_again_and_markers_reach_them(tmp_path: Path, gate: Gate) -> None:
    """A transaction with offsets ends, and a topic is deleted, before its group is known."""
    gate.open_all()
    with running_broker(data=tmp_path, settings=MANY) as broker:
        client = Client(broker)
        find_group(client)
        topic, doomed, pair = new_topic(client), new_topic(client), init(client, "t")
        assert commit(client, topic, 1) == commit(client, doomed, 2) == [ErrorCode.NONE]
        assert txn_commit(client, "t", pair, topic, 7) == [ErrorCode.NONE]
        client.close()
    gate.groups = {partition_for_id("g", COUNT)}
    gate.batches_of_groups = 2
    with starting(tmp_path, gate) as (broker, started):
        client = Client(broker)
        wait_until("it is half read", lambda: gate.batches_of_groups == 0)
        wait_until_read(client, Known("t", pair, ""))
        assert commit(client, topic, 9) == [COME_AGAIN]
        for version, told in [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (3, COME_AGAIN), (6, COME_AGAIN)]:
            assert txn_commit(client, "t", pair, topic, 9, version=version) == [told]
        listed = client.ask(ListGroupsRequest(states_filter=[], types_filter=[]))
        assert (listed.error_code, listed.groups) == (COME_AGAIN, [])
        following = ended(client, "t", pair)
        deleted = client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=doomed)], timeout_ms=1000))
        assert deleted.responses[0].error_code == ErrorCode.NONE
        gate.open_all()
        started.result(10)
        assert committed_offset(client, topic, stable=True) == (7, ErrorCode.NONE), "the marker came while it was read"
        assert committed_offset(client, doomed) == (-1, ErrorCode.NONE)
        assert txn_commit(client, "t", following, topic, 8) == [ErrorCode.NONE]
        ended(client, "t", following)
        assert committed_offset(client, topic, stable=True) == (8, ErrorCode.NONE)
        client.close()


def test_a_deleted_topic_is_made_again_when_its_offsets_are_forgotten(tmp_path: Path, gate: Gate) -> None:
    """Before, a kill would leave the next topic of its name with them."""
    gate.open_all()
    with running_broker(data=tmp_path, settings=MANY) as broker:
        client = Client(broker)
        find_group(client)
        doomed = new_topic(client)
        assert commit(client, doomed, 2) == [ErrorCode.NONE]
        client.close()
    gate.groups = set()
    with starting(tmp_path, gate) as (broker, started), ThreadPoolExecutor(1) as pool:
        client, other, topics = Client(broker), Client(broker), broker.node.topics
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=doomed)], timeout_ms=1000)
        assert client.ask(delete).responses[0].error_code == ErrorCode.NONE
        wanted = CreatableTopic(name=doomed, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        making = pool.submit(other.ask, CreateTopicsRequest(topics=[wanted]))
        wait_until("it is asked for", lambda: doomed in topics._coming or doomed in topics.by_name)
        for _ in range(20):
            assert init_answer(client, None).error_code == ErrorCode.NONE
        assert not making.done()
        gate.open_all()
        assert making.result(10).topics[0].error_code == ErrorCode.NONE
        started.result(10)
        assert committed_offset(client, doomed) == (-1, ErrorCode.NONE)
        client.close()
        other.close()


def test_a_stale_commit_of_offsets_waits_until_it_is_known_why(tmp_path: Path, gate: Gate) -> None:
    """Whether it was fenced or timed out, only the coordinator knows."""
    gate.open_all()
    with running_broker(data=tmp_path, settings=MANY) as broker:
        client = Client(broker)
        find_group(client)
        topic, pair = new_topic(client), init(client, "t", timeout_ms=100)
        assert txn_commit(client, "t", pair, topic, 7) == [ErrorCode.NONE]
        wait_until("it is timed out", lambda: described(client, Known("t", pair, ""))[1] == "CompleteAbort")
        client.close()
    gate.transactions.clear()
    with starting(tmp_path, gate) as (broker, started):
        client = Client(broker)
        wait_until("the group is read", lambda: not broker.node.groups.is_loading)
        assert txn_commit(client, "t", pair, topic, 8) == [COME_AGAIN]
        gate.open_all()
        started.result(10)
        assert txn_commit(client, "t", pair, topic, 8) == [ErrorCode.TRANSACTION_ABORTABLE]
        client.close()
