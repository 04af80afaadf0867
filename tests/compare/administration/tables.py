"""Situations of an administrator, one request each: made, grown, deleted, described, changed, in every version."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

from tests.broker.test_access_lists import EVERYTHING, creation
from tests.compare.administration.elections import elections
from tests.compare.administration.quotas import quotas
from tests.compare.administration.walk import (
    BROKER,
    TOPIC,
    UNKNOWN,
    Administered,
    Case,
    change,
    create,
    delete,
    describe,
    grow,
    known,
    replace,
    topic,
)

from fencepost.protocol.messages import (
    AlterConfigsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DeleteRecordsRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    IncrementalAlterConfigsRequest,
    ListOffsetsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.delete_acls import DeleteAclsFilter
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.describe_topic_partitions import Cursor, TopicRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsTopics as Moved
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic
from fencepost.protocol.types import ZERO_UUID

HERE, THERE = "administration.here", "administration-there"
"""Two topics that are there, of three partitions and of one."""
COLLIDING = "administration_here"
_NAMES = ("", ".", "..", "a b", "a/b", "ä", "x" * 249, "x" * 250, COLLIDING, HERE, "__consumer_offsets", "no.such")
_VALUES = {
    "cleanup.policy": ("delete", "compact", "compact,delete", "", "keep", "delete,delete", " compact"),
    "compression.type": ("zstd", "producer", "none", "ZSTD"),
    "retention.ms": ("-1", "-2", "0", "1000", "x", "", " 7 ", "1.5", "9223372036854775807", "9223372036854775808"),
    "segment.bytes": ("1048576", "13", "14", "1024", "-1", "2147483647", "2147483648"),
    "max.message.bytes": ("0", "-1", "1000", "+5"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime"),
    "min.cleanable.dirty.ratio": ("0", "1", "0.5", "1.1", "-0.1", "x"),
    "min.insync.replicas": ("1", "0", "2"),
    "preallocate": ("true", "maybe", "TRUE"),
    "unclean.leader.election.enable": ("false", "no"),
    "retention.bytes": ("-1", "-2", "100"),
    "segment.ms": ("1", "0", "-1"),
    "delete.retention.ms": ("0", "-1"),
    "index.interval.bytes": ("0", "-1", "4096"),
    "message.timestamp.before.max.ms": ("0", "-1"),
    "flush.messages": ("1", "0"),
    "file.delete.delay.ms": ("-1", "0"),
    "no.such.setting": ("1",),
}
_PLACES: tuple[list[tuple[int, list[int]]], ...] = (
    [(0, [0])], [(0, [0]), (1, [0])], [(1, [0])], [(0, [0]), (2, [0])], [(0, [9])], [(0, [])], [(0, [0, 0])],
    [(0, [0, 1])], [(0, [0]), (0, [0])], [(-1, [0])],
)  # fmt: skip
_MORE_PLACES: tuple[list[list[int]], ...] = ([], [[0]], [[0], [0]], [[9]], [[]], [[0, 0]], [[0, 1]])
_WRONG = ("retention.ms", "x")


class Tables:
    """Every situation; `prepare` comes first."""

    def __init__(self, nodes: Administered) -> None:
        self.nodes = nodes
        self._count = 0

    def all(self) -> Iterator[Case]:
        yield "two topics", self.prepare
        yield from self.named()
        yield from self.made()
        yield from self.grown()
        yield from self.described()
        yield from quotas(self.nodes)
        yield from elections(self.nodes, HERE, THERE)
        yield from self.found()
        yield from self.configured()
        yield from self.altered()
        yield from self.deleted()

    def prepare(self) -> None:
        self.nodes.ask(create(topic(HERE, 3), topic(THERE)), 7)
        for name in (HERE, THERE):
            self.nodes.settled(name)

    def _new(self) -> str:
        self._count += 1
        return f"administration-{self._count}"

    def _make(self, version: int, wanted: CreatableTopic, only: bool = False) -> None:
        self.nodes.ask(create(wanted, only=only), version)
        if not only and wanted.name and wanted.name not in (".", ".."):
            self.nodes.settled(wanted.name)

    # What topics may be called

    def named(self) -> Iterator[Case]:
        for name in _NAMES:
            shown = name[:12]
            for version in range(14):
                for creating in (False, True) if version == 4 and name not in ("x" * 249, "no.such") else (False,):
                    wanted = [MetadataRequestTopic(name=name)]
                    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=creating)
                    if version >= 4:
                        yield f"metadata of {shown!r}", partial(self.nodes.ask, request, version)
            if name not in ("x" * 249, "no.such", "__consumer_offsets"):
                for only in (True, False):
                    yield (
                        f"create {shown!r}",
                        partial(self._make, 7, topic(name), only),
                    )
            yield f"records of {shown!r}", partial(self._delete_records, name, 0, 0)
            for kind in (TOPIC, BROKER):
                yield (
                    f"settings of {kind} {shown!r}",
                    partial(self.nodes.ask, describe(kind, name, []), 4),
                )
        for version in range(1, 14):
            yield "metadata of none", partial(self.nodes.ask, MetadataRequest(topics=[]), version, _without_others)
        yield "metadata of all", partial(self.nodes.ask, MetadataRequest(topics=None), 13, _without_others)
        for version in (10, 11, 12, 13):
            for one in (known(0), UNKNOWN, ZERO_UUID):
                for called in (None, HERE, THERE):
                    both = MetadataRequest(topics=[MetadataRequestTopic(name=called, topic_id=one)])
                    yield f"metadata of {called} and {one}", partial(self.nodes.ask, both, version)
        twice = MetadataRequest(topics=[MetadataRequestTopic(name=HERE)] * 2, allow_auto_topic_creation=False)
        yield "metadata, twice", partial(self.nodes.ask, twice, 12)

    def _delete_records(self, name: str, partition: int, offset: int, version: int = 2) -> None:
        wanted = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
        topics = [DeleteRecordsTopic(name=name, partitions=wanted)]
        self.nodes.ask(DeleteRecordsRequest(topics=topics, timeout_ms=5000), version)

    # Making and growing topics

    def made(self) -> Iterator[Case]:
        shapes = [
            (count, replication_factor) for count in (-2, -1, 0, 1, 3) for replication_factor in (-2, -1, 0, 1, 2)
        ]
        for version in range(2, 8):
            for count, replication_factor in shapes:
                yield (
                    f"{count} partitions, {replication_factor} replicas",
                    partial(self._make, version, topic(self._new(), count, replication_factor)),
                )
        for shape in _PLACES:
            for count, replication_factor in ((-1, -1), (1, -1), (-1, 1), (1, 1), (len(shape), 1)):
                yield (
                    f"{count} partitions, {replication_factor} replicas at {shape}",
                    partial(self._make, 7, topic(self._new(), count, replication_factor, shape)),
                )
        for name, values in _VALUES.items():
            for value in (*values, None):
                yield (
                    f"with {name}={value}",
                    partial(self._make, 7, topic(self._new(), settings=[(name, value)])),
                )
        doubled = [("retention.ms", "1"), ("retention.ms", "2")]
        yield "a setting twice", partial(self._make, 7, topic(self._new(), settings=doubled))
        for version in (2, 5, 7):
            yield "twice", partial(self.nodes.ask, create(topic("twice"), topic("twice"), topic(HERE)), version)
            yield "none", partial(self.nodes.ask, create(), version)
            colliding = create(topic("col.liding"), topic("col_liding"), only=True)
            yield "two that collide", partial(self.nodes.ask, colliding, version)

    def grown(self) -> Iterator[Case]:
        for version in range(4):
            for name in (HERE, "no.such", "", "a b", "__consumer_offsets"):
                for count in (-1, 0, 2, 3, 4) if name == HERE else (60,):
                    yield (
                        f"{name!r} to {count}",
                        partial(self.nodes.ask, grow(name, count, only=True), version),
                    )
            for assigned in _MORE_PLACES:
                yield (
                    f"to 4 at {assigned}",
                    partial(self.nodes.ask, grow(HERE, 4, assigned, only=True), version),
                )
            yield "twice", partial(self.nodes.ask, grow(HERE, 4, times=2), version)
        yield "for good", self._grow_for_good

    def _grow_for_good(self) -> None:
        name = self._new()
        self._make(7, topic(name))
        self.nodes.ask(grow(name, 3, [[0], [0]]), 3)
        self.nodes.settled(name)
        self.nodes.ask(grow(name, 3), 3)
        self.nodes.ask(grow(name, 2), 3)

    # Describing

    def described(self) -> Iterator[Case]:
        for version in (0, 1, 2):
            for kind in (0, 1, 2, 3):
                for told in (False, True):
                    request = DescribeClusterRequest(include_cluster_authorized_operations=told, endpoint_type=kind)
                    yield f"cluster, endpoint {kind}", partial(self.nodes.ask, request, version)
        for version in (1, 2, 3):
            yield "access lists", partial(self.nodes.ask, DescribeAclsRequest(**EVERYTHING), version)
            for count in (0, 1, 2):
                made = CreateAclsRequest(creations=[creation(HERE)] * count)
                yield f"making {count} access lists", partial(self.nodes.ask, made, version)
                removed = DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERYTHING)] * count)
                yield f"removing by {count} filters", partial(self.nodes.ask, removed, version)
        moved: tuple[list[Moved] | None, ...] = (
            None, [], [Moved(name=HERE, partition_indexes=[0, 1])], [Moved(name=HERE, partition_indexes=[])],
            [Moved(name=HERE, partition_indexes=[9, -1])], [Moved(name="no.such", partition_indexes=[0])],
            [Moved(name="", partition_indexes=[0])], [Moved(name=HERE, partition_indexes=[0, 0])] * 2,
        )  # fmt: skip
        for number, which in enumerate(moved):
            moving = ListPartitionReassignmentsRequest(topics=which)
            yield f"what is being moved, {number}", partial(self.nodes.ask, moving, 0)
        names = ([HERE, THERE], [THERE, "no.such", HERE], ["a b", "", THERE], [HERE, HERE])
        cursors = (None, (HERE, 0), (HERE, 1), (HERE, 3), (HERE, -1), (THERE, 0), ("no.such", 0), ("", 0), ("zz", 5))
        for wanted in names:
            for limit in (-1, 0, 1, 2, 3, 2000):
                for at in cursors:
                    cursor = None if at is None else Cursor(topic_name=at[0], partition_index=at[1])
                    pages = DescribeTopicPartitionsRequest(
                        topics=[TopicRequest(name=name) for name in wanted],
                        response_partition_limit=limit,
                        cursor=cursor,
                    )
                    yield f"{wanted} from {at}, {limit} at most", partial(self.nodes.ask, pages, 0)
        for version in (2, 3, 4):
            for name, index in ((HERE, 0), (HERE, 3), (HERE, -1), ("no.such", 0), ("", 0)):
                for current in (-1, 0, 1, -2):
                    for epoch in (-1, 0, 1, -2):
                        one = OffsetForLeaderPartition(
                            partition=index, current_leader_epoch=current, leader_epoch=epoch
                        )
                        ends = OffsetForLeaderEpochRequest(
                            replica_id=-1, topics=[OffsetForLeaderTopic(topic=name, partitions=[one])]
                        )
                        yield (
                            f"epoch {epoch} of {name!r} {index} at {current}",
                            partial(self.nodes.ask, ends, version),
                        )
        for version in (0, 1, 2):
            for name, index, offset in (
                (HERE, 0, 0), (HERE, 0, -1), (HERE, 0, -2), (HERE, 0, 1), (HERE, 3, 0), (HERE, -1, 0),
                ("__consumer_offsets", 0, 0), ("no.such", 0, 0),
            ):  # fmt: skip
                yield (
                    f"records of {name} {index} before {offset}",
                    partial(self._delete_records, name, index, offset, version),
                )

    def found(self) -> Iterator[Case]:
        """Offsets of partitions that are named once, twice and three times, with isolations that nobody knows too."""
        for version in (1, 2, 7, 11):
            for isolation in (0,) if version < 2 else (0, 1, 2, -1):
                for name in (HERE, "no.such"):
                    for indexes in ([], [0], [0, 0], [0, 1, 0], [1, 9, 9, 9]):
                        for times in (1, 2):
                            wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes]
                            topics = [ListOffsetsTopic(name=name, partitions=wanted)] * times
                            request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
                            yield (
                                f"ends of {indexes} of {name!r}, {times} times, isolation {isolation}",
                                partial(self.nodes.ask, request, version),
                            )

    # Settings

    def configured(self) -> Iterator[Case]:
        for version in range(1, 5):
            for synonyms in (False, True):
                for keys in (None, [], ["retention.ms"], ["no.such.setting"], ["retention.ms", "retention.ms"]):
                    for name in (HERE, "no.such", "", "a b", "__consumer_offsets", "__transaction_state"):
                        request = describe(TOPIC, name, keys, synonyms)
                        yield (
                            f"settings of {name!r}, {keys}, synonyms {synonyms}",
                            partial(self.nodes.ask, request, version),
                        )
            for kind in (-1, 0, 1, 3, 5, 7, 99):
                request = describe(kind, HERE, [])
                yield f"settings of kind {kind}", partial(self.nodes.ask, request, version)
            for name in ("9", "-1", "x"):
                request = describe(BROKER, name, [])
                yield f"settings of broker {name!r}", partial(self.nodes.ask, request, version)

    def altered(self) -> Iterator[Case]:
        def replaced(*settings: tuple[str, str | None]) -> Case:
            return f"replaced by {settings}", partial(self._alter, 2, replace(TOPIC, THERE, *settings))

        for name, values in _VALUES.items():
            for value in (*values, None):
                yield replaced((name, value))
        # A few only: Apache Kafka takes seconds for what changes nothing.
        some = [(name, value) for name, values in _VALUES.items() for value in (values[0], None)]
        for (name, value), operation in product(some, range(-1, 5)):
            yield (
                f"operation {operation} with {name}={value}",
                partial(self._alter, 1, change(TOPIC, THERE, (name, operation, value), only=True)),
            )
        yield replaced(("retention.ms", "1"), _WRONG)
        yield replaced()
        for version in (0, 1):
            for kind, name in (
                (TOPIC, "no.such"), (TOPIC, ""), (TOPIC, "a b"), (BROKER, "9"), (BROKER, "x"), (0, HERE), (3, HERE),
                (7, HERE), (99, HERE), (TOPIC, "__consumer_offsets"),
            ):  # fmt: skip
                yield (
                    f"change {kind} {name!r}",
                    partial(self._alter, version, change(kind, name, ("retention.ms", 0, "1"), only=True)),
                )
                yield (
                    f"replace {kind} {name!r}",
                    partial(self._alter, version, replace(kind, name, ("retention.ms", "1"), only=True)),
                )
            policies = ((0, "compact"), (0, "delete"), (1, None), (2, "delete"), (3, "compact"))
            for name, (operation, policy) in product(("__consumer_offsets", "__transaction_state"), policies):
                kept = change(TOPIC, name, ("cleanup.policy", operation, policy), only=True)
                yield f"operation {operation} with {name} cleanup.policy={policy}", partial(self._alter, version, kept)
            twice = change(TOPIC, THERE, ("retention.ms", 0, "1"), times=2)
            yield "a resource twice", partial(self._alter, version, twice)
            again = replace(TOPIC, THERE, ("retention.ms", "1"), times=2)
            yield "a resource twice", partial(self._alter, version, again)
            keys = change(TOPIC, THERE, ("retention.ms", 0, "1"), ("retention.ms", 1, None))
            yield "a setting twice", partial(self._alter, version, keys)
            same = change(TOPIC, THERE, ("retention.ms", 0, "5"), ("cleanup.policy", 2, "compact"))
            yield "two settings", partial(self._alter, version, same)
            yield "nothing", partial(self._alter, version, change(TOPIC, THERE))

    def _alter(self, version: int, request: AlterConfigsRequest | IncrementalAlterConfigsRequest) -> None:
        self.nodes.ask(request, version)
        if not request.validate_only:
            self.nodes.agreed(describe(TOPIC, THERE), 4)

    # Deleting

    def deleted(self) -> Iterator[Case]:
        for version in range(1, 7):
            for names in (["no.such"], [""], ["a b"], ["__consumer_offsets"], [HERE + "x", THERE + "x"], []):
                request = delete(*names, version=version)
                yield f"delete {names}", partial(self.nodes.ask, request, version)
            yield "delete, twice", partial(self._delete_twice, version)
            yield "delete for good", partial(self._delete, version)
        for one in (UNKNOWN, ZERO_UUID):
            yield f"delete {one}", partial(self.nodes.ask, delete(version=6, ids=[one]), 6)

    def _delete_twice(self, version: int) -> None:
        name = self._new()
        self._make(7, topic(name))
        self.nodes.ask(delete(name, name, version=version), version)
        self.nodes.settled(name)

    def _delete(self, version: int) -> None:
        name = self._new()
        self._make(7, topic(name))
        self.nodes.ask(delete(name, "no.such", version=version), version)
        self.nodes.settled(name)
        self.nodes.ask(delete(name, version=version), version)


def _without_others(answer: object) -> object:
    """Of all topics only those that the tables made for themselves."""
    if isinstance(answer, dict) and "topics" in answer:
        return answer | {"topics": [one for one in answer["topics"] if one["name"] in (HERE, THERE)]}
    return answer
