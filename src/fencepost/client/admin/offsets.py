"""Reads, sets and deletes the committed offsets of groups, without being a member."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from fencepost.client.admin.asking import ItemResult, Question, ask, refusal
from fencepost.client.admin.routes import Coordinators
from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.errors import BrokerError
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from fencepost.protocol.messages.find_coordinator import GROUP
from fencepost.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from fencepost.protocol.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequestTopic
from fencepost.protocol.types import TopicPartition

#: Newest versions that name topics, and one group.
_FETCH: Final = 7
_COMMIT: Final = 9
_REQUIRE_STABLE_SINCE: Final = 7
_NO_MEMBER: Final = -1
#: What a coordinator answers whoever is no member of a group that has members.
_HAS_MEMBERS: Final = (
    *(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH),
    ErrorCode.REBALANCE_IN_PROGRESS,
)
_FINAL: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})

Offsets = dict[TopicPartition, OffsetAndMetadata | None]
Errors = dict[TopicPartition, ErrorCode]


async def list_group_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None, deadline: Deadline, *, stable: bool
) -> Offsets:
    """The committed offsets of these partitions, or of all that have one.

    `stable`: wait while a transaction that is open may change one.
    """
    cluster.check_open()
    topics = None
    if partitions is not None:
        wanted = _by_topic(partitions)
        if not wanted:
            return {}
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in wanted.items()]

    def read(answer: Any, _: object) -> Iterator[ItemResult[str, Offsets]]:
        found: Offsets = {}
        error = answer.error_code
        for topic in answer.topics:
            for part in topic.partitions:
                error = error or part.error_code
                position = OffsetAndMetadata(part.committed_offset, part.metadata or "", part.committed_leader_epoch)
                found[TopicPartition(topic.name, part.partition_index)] = None if position.offset < 0 else position
        yield ItemResult(group, error, None, dict(sorted(found.items())))

    question = Question(
        request=lambda _: OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable),
        read=read,
        refused=lambda group: f"the offsets of group {group!r} are not told",
        least=_REQUIRE_STABLE_SINCE if stable else 2,
        most=_FETCH,
        final=_FINAL,
    )
    return (await ask(cluster, [group], Coordinators(cluster, GROUP), question, deadline))[group]


async def alter_group_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline
) -> None:
    """Commit these offsets for a group without members.  Raises BrokerError if it has some, PartlyRefusedError."""
    cluster.check_open()
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[_committed(number, offsets[TopicPartition(name, number)]) for number in numbers],
        )
        for name, numbers in _by_topic(offsets).items()
    ]

    def read(answer: Any, _: object) -> Iterator[ItemResult[str, Errors]]:
        errors = _errors(answer)
        whole = next((error for error in errors.values() if error.retriable and error not in _FINAL), ErrorCode.NONE)
        yield ItemResult(group, whole, None, errors)

    question = Question(
        request=lambda _: OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=_NO_MEMBER, member_id="", topics=topics
        ),
        read=read,
        refused=lambda group: f"the offsets of group {group!r} were not changed",
        most=_COMMIT,
    )
    if topics:
        answered = await ask(cluster, [group], Coordinators(cluster, GROUP), question, deadline)
        _check(answered[group], lambda at: f"the offset of group {group!r} in {at} was not changed")


def _committed(number: int, position: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=position.offset,
        committed_leader_epoch=position.leader_epoch,
        committed_metadata=position.metadata,
    )


async def delete_group_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition], deadline: Deadline
) -> None:
    """Delete the committed offsets of these partitions.

    Raises BrokerError, PartlyRefusedError, as for partitions that members of the group read.
    """
    cluster.check_open()
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        )
        for name, numbers in _by_topic(partitions).items()
    ]

    def read(answer: Any, _: object) -> Iterator[ItemResult[str, Errors]]:
        yield ItemResult(group, answer.error_code, None, _errors(answer))

    question = Question(
        request=lambda _: OffsetDeleteRequest(group_id=group, topics=topics),
        read=read,
        refused=lambda group: f"offsets of group {group!r} were not deleted",
    )
    if topics:
        answered = await ask(cluster, [group], Coordinators(cluster, GROUP), question, deadline)
        _check(answered[group], lambda at: f"the offset of group {group!r} in {at} was not deleted")


def _errors(answer: Any) -> Errors:
    return {
        TopicPartition(topic.name, part.partition_index): ErrorCode(part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    }


def _check(errors: Errors, sentence: Callable[[TopicPartition], str]) -> None:
    """Raises BrokerError, PartlyRefusedError if a partition has an error; `sentence`: the message for a partition."""
    refused = {at: _refusal(error, sentence(at)) for at, error in errors.items() if error}
    if refused:
        raise refusal(refused, {at: None for at, error in errors.items() if not error})


def _refusal(error: ErrorCode, sentence: str) -> BrokerError:
    if error in _HAS_MEMBERS:
        members = f"{sentence}: the group has members, who commit themselves (the broker says {error.name})"
        return BrokerError(ErrorCode.NON_EMPTY_GROUP, members)
    return BrokerError(error, sentence)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in dict.fromkeys(partitions):
        by_topic.setdefault(topic, []).append(number)
    return by_topic
