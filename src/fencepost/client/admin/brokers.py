"""The brokers of a cluster, and the directories that their logs are in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fencepost.client.admin.asking import ItemResult, Question, ask_each_broker, known_nodes
from fencepost.client.cluster import Cluster, Deadline
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeLogDirsRequest
from fencepost.protocol.types import TopicPartition


class BrokerDescription(NamedTuple):
    """A broker, and where clients reach it.  `rack` is None if it has none."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class ClusterDescription(NamedTuple):
    """A cluster.  `controller` is None while there is none.

    Brokers of an Apache Kafka with KRaft name one of themselves there, which hands on what is for the controller.
    """

    cluster_id: str
    controller: int | None
    brokers: list[BrokerDescription]


class ReplicaInfo(NamedTuple):
    """A replica in a directory.  `size`: bytes.  `offset_lag`: how many offsets it is behind its partition.

    `is_future`: it is being moved here from another directory of the broker.
    """

    size: int
    offset_lag: int
    is_future: bool


class LogDirectory(NamedTuple):
    """A directory of a broker.  `error` is None unless it cannot be used.

    `total_bytes`, `usable_bytes`: of the volume that it is on, None if the broker does not say.
    """

    path: str
    error: ErrorCode | None
    replicas: dict[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None


async def describe_cluster(cluster: Cluster, deadline: Deadline) -> ClusterDescription:
    """The cluster, as any of the brokers knows it."""
    answer = await known_nodes(cluster, deadline)
    brokers = sorted(BrokerDescription(found.node_id, found.host, found.port, found.rack) for found in answer.brokers)
    controller = answer.controller_id
    return ClusterDescription(answer.cluster_id or "", None if controller < 0 else controller, brokers)


async def describe_log_dirs(
    cluster: Cluster, brokers: Iterable[int] | None, deadline: Deadline
) -> dict[int, list[LogDirectory]]:
    """The log directories of these brokers, or of all, by broker."""

    def read(answer: Any, asked: Sequence[int]) -> Iterator[ItemResult[int, list[LogDirectory]]]:
        yield ItemResult(asked[0], answer.error_code, None, sorted(map(_directory, answer.results), key=_path))

    question = Question(
        request=lambda _: DescribeLogDirsRequest(topics=None),
        read=read,
        refused=lambda broker: f"broker {broker} does not tell its log directories",
    )
    return await ask_each_broker(cluster, question, deadline, brokers)


def _directory(found: Any) -> LogDirectory:
    replicas = {
        TopicPartition(topic.name, part.partition_index): ReplicaInfo(
            part.partition_size, part.offset_lag, part.is_future_key
        )
        for topic in found.topics
        for part in topic.partitions
    }
    return LogDirectory(
        found.log_dir,
        ErrorCode(found.error_code) or None,
        dict(sorted(replicas.items())),
        None if found.total_bytes < 0 else found.total_bytes,
        None if found.usable_bytes < 0 else found.usable_bytes,
    )


def _path(directory: LogDirectory) -> str:
    return directory.path
