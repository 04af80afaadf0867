"""Clients that ask anything about a few transactional ids, groups and partitions, without waiting for answers.

They follow no protocol: much of what they ask is refused, and no promise is made to them.  What they are for is what is
watched meanwhile: that no answer, a refusal included, tells of what a power loss could take back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from fencepost.client.connection import Connection
from fencepost.client.errors import ClientError
from fencepost.client.opening import open_connection
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FetchRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.describe_producers import TopicRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.join_group import JoinGroupRequestProtocol
from fencepost.protocol.messages.leave_group import MemberIdentity
from fencepost.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from fencepost.protocol.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fencepost.protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.messages.sync_group import SyncGroupRequestAssignment
from fencepost.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from fencepost.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, ProducerId
from fencepost.runtime import Runtime
from fencepost.simulation.waiting import outcomes_of

TOPIC: Final = "anything"
PARTITIONS: Final = 2
_IDS: Final = ("any-id-0", "any-id-1")
_GROUPS: Final = ("any-group-0", "any-group-1")
_STATIC: Final = "any-instance"
#: From the next version on topics have ids.
_NEWEST_BY_NAME: Final[Mapping[type, int]] = {
    ProduceRequest: 12,
    FetchRequest: 12,
    OffsetCommitRequest: 9,
    OffsetFetchRequest: 9,
    TxnOffsetCommitRequest: 5,
}
#: Requests that are sent at once, before anything is waited for.
_PIPELINED: Final = 6


class Asker:
    """One client.  It remembers what it was last told of each id and group, so that some requests are taken."""

    def __init__(self, runtime: Runtime, host: str, port: int) -> None:
        self._runtime = runtime
        self._random: random.Random = runtime.random
        self._host, self._port = host, port
        self._producers: dict[str | None, tuple[int, int]] = {}
        self._members: dict[str, tuple[str, int]] = {}
        self._sequences: dict[tuple[int, int, int], int] = {}
        self._offsets: dict[int, int] = {}
        """Of each partition, an offset near its end."""

    async def ask(self, stop: asyncio.Event) -> None:
        """Ask until told to stop.  A lost connection is made anew."""
        connection: Connection | None = None
        while not stop.is_set():
            try:
                if connection is None or not connection.is_open:
                    connection = await open_connection(self._runtime.network, self._host, self._port, "anybody", 2000)
                await self._burst(connection)
            except (OSError, ClientError, TimeoutError):
                await asyncio.sleep(0.02)
        if connection is not None:
            connection.close()

    async def _burst(self, connection: Connection) -> None:
        asked = []
        for _ in range(self._random.randint(1, _PIPELINED)):
            request = self._random.choice(REQUESTS)(self)
            low, high = request.__schema__.versions
            served = connection.ranges[request.__schema__.api]
            version = self._random.randint(max(low, served[0]), min(high, served[1]))
            version = min(version, _NEWEST_BY_NAME.get(type(request), version))
            asked.append((request, connection.request(request, version)))
        answers = await outcomes_of(*(answer for _, answer in asked))
        for (request, _), answer in zip(asked, answers, strict=True):
            if not isinstance(answer, BaseException):
                self._hear(request, answer)
        await asyncio.sleep(self._random.uniform(0, 0.01))

    def _hear(self, request: Any, answer: Any) -> None:
        if isinstance(request, InitProducerIdRequest | EndTxnRequest) and not answer.error_code:
            if answer.producer_id >= 0:
                self._producers[request.transactional_id] = answer.producer_id, answer.producer_epoch
        elif isinstance(request, JoinGroupRequest) and answer.member_id:
            self._members[request.group_id] = answer.member_id, answer.generation_id
        elif isinstance(request, ProduceRequest):
            for written in answer.responses[0].partition_responses:
                if not written.error_code:
                    self._offsets[written.index] = written.base_offset

    # What it asks

    def _id(self) -> str:
        return self._random.choice(_IDS)

    def _group(self) -> str:
        return self._random.choice(_GROUPS)

    def _partition(self) -> int:
        return self._random.randrange(PARTITIONS)

    def _producer(self, name: str | None) -> tuple[int, int]:
        """A producer id and epoch for this name: mostly the newest that it knows of, sometimes the one before."""
        producer_id, epoch = self._producers.get(name, (0, 0))
        return producer_id, max(epoch - (self._random.random() < 0.1), 0)

    def init_producer_id(self) -> InitProducerIdRequest:
        name = self._random.choice((*_IDS, None))
        producer = self._producer(name) if self._random.random() < 0.5 else (-1, -1)
        return InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=500, producer_id=producer[0], producer_epoch=producer[1]
        )

    def add_partitions(self) -> AddPartitionsToTxnRequest:
        name = self._id()
        producer_id, epoch = self._producer(name)
        topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[self._partition()])]
        added = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=self._random.random() < 0.3,
            topics=topics,
        )
        return AddPartitionsToTxnRequest(
            transactions=[added], transactional_id=name, producer_id=producer_id, producer_epoch=epoch, topics=topics
        )

    def add_offsets(self) -> AddOffsetsToTxnRequest:
        name = self._id()
        producer_id, epoch = self._producer(name)
        return AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=self._group()
        )

    def end(self) -> EndTxnRequest:
        name = self._id()
        producer_id, epoch = self._producer(name)
        return EndTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=self._random.random() < 0.5
        )

    def produce(self) -> ProduceRequest:
        """A request to write a batch of a known producer or of none: a new one, one again, or one after a gap."""
        name = self._random.choice((*_IDS, None, None))
        index, value = self._partition(), [(0, None, b"anything", ())]
        if name is None and self._random.random() < 0.5:
            batch = encode_batch(value)
        else:
            producer_id, epoch = self._producer(name)
            place = producer_id, epoch, index
            sequence = self._sequences.get(place, 0)
            dice = self._random.random()
            if dice < 0.7:
                self._sequences[place] = sequence + 1
            else:
                sequence = max(sequence - 1, 0) if dice < 0.8 else sequence + 5 if dice < 0.9 else 0
            batch = encode_batch(
                value,
                producer_id=ProducerId(producer_id),
                producer_epoch=Epoch(epoch),
                base_sequence=sequence,
                transactional=name is not None,
            )
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=index, records=batch)])
        return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1000, topic_data=[data])

    def fetch(self) -> FetchRequest:
        """A request to read from near the end, where what it might be shown is not durable yet."""
        asked = [
            FetchPartition(partition=n, fetch_offset=self._offsets.get(n, 0), partition_max_bytes=1 << 20)
            for n in range(PARTITIONS)
        ]
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=self._random.randrange(2),
            topics=[FetchTopic(topic=TOPIC, partitions=asked)],
        )

    def epoch_ends(self) -> OffsetForLeaderEpochRequest:
        epochs = [self._random.randrange(2) for _ in range(PARTITIONS)]
        asked = [OffsetForLeaderPartition(partition=n, leader_epoch=epoch) for n, epoch in enumerate(epochs)]
        return OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=asked)])

    def commit_in_transaction(self) -> TxnOffsetCommitRequest:
        name = self._id()
        producer_id, epoch = self._producer(name)
        offset = TxnOffsetCommitRequestPartition(
            partition_index=self._partition(), committed_offset=self._random.randrange(100)
        )
        return TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=self._group(),
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[offset])],
        )

    def commit(self) -> OffsetCommitRequest:
        group = self._group()
        member, generation = self._members.get(group, ("", -1)) if self._random.random() < 0.5 else ("", -1)
        offset = OffsetCommitRequestPartition(
            partition_index=self._partition(), committed_offset=self._random.randrange(100)
        )
        return OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[offset])],
        )

    def fetch_offsets(self) -> OffsetFetchRequest:
        indexes, group = list(range(PARTITIONS)), self._group()
        asked = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=indexes)]
        )
        topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=indexes)
        stable = self._random.random() < 0.5
        return OffsetFetchRequest(group_id=group, topics=[topic], groups=[asked], require_stable=stable)

    def delete_offsets(self) -> OffsetDeleteRequest:
        partition = OffsetDeleteRequestPartition(partition_index=self._partition())
        return OffsetDeleteRequest(
            group_id=self._group(), topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=[partition])]
        )

    def join(self) -> JoinGroupRequest:
        group = self._group()
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=self._random.choice((50, 6000)),
            rebalance_timeout_ms=50,
            member_id=self._members.get(group, ("", -1))[0],
            group_instance_id=self._random.choice((None, _STATIC)),
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    def sync(self) -> SyncGroupRequest:
        group = self._group()
        member, generation = self._members.get(group, ("", -1))
        given = [SyncGroupRequestAssignment(member_id=member, assignment=b"all")]
        return SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=given,
        )

    def heartbeat(self) -> HeartbeatRequest:
        group = self._group()
        member, generation = self._members.get(group, ("", -1))
        return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)

    def leave(self) -> LeaveGroupRequest:
        group = self._group()
        member = self._members.get(group, ("", -1))[0]
        return LeaveGroupRequest(group_id=group, member_id=member, members=[MemberIdentity(member_id=member)])

    def describe_groups(self) -> DescribeGroupsRequest:
        return DescribeGroupsRequest(groups=[self._group()])

    def delete_groups(self) -> DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=[self._group(), self._group()])

    def list_groups(self) -> ListGroupsRequest:
        return ListGroupsRequest()

    def delete_records(self) -> DeleteRecordsRequest:
        partition = DeleteRecordsPartition(partition_index=self._partition(), offset=self._random.choice((-1, 0, 3)))
        return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=[partition])], timeout_ms=1000)

    def describe_log_dirs(self) -> DescribeLogDirsRequest:
        return DescribeLogDirsRequest(topics=None)

    def write_markers(self) -> WriteTxnMarkersRequest:
        producer_id, epoch = self._producer(self._id())
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[self._partition()])],
            coordinator_epoch=0,
        )
        return WriteTxnMarkersRequest(markers=[marker])

    def describe_producers(self) -> DescribeProducersRequest:
        return DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=list(range(PARTITIONS)))])

    def describe_transactions(self) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=list(_IDS))

    def list_transactions(self) -> ListTransactionsRequest:
        return ListTransactionsRequest(state_filters=[], producer_id_filters=[])


REQUESTS: Final[tuple[Callable[[Asker], Any], ...]] = (
    Asker.init_producer_id,
    Asker.add_partitions,
    Asker.add_offsets,
    Asker.end,
    Asker.produce,
    Asker.fetch,
    Asker.epoch_ends,
    Asker.commit_in_transaction,
    Asker.commit,
    Asker.fetch_offsets,
    Asker.delete_offsets,
    Asker.join,
    Asker.sync,
    Asker.heartbeat,
    Asker.leave,
    Asker.describe_groups,
    Asker.delete_groups,
    Asker.list_groups,
    Asker.delete_records,
    Asker.describe_log_dirs,
    Asker.write_markers,
    Asker.describe_producers,
    Asker.describe_transactions,
    Asker.list_transactions,
)
