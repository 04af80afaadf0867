"""Requests that the leader of a partition answers, in a form that two nodes can share."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from tests.compare.leader.batches import Batch
from tests.compare.nodes.comparison import Plain
from tests.compare.nodes.leader import TRANSACTION_TIMEOUT_MS, Leader, plain
from tests.compare.nodes.plain import NOW

from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    DeleteRecordsRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from fencepost.protocol.types import ZERO_UUID

HERE = "here"
"""The topic of the walk, whatever its name."""
_UNKNOWN_TOPIC_ID = uuid.UUID(int=0xFE)


@dataclass(frozen=True)
class Step:
    """One request."""

    version: int

    def message(self, node: Leader) -> Any:
        raise NotImplementedError

    def take(self, node: Leader) -> Plain:
        answer = node.ask(self.message(node), self.version)
        return plain(answer, node)


def _name(topic: str, node: Leader) -> str:
    return node.topic if topic == HERE else topic


def _by(topic: str, node: Leader, version: int, ids_since: int) -> dict[str, Any]:
    """A topic by its name or its id."""
    name = _name(topic, node)
    if version < ids_since:
        return {"topic": name}
    return {"topic_id": node.topic_ids.get(name, _UNKNOWN_TOPIC_ID)}


@dataclass(frozen=True)
class Produce(Step):
    """Batches into partitions of the walk's topic, or of others: (partition, batch[, topic])."""

    parts: tuple[tuple[int, Batch | None, str], ...]
    transactional_id: str | None = None
    acks: int = -1

    def message(self, node: Leader) -> Any:
        topics: dict[str, list[PartitionProduceData]] = {}
        for index, batch, topic in self.parts:
            records = None if batch is None else batch.encode(node)
            topics.setdefault(topic, []).append(PartitionProduceData(index=index, records=records))
        data = []
        for topic, partitions in topics.items():
            by = _by(topic, node, self.version, 13)
            data.append(
                TopicProduceData(
                    name=by.get("topic", ""), topic_id=by.get("topic_id", ZERO_UUID), partition_data=partitions
                )
            )
        name = self.transactional_id
        return ProduceRequest(
            transactional_id=f"{node.topic}-{name}" if name else name, acks=self.acks, timeout_ms=5000, topic_data=data
        )

    def take(self, node: Leader) -> Plain:
        if self.acks:
            return super().take(node)
        return node.tell(self.message(node), self.version)


def write(version: int, batch: Batch, partition: int = 0, *, of: str | None = None, acks: int = -1) -> Produce:
    """One batch into one partition."""
    return Produce(version, ((partition, batch, HERE),), of, acks)


@dataclass(frozen=True)
class Marker:
    """What one marker says."""

    producer: int
    epoch: int
    commit: bool
    partitions: tuple[tuple[str, tuple[int, ...]], ...] = ((HERE, (0,)),)
    coordinator_epoch: int = 0
    transaction_version: int = 0


@dataclass(frozen=True)
class Mark(Step):
    """WriteTxnMarkers, as an admin sends it."""

    markers: tuple[Marker, ...]

    def message(self, node: Leader) -> Any:
        return WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=node.producer_id(marker.producer),
                    producer_epoch=marker.epoch,
                    transaction_result=marker.commit,
                    topics=[
                        WritableTxnMarkerTopic(name=_name(topic, node), partition_indexes=list(indexes))
                        for topic, indexes in marker.partitions
                    ],
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                )
                for marker in self.markers
            ]
        )


@dataclass(frozen=True)
class Fetch(Step):
    """Fetch partitions of the walk's topic: (partition, offset, most bytes)."""

    parts: tuple[tuple[int, int, int], ...]
    isolation: int = 0
    max_bytes: int = 1 << 24
    session: tuple[int, int] = (0, -1)
    leader_epoch: int = -1
    last_epoch: int = -1
    topic: str = HERE

    def message(self, node: Leader) -> Any:
        asked = [
            FetchPartition(
                partition=index,
                current_leader_epoch=self.leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=self.last_epoch,
                partition_max_bytes=most,
            )
            for index, offset, most in self.parts
        ]
        topics = [FetchTopic(partitions=asked, **_by(self.topic, node, self.version, 13))] if asked else []
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation,
            session_id=self.session[0],
            session_epoch=self.session[1],
            topics=topics,
        )


@dataclass(frozen=True)
class Find(Step):
    """ListOffsets: (partition, timestamp)."""

    parts: tuple[tuple[int, int], ...]
    isolation: int = 0
    leader_epoch: int = -1
    replica: int = -1
    topic: str = HERE

    def message(self, node: Leader) -> Any:
        asked = [
            ListOffsetsPartition(
                partition_index=index,
                current_leader_epoch=self.leader_epoch,
                timestamp=NOW + timestamp if timestamp >= 0 else timestamp,
            )
            for index, timestamp in self.parts
        ]
        topic = ListOffsetsTopic(name=_name(self.topic, node), partitions=asked)
        return ListOffsetsRequest(replica_id=self.replica, isolation_level=self.isolation, topics=[topic])


@dataclass(frozen=True)
class EndOfEpoch(Step):
    """OffsetForLeaderEpoch: (partition, current leader epoch, leader epoch)."""

    parts: tuple[tuple[int, int, int], ...]
    topic: str = HERE

    def message(self, node: Leader) -> Any:
        asked = [
            OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
            for index, current, epoch in self.parts
        ]
        topic = OffsetForLeaderTopic(topic=_name(self.topic, node), partitions=asked)
        return OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])


@dataclass(frozen=True)
class Delete(Step):
    """DeleteRecords: (partition, offset)."""

    parts: tuple[tuple[int, int], ...]
    topic: str = HERE

    def message(self, node: Leader) -> Any:
        asked = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in self.parts]
        topic = DeleteRecordsTopic(name=_name(self.topic, node), partitions=asked)
        return DeleteRecordsRequest(topics=[topic], timeout_ms=5000)


@dataclass(frozen=True)
class Of(Step):
    """A request of a transactional id, with a pair."""

    of: str
    producer: int
    epoch: int

    def name(self, node: Leader) -> str:
        return f"{node.topic}-{self.of}"


@dataclass(frozen=True)
class Register(Of):
    """AddPartitionsToTxn."""

    partitions: tuple[int, ...] = field(default=(0,))

    def message(self, node: Leader) -> Any:
        topics = [AddPartitionsToTxnTopic(name=node.topic, partitions=list(self.partitions))]
        who: dict[str, Any] = {"transactional_id": self.name(node), "producer_id": node.producer_id(self.producer)}
        if self.version < 4:
            return AddPartitionsToTxnRequest(producer_epoch=self.epoch, topics=topics, **who)
        one = AddPartitionsToTxnTransaction(producer_epoch=self.epoch, topics=topics, **who)
        return AddPartitionsToTxnRequest(transactions=[one])


@dataclass(frozen=True)
class End(Of):
    """EndTxn."""

    commit: bool = True

    def message(self, node: Leader) -> Any:
        return EndTxnRequest(
            transactional_id=self.name(node),
            producer_id=node.producer_id(self.producer),
            producer_epoch=self.epoch,
            committed=self.commit,
        )


@dataclass(frozen=True)
class Renew(Of):
    """InitProducerId."""

    def message(self, node: Leader) -> Any:
        return InitProducerIdRequest(
            transactional_id=self.name(node) if self.of else None,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            producer_id=node.producer_id(self.producer),
            producer_epoch=self.epoch,
        )
