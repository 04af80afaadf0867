"""The requests that nodes are asked for a comparison, each built by one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from fencepost.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import NO_PRODUCER, ProducerId, ProducerIdAndEpoch

Partitions = Mapping[str, Sequence[int]]
Topic = TypeVar("Topic")


def init(
    name: str | None,
    pair: ProducerIdAndEpoch = NO_PRODUCER,
    timeout_ms: int = 60_000,
    two_phase: bool = False,
    keep: bool = False,
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        enable2_pc=two_phase,
        keep_prepared_txn=keep,
    )


def _topics(partitions: Partitions) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=topic, partitions=list(indexes)) for topic, indexes in partitions.items()]


def add(name: str, pair: ProducerIdAndEpoch, partitions: Partitions) -> AddPartitionsToTxnRequest:
    """v0-3, as producers ask."""
    return AddPartitionsToTxnRequest(
        transactional_id=name,
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        topics=_topics(partitions),
    )


def one(name: str, pair: ProducerIdAndEpoch, partitions: Partitions, verify: bool) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        verify_only=verify,
        topics=_topics(partitions),
    )


def batched(*transactions: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnRequest:
    """v4 and v5, as brokers ask."""
    return AddPartitionsToTxnRequest(transactions=list(transactions))


def add_offsets(name: str, pair: ProducerIdAndEpoch, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, group_id=group
    )


def end(name: str, pair: ProducerIdAndEpoch, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name, producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, committed=commit
    )


def txn_commit(
    name: str,
    pair: ProducerIdAndEpoch,
    group: str,
    to_commit: Mapping[str, Mapping[int, int]],
    metadata: str | None = "",
    member: tuple[str, int, str | None] = ("", -1, None),
) -> TxnOffsetCommitRequest:
    """`to_commit`: topic -> partition -> offset; `member`: its id, generation and instance."""
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        generation_id=member[1],
        member_id=member[0],
        group_instance_id=member[2],
        topics=_committed(TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition, to_commit, metadata),
    )


def commit(
    group: str,
    to_commit: Mapping[str, Mapping[int, int]],
    metadata: str | None = "",
    member: tuple[str, int, str | None] = ("", -1, None),
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member[1],
        member_id=member[0],
        group_instance_id=member[2],
        topics=_committed(OffsetCommitRequestTopic, OffsetCommitRequestPartition, to_commit, metadata),
    )


def _committed(
    topic: Callable[..., Topic],
    partition: Callable[..., Any],
    to_commit: Mapping[str, Mapping[int, int]],
    metadata: str | None,
) -> list[Topic]:
    """Offsets in the classes of one of the two requests that commit some."""
    return [
        topic(
            name=name,
            partitions=[
                partition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
                for index, offset in offsets.items()
            ],
        )
        for name, offsets in to_commit.items()
    ]


def fetch(groups: Sequence[str], wanted: Partitions | None, stable: bool, version: int) -> OffsetFetchRequest:
    """OffsetFetch in the shape of its version; below v8 of the first group."""
    if version < 8:
        old = None
        if wanted is not None:
            old = [OffsetFetchRequestTopic(name=topic, partition_indexes=list(at)) for topic, at in wanted.items()]
        return OffsetFetchRequest(group_id=groups[0], topics=old, require_stable=stable)
    topics = None
    if wanted is not None:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=list(at)) for topic, at in wanted.items()]
    asked = [OffsetFetchRequestGroup(group_id=group, topics=topics) for group in groups]
    return OffsetFetchRequest(groups=asked, require_stable=stable)


def produce(name: str | None, pair: ProducerIdAndEpoch, topic: str, partition: int, sequence: int) -> ProduceRequest:
    """One record; the batch has the real producer id put in by `Twins`, so `records` is made there."""
    return produce_records(name, topic, partition, Written(pair, sequence))


def produce_records(name: str | None, topic: str, partition: int, records: Any) -> ProduceRequest:
    """`records`: the bytes of the batches, or what they are made of when they are sent."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])
    return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5000, topic_data=[data])


class Written:
    """A batch of one transactional record whose producer id is not known yet."""

    def __init__(self, pair: ProducerIdAndEpoch, sequence: int, time: int = 1_700_000_000_000) -> None:
        self.pair, self.sequence, self._time = pair, sequence, time

    def batch(self, producer_id: int) -> bytes:
        return encode_batch(
            [(self._time, None, b"x", ())],
            producer_id=ProducerId(producer_id),
            producer_epoch=self.pair.producer_epoch,
            base_sequence=self.sequence,
            transactional=True,
        )

    def __repr__(self) -> str:
        return f"a record of {tuple(self.pair)} sequence {self.sequence}"


def create_topics(topics: Mapping[str, int], **settings: str) -> CreateTopicsRequest:
    """`topics`: name -> number of partitions; `settings`: of each topic, with underscores for the dots."""
    configs = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in settings.items()]
    wanted = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=configs)
        for name, count in topics.items()
    ]
    return CreateTopicsRequest(topics=wanted, timeout_ms=30_000)


def listing(
    states: Sequence[str] = (), producers: Sequence[int] = (), duration: int = -1, pattern: str | None = None
) -> ListTransactionsRequest:
    return ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producers),
        duration_filter=duration,
        transactional_id_pattern=pattern,
    )
