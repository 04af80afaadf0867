"""Requests about very many groups, topics, ids or producers that are there: works for `benchmarks.stalls`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from benchmarks.filling import JOURNALLED, fill
from benchmarks.prober import Wire, probing
from benchmarks.stall_table import CREATE_VERSION, Node, Table, create, folder, wait_until
from fencepost.broker import Broker
from fencepost.coordinator.group.coordinator import CommitFor
from fencepost.coordinator.group.offsets import CommittedOffset
from fencepost.log.producer_state import Origin
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.describe_configs import DescribeConfigsResource
from fencepost.protocol.messages.describe_producers import TopicRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic
from fencepost.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import NO_LEADER_EPOCH, Milliseconds, Offset, TopicPartition

GROUPS: Final = 10_000
POSITIONS: Final = 100
"""Of each group."""
TOPICS: Final = 5000
IDS: Final = 90_000
WIDE: Final = 10_000
NOW: Final = Milliseconds(int(time.time() * 1000))
Request = tuple[str, Any, int]


def groups(broker: Broker) -> Iterator[None]:
    places = [TopicPartition(JOURNALLED, number) for number in range(POSITIONS)]
    for number in range(GROUPS):
        at = {each: CommittedOffset(Offset(number), NO_LEADER_EPOCH, "", Milliseconds(NOW)) for each in places}
        broker.node.groups.commit_offsets(CommitFor(f"group-{number}", "", None, -1), at)
        yield


def ids(broker: Broker) -> Iterator[None]:
    """Each has a producer, which the partition knows from a record of its own."""
    partition = broker.node.storage.partition(JOURNALLED, 0)
    assert partition is not None
    for number in range(IDS):
        pair = broker.node.transactions.init_producer_id(f"id-{number}", Milliseconds(60_000))
        identity: Any = {"producer_id": pair.producer_id, "producer_epoch": 0, "base_sequence": 0}
        partition.append(encode_batch([(NOW, None, b"x", ())], **identity), Origin.CLIENT, NOW)
        yield


def of_groups() -> Iterator[Request]:
    names = [f"group-{number}" for number in range(GROUPS)]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])
    yield f"OffsetFetch of {GROUPS} groups with {POSITIONS} positions", asked, 8
    yield f"DescribeGroups of {GROUPS} groups", DescribeGroupsRequest(groups=names), 5
    yield f"DeleteGroups of {GROUPS} groups", DeleteGroupsRequest(groups_names=names), 2


def of_ids() -> Iterator[Request]:
    names = [f"id-{number}" for number in range(IDS)]
    yield f"ListTransactions of {IDS} ids", ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0
    yield f"DescribeTransactions of {IDS} ids", DescribeTransactionsRequest(transactional_ids=names), 0
    asked = DescribeProducersRequest(topics=[TopicRequest(name=JOURNALLED, partition_indexes=[0])])
    yield f"DescribeProducers of {IDS} producers", asked, 0


def of_topics() -> Iterator[Request]:
    names = [f"topic-{number}" for number in range(TOPICS)]
    resources = [DescribeConfigsResource(resource_type=2, resource_name=name) for name in names]
    yield f"DescribeConfigs of {TOPICS} topics", DescribeConfigsRequest(resources=resources, include_synonyms=True), 4
    entry = AlterableConfig(name="retention.ms", config_operation=0, value="1000000")
    changes = [AlterConfigsResource(resource_type=2, resource_name=name, configs=[entry]) for name in names]
    for only in (True, False):
        asked = IncrementalAlterConfigsRequest(resources=changes, validate_only=only)
        yield f"IncrementalAlterConfigs of {TOPICS} topics{', only tried' if only else ''}", asked, 1


def of_partitions() -> Iterator[Request]:
    every = [DeleteRecordsPartition(partition_index=number, offset=-1) for number in range(WIDE)]
    asked = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="wide", partitions=every)], timeout_ms=60_000)
    yield f"DeleteRecords of {WIDE} partitions", asked, 2


def requests(table: Table) -> None:
    """Each about many things, of which the node was full when it started."""
    with folder() as path:
        asyncio.run(fill(path / "data", lambda broker: chain(groups(broker), ids(broker))))
        node = Node(path / "data")
        try:
            node.wait_ready()
            wire = node.wire()
            with probing(node.address, node.steps) as prober:
                for what, request, version in chain(of_groups(), of_ids()):
                    with table.measuring(what, prober):
                        wire.ask(request, version)
                    print(f"    the most memory that the node has had: {node.most_memory >> 20} MiB", flush=True)
        finally:
            node.end()


def _made(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=1, replication_factor=-1, assignments=[], configs=[])


def configurations(table: Table) -> None:
    with folder() as path:
        node = Node(path / "data")
        try:
            node.wait_ready()
            wire = node.wire()
            for first in range(0, TOPICS, 500):
                topics = [_made(f"topic-{number}") for number in range(first, first + 500)]
                wire.ask(CreateTopicsRequest(topics=topics), CREATE_VERSION)
            create(wire, "wide", WIDE)
            with probing(node.address, node.steps) as prober:
                for what, request, version in chain(of_topics(), of_partitions()):
                    with table.measuring(what, prober):
                        wire.ask(request, version)
                sessions(table, node, wire, prober)
                transaction(table, wire, prober)
        finally:
            node.end()


def sessions(table: Table, node: Node, wire: Wire, prober: Any) -> None:
    """A Fetch that names all partitions, those after it that name none, and one that forgets them."""
    places = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000) for number in range(WIDE)]
    topics = [FetchTopic(topic="wide", partitions=places)]
    with table.measuring(f"Fetch of {WIDE} partitions that opens a session", prober):
        first = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=0, session_epoch=0, topics=topics)
        session = wire.ask(first, 12).session_id
        assert session
    with table.measuring("20 in that session that name nothing", prober):
        for epoch in range(1, 21):
            again = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=session, session_epoch=epoch, topics=[])
            wire.ask(again, 12)
    with table.measuring("one that waits for half a second", prober):
        waits = FetchRequest(max_wait_ms=500, min_bytes=1, session_id=session, session_epoch=21, topics=[])
        wire.ask(waits, 12)
    with table.measuring("one that forgets all but one", prober):
        forgotten = [ForgottenTopic(topic="wide", partitions=list(range(1, WIDE)))]
        last: Any = {"session_id": session, "session_epoch": 22, "forgotten_topics_data": forgotten}
        assert not wire.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[], **last), 12).error_code
    print(f"    the most memory that the node has had: {node.most_memory >> 20} MiB", flush=True)


def transaction(table: Table, wire: Wire, prober: Any) -> None:
    """One over all partitions: its registration, and its end with all markers."""
    asked = InitProducerIdRequest(transactional_id="wide", transaction_timeout_ms=60_000)
    wire.ask(FindCoordinatorRequest(key="wide", key_type=1), 1)
    wait_until("its coordinator is there", lambda: not wire.ask(asked, 2).error_code)
    pair = wire.ask(asked, 2)
    whose: Any = {
        "transactional_id": "wide",
        "producer_id": pair.producer_id,
        "producer_epoch": pair.producer_epoch,
    }
    with table.measuring(f"{WIDE} partitions added to a transaction", prober):
        topics = [AddPartitionsToTxnTopic(name="wide", partitions=list(range(WIDE)))]
        answer = wire.ask(AddPartitionsToTxnRequest(topics=topics, **whose), 3)
        assert not any(each.partition_error_code for each in answer.results_by_topic[0].results_by_partition)
    with table.measuring("it is committed, and its markers written", prober):
        assert not wire.ask(EndTxnRequest(committed=True, **whose), 3).error_code
        wait_until("the markers are there", lambda: not wire.ask(asked, 2).error_code)


def expiry(table: Table) -> None:
    """Transactional ids, and what a partition knows of producers."""
    with folder() as path:
        asyncio.run(fill(path / "data", ids))
        settings = [
            "transactional.id.expiration.ms=1",
            "transaction.remove.expired.transaction.cleanup.interval.ms=15000",
            "producer.id.expiration.ms=1",
            "producer.id.expiration.check.interval.ms=25000",
        ]
        node = Node(path / "data", *settings)
        try:
            node.wait_ready()
            wire = node.wire()
            listed = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
            asked = DescribeProducersRequest(topics=[TopicRequest(name=JOURNALLED, partition_indexes=[0])])
            with probing(node.address, node.steps) as prober:
                assert wire.ask(listed, 0).transaction_states
                with table.measuring(f"{IDS} transactional ids expired", prober):
                    wait_until("ids expired", lambda: not wire.ask(listed, 0).transaction_states)
                with table.measuring(f"{IDS} producers of a partition expired", prober):
                    wait_until("gone", lambda: not wire.ask(asked, 0).topics[0].partitions[0].active_producers)
        finally:
            node.end()
