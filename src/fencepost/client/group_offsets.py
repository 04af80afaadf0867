"""The committed offsets of one group: read, and written in the name of a member."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from fencepost.client.deadline import Deadline
from fencepost.client.errors import BrokerError, CommitFailedError
from fencepost.client.group import NO_MEMBER, Group
from fencepost.client.group_requests import MOVED
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import OffsetCommitRequest, OffsetFetchRequest
from fencepost.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequestTopic
from fencepost.protocol.types import ZERO_UUID, TopicPartition

#: Newest OffsetCommit that names topics; the ones after it need topic ids.
_NAMES_TOPICS_UNTIL: Final = 9


class GroupOffsets:
    """The group's positions, as one member reads and commits them."""

    def __init__(self, member: Group) -> None:
        self._member = member
        self._requests = member.requests

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's positions.  Waits while an open transaction may change one (KIP-447)."""
        by_topic: dict[str, list[int]] = {}
        for at in partitions:
            by_topic.setdefault(at.topic, []).append(at.partition)
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in by_topic.items()]
        request = OffsetFetchRequest(group_id=self._requests.group_id, topics=topics, require_stable=True)
        deadline = self._requests.cluster.deadline(f"reading the positions of group {self._requests.group_id!r}")
        while True:
            answer = await self._requests.ask(request, deadline, most=7, least=7)
            errors = [ErrorCode(part.error_code) for topic in answer.topics for part in topic.partitions]
            errors.append(ErrorCode(answer.error_code))
            wrong = next((error for error in errors if error and not error.retriable), None)
            if wrong is not None:
                raise BrokerError(wrong, f"the positions of group {self._requests.group_id!r} cannot be read")
            if not any(errors):
                break
            await deadline.pause(next(error.name for error in errors if error))
        return {
            TopicPartition(topic.name, part.partition_index): None
            if part.committed_offset < 0
            else OffsetAndMetadata(part.committed_offset, part.metadata or "", part.committed_leader_epoch)
            for topic in answer.topics
            for part in topic.partitions
        }

    def deadline(self) -> Deadline:
        """Of a commit that begins now."""
        return self._requests.cluster.deadline(f"committing positions of group {self._requests.group_id!r}")

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, uuid.UUID],
        member: ConsumerGroupMetadata | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        """Store positions in the name of `member`, which we were when they were reached (None: as we are now).

        `topic_ids`: of the topics that they are of; one made anew since then has none to store.

        Raises CommitFailedError if we are no longer in the group, FencedInstanceIdError, BrokerError.
        """
        member, deadline = member or self._member.metadata(), deadline or self.deadline()
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for at, position in offsets.items():
            by_topic.setdefault(at.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=at.partition,
                    committed_offset=position.offset,
                    committed_leader_epoch=position.leader_epoch,
                    committed_metadata=position.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self._requests.group_id,
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=[
                OffsetCommitRequestTopic(name=name, topic_id=topic_ids.get(name, ZERO_UUID), partitions=found)
                for name, found in by_topic.items()
            ],
        )
        most = None if all(topic_ids.get(name) for name in by_topic) else _NAMES_TOPICS_UNTIL
        while True:
            answer = await self._requests.ask(request, deadline, most=most)
            errors = [ErrorCode(part.error_code) for topic in answer.topics for part in topic.partitions]
            error = next((error for error in errors if error and error is not ErrorCode.UNKNOWN_TOPIC_ID), None)
            if error is None:
                return
            self._member.check_fenced(error)
            if error in (*NO_MEMBER, ErrorCode.GROUP_ID_NOT_FOUND):
                self._member.must_join = self._member.must_join or member == self._member.metadata()
                what_next = (
                    "poll, and commit again what is ours then"
                    if self._member.is_cooperative
                    else "the records since the last commit go to whoever has the partitions now"
                )
                raise CommitFailedError(
                    f"group {self._requests.group_id!r} has been rebalanced ({error.name}): the positions were not "
                    f"taken, {what_next}"
                )
            if not error.retriable or error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise BrokerError(error, f"the positions of group {self._requests.group_id!r} were not taken")
            if error in MOVED:
                self._requests.forget_coordinator()
            await deadline.pause(error.name)
