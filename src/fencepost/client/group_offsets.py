"""The committed offsets of one group: read, and written in the name of a member."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fencepost.client.deadline import Deadline
from fencepost.client.errors import BrokerError, ClientError, CommitFailedError
from fencepost.client.group_requests import MOVED
from fencepost.client.membership import Membership
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest
from fencepost.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fencepost.protocol.types import ZERO_UUID, TopicPartition

#: Newest OffsetCommit that names topics; the ones after it need topic ids.
_NAMES_TOPICS_UNTIL: Final = 9
#: OffsetFetch and OffsetCommit that have room for a member epoch.
_WITH_EPOCH: Final = 9
#: OffsetFetch that asks for one group.
_OF_ONE_GROUP: Final = 7
#: What a coordinator answers to whom it does not count among the members.
_NO_MEMBER: Final = (
    *(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS),
    *(ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND),
)


class GroupOffsets:
    """Reads and commits the offsets of a group, for one member."""

    def __init__(self, member: Membership) -> None:
        self._member = member
        self._requests = member.requests

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Committed offsets (None: none); waits while a transaction may change one (KIP-447).  Raises BrokerError."""
        by_topic: dict[str, list[int]] = {}
        for at in partitions:
            by_topic.setdefault(at.topic, []).append(at.partition)
        group_id, who = self._requests.group_id, self._member.metadata()
        deadline = self._requests.cluster.deadline(f"reading the positions of group {group_id!r}")
        while True:
            answer = await self._fetch(by_topic, who, deadline)
            errors = [ErrorCode(part.error_code) for topic in answer.topics for part in topic.partitions]
            errors.append(ErrorCode(answer.error_code))
            if ErrorCode.UNKNOWN_MEMBER_ID in errors:
                who = ConsumerGroupMetadata(group_id)  # they may be read by anybody
            elif ErrorCode.STALE_MEMBER_EPOCH in errors:
                who = self._member.as_of_now(who) or ConsumerGroupMetadata(group_id)
            elif (wrong := next((error for error in errors if error and not error.retriable), None)) is not None:
                raise BrokerError(wrong, f"the positions of group {group_id!r} cannot be read")
            elif not any(errors):
                break
            await deadline.pause(next(error.name for error in errors if error))
        return {
            TopicPartition(topic.name, part.partition_index): None
            if part.committed_offset < 0
            else OffsetAndMetadata(part.committed_offset, part.metadata or "", part.committed_leader_epoch)
            for topic in answer.topics
            for part in topic.partitions
        }

    async def _fetch(self, topics: Mapping[str, list[int]], who: ConsumerGroupMetadata, deadline: Deadline) -> Any:
        """The answer to OffsetFetch for the group, asked with the member epoch where there is one (KIP-848)."""
        group_id = self._requests.group_id
        if not self._member.has_epochs:
            asked = [OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in topics.items()]
            request = OffsetFetchRequest(group_id=group_id, topics=asked, require_stable=True)
            return await self._requests.ask(request, deadline, most=_OF_ONE_GROUP, least=_OF_ONE_GROUP)
        named = [OffsetFetchRequestTopics(name=name, partition_indexes=found) for name, found in topics.items()]
        group = OffsetFetchRequestGroup(
            group_id=group_id, member_id=who.member_id or None, member_epoch=who.generation_id, topics=named
        )
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        while True:
            answer = await self._requests.ask(request, deadline, most=_WITH_EPOCH, least=_WITH_EPOCH)
            (group,) = answer.groups
            error = ErrorCode(group.error_code)
            if not (error in MOVED or error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                return group
            self._requests.forget_coordinator()
            await deadline.pause(error.name)

    def deadline(self) -> Deadline:
        """The deadline of a commit that begins now."""
        return self._requests.cluster.deadline(f"committing positions of group {self._requests.group_id!r}")

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[TopicPartition, uuid.UUID],
        member: ConsumerGroupMetadata | None = None,
        deadline: Deadline | None = None,
        begun: asyncio.Future[OffsetCommitResponse] | None = None,
    ) -> None:
        """Commit positions in the name of `member`, by whom they were reached (None: the member as it is now).

        `topic_ids`: of the topics of these positions; none is stored in a topic that was made anew since then.
        `begun`: the answer that `begin` gave for the same positions.

        Raises CommitFailedError if the member is no longer in the group, FencedInstanceIdError, BrokerError.
        """
        who, deadline = member or self._member.metadata(), deadline or self.deadline()
        topics = _topics_of(offsets, topic_ids)
        most, least = self._versions(topics)
        while True:
            request = self._request(topics, who)
            answer = await self._requests.ask(request, deadline, most=most, least=least, begun=begun)
            begun = None
            error = _error_of(answer)
            if not error:
                return
            who = self._to_try_again_as(who, error)
            await deadline.pause(error.name)

    def begin(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[TopicPartition, uuid.UUID],
        member: ConsumerGroupMetadata,
    ) -> asyncio.Future[OffsetCommitResponse] | None:
        """Send OffsetCommit now; its answer.  None where that cannot be, as without a coordinator: `commit` does it."""
        topics = _topics_of(offsets, topic_ids)
        try:
            if (connection := self._requests.ready()) is None:
                return None
            version = connection.version_of(OffsetCommitRequest, *self._versions(topics))
            return connection.request(self._request(topics, member), version)
        except ClientError:
            return None  # `commit` raises it

    @staticmethod
    def is_stored(answer: OffsetCommitResponse) -> bool:
        """Whether an answer says that all offsets are committed, but those of topics that are no more."""
        return not _error_of(answer)

    def _versions(self, topics: Sequence[OffsetCommitRequestTopic]) -> tuple[int | None, int]:
        """The newest (None: any) and the oldest version of OffsetCommit in which these may be sent."""
        most = None if all(topic.topic_id.int for topic in topics) else _NAMES_TOPICS_UNTIL
        return most, _WITH_EPOCH if self._member.has_epochs else 0

    def _request(self, topics: list[OffsetCommitRequestTopic], who: ConsumerGroupMetadata) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=self._requests.group_id,
            generation_id_or_member_epoch=who.generation_id,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
            topics=topics,
        )

    def _to_try_again_as(self, who: ConsumerGroupMetadata, error: ErrorCode) -> ConsumerGroupMetadata:
        """The member in whose name to try again what `who` could not commit.  Raises as `commit` if there is none."""
        self._member.check_fenced(error)
        now = self._member.as_of_now(who) if error is ErrorCode.STALE_MEMBER_EPOCH else None
        if now is not None:
            return now  # or as soon as we hear of it: what it is about was not given up meanwhile
        if error in _NO_MEMBER or error is ErrorCode.STALE_MEMBER_EPOCH:
            self._member.commit_was_refused(who)
            raise self._not_taken(error)
        if not error.retriable or error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise BrokerError(error, f"the positions of group {self._requests.group_id!r} were not taken")
        if error in MOVED:
            self._requests.forget_coordinator()
        return who

    def _not_taken(self, error: ErrorCode) -> CommitFailedError:
        what_next = (
            "poll, and commit again what is ours then"
            if self._member.is_cooperative
            else "the records since the last commit go to whoever has the partitions now"
        )
        return CommitFailedError(
            f"group {self._requests.group_id!r} has been rebalanced ({error.name}): the positions were not "
            f"taken, {what_next}"
        )


def _error_of(answer: OffsetCommitResponse) -> ErrorCode:
    """The first error of a partition, without UNKNOWN_TOPIC_ID, as of a topic that was made anew; NONE: no error."""
    for topic in answer.topics:
        for part in topic.partitions:
            if part.error_code and part.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                return ErrorCode(part.error_code)
    return ErrorCode.NONE


def _topics_of(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[TopicPartition, uuid.UUID]
) -> list[OffsetCommitRequestTopic]:
    """Positions, by topic, as a request of OffsetCommit has them."""
    by_topic: dict[tuple[str, uuid.UUID], list[OffsetCommitRequestPartition]] = {}
    for at, position in offsets.items():
        by_topic.setdefault((at.topic, topic_ids.get(at) or ZERO_UUID), []).append(
            OffsetCommitRequestPartition(
                partition_index=at.partition,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    return [
        OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=found)
        for (name, topic_id), found in by_topic.items()
    ]
