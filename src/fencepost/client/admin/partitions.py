"""Requests to the leaders of partitions: offsets, where the records begin, and who writes there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from fencepost.client.admin.asking import ItemResult, Question, ask
from fencepost.client.admin.routes import Leaders
from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.positions import ListedOffset, isolation_of
from fencepost.protocol.messages import DeleteRecordsRequest, DescribeProducersRequest, ListOffsetsRequest
from fencepost.protocol.messages import list_offsets as named
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.describe_producers import TopicRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.types import Epoch, Isolation, ProducerId, TopicPartition

_ISOLATION_SINCE: Final = 2

Part = TypeVar("Part")


class OffsetSpec(IntEnum):
    """Offsets that have a name; on the wire they stand in the place of a time."""

    LATEST = named.LATEST
    """The offset behind the last record (the high watermark); with read_committed, the last stable offset."""
    EARLIEST = named.EARLIEST
    """The offset of the first record that is still there."""
    MAX_TIMESTAMP = named.MAX_TIMESTAMP
    """The offset of the record with the largest timestamp."""
    EARLIEST_LOCAL = named.EARLIEST_LOCAL
    """The offset of the first record that is not in remote storage only."""
    LATEST_TIERED = named.LATEST_TIERED
    """The offset of the last record that is in remote storage."""


#: The version that knows it; the others every broker knows.
_SINCE: Final = {OffsetSpec.MAX_TIMESTAMP: 7, OffsetSpec.EARLIEST_LOCAL: 8, OffsetSpec.LATEST_TIERED: 9}


class ProducerState(NamedTuple):
    """A producer, as the leader of a partition knows it.  A number that it does not know is -1.

    `last_timestamp`: of its last batch, in milliseconds since 1970.  `transaction_start_offset`: where the transaction
    begins that it has open here, None if it has none.
    """

    producer_id: ProducerId
    producer_epoch: Epoch
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int | None


async def list_offsets(
    cluster: Cluster, specs: Mapping[TopicPartition, int], isolation_level: str, deadline: Deadline
) -> dict[TopicPartition, ListedOffset | None]:
    """Offsets by name or by time (the first record that is not older), None where there is no such record."""
    isolation = isolation_of(isolation_level)

    def wanted(at: TopicPartition) -> ListOffsetsPartition:
        return ListOffsetsPartition(partition_index=at.partition, timestamp=specs[at])

    def request(asked: Sequence[TopicPartition]) -> ListOffsetsRequest:
        topics = [ListOffsetsTopic(name=name, partitions=found) for name, found in _by_topic(asked, wanted)]
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=cluster.request_timeout_ms
        )

    def read(answer: Any, _: object) -> Iterator[ItemResult[TopicPartition, ListedOffset | None]]:
        for at, part in _parts(answer):
            listed = ListedOffset(part.offset, part.timestamp, part.leader_epoch)
            yield ItemResult(at, part.error_code, None, None if part.offset < 0 else listed)

    least = _ISOLATION_SINCE if isolation is Isolation.READ_COMMITTED else 0
    question = Question(
        request=request,
        read=read,
        refused=lambda at: f"no offset of {at} is told",
        least=max((least, *(_SINCE.get(OffsetSpec(spec), 0) for spec in specs.values() if spec < 0))),
    )
    return await ask(cluster, specs, Leaders(cluster), question, deadline)


async def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Delete the records before these offsets (-1: the high watermark); by partition, the first offset that is left."""

    def wanted(at: TopicPartition) -> DeleteRecordsPartition:
        return DeleteRecordsPartition(partition_index=at.partition, offset=offsets[at])

    def request(asked: Sequence[TopicPartition]) -> DeleteRecordsRequest:
        topics = [DeleteRecordsTopic(name=name, partitions=found) for name, found in _by_topic(asked, wanted)]
        return DeleteRecordsRequest(topics=topics, timeout_ms=cluster.request_timeout_ms)

    question = Question(
        request=request,
        read=lambda answer, _: (
            ItemResult(at, part.error_code, None, part.low_watermark) for at, part in _parts(answer)
        ),
        refused=lambda at: f"no records of {at} were deleted",
    )
    return await ask(cluster, offsets, Leaders(cluster), question, deadline)


async def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, list[ProducerState]]:
    """The producers that the leader of each partition knows.  Raises as `ask` does."""

    def request(asked: Sequence[TopicPartition]) -> DescribeProducersRequest:
        topics = [
            TopicRequest(name=name, partition_indexes=found)
            for name, found in _by_topic(asked, lambda at: at.partition)
        ]
        return DescribeProducersRequest(topics=topics)

    def read(answer: Any, _: object) -> Iterator[ItemResult[TopicPartition, list[ProducerState]]]:
        for at, part in _parts(answer):
            yield ItemResult(
                at, part.error_code, part.error_message, [_state(found) for found in part.active_producers]
            )

    question = Question(request=request, read=read, refused=lambda at: f"the producers of {at} are not told")
    return await ask(cluster, partitions, Leaders(cluster), question, deadline)


def _state(found: Any) -> ProducerState:
    start = found.current_txn_start_offset
    return ProducerState(
        producer_id=ProducerId(found.producer_id),
        producer_epoch=Epoch(found.producer_epoch),
        last_sequence=found.last_sequence,
        last_timestamp=found.last_timestamp,
        coordinator_epoch=found.coordinator_epoch,
        transaction_start_offset=None if start < 0 else start,
    )


def _by_topic(
    partitions: Iterable[TopicPartition], part: Callable[[TopicPartition], Part]
) -> Iterable[tuple[str, list[Part]]]:
    by_topic: dict[str, list[Part]] = {}
    for at in partitions:
        by_topic.setdefault(at.topic, []).append(part(at))
    return by_topic.items()


def _parts(answer: Any) -> Iterator[tuple[TopicPartition, Any]]:
    for topic in answer.topics:
        for part in topic.partitions:
            yield TopicPartition(topic.name, part.partition_index), part
