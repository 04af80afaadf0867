"""One group as a consumer sees it: its membership and its committed offsets."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fencepost.client.assignors import RANGE, assign_ranges
from fencepost.client.cluster import GROUP, Cluster, Deadline, TopicView, Use
from fencepost.client.errors import (
    BrokerError,
    ClientError,
    CommitFailedError,
    ConnectionLostError,
    FencedInstanceIdError,
    UnreachableError,
)
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.codec import decode_stored, encode_stored
from fencepost.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from fencepost.protocol.messages.join_group import JoinGroupRequestProtocol
from fencepost.protocol.messages.leave_group import MemberIdentity
from fencepost.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequestTopic
from fencepost.protocol.messages.sync_group import SyncGroupRequestAssignment
from fencepost.protocol.types import ZERO_UUID, TopicPartition

logger = logging.getLogger(__name__)

_MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
#: Newest OffsetCommit that names topics; the ones after it need topic ids.
_NAMES_TOPICS_UNTIL: Final = 9
_NO_MEMBER: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)


class Group:
    """A member of a classic group: joins, heartbeats, leaves, and commits and fetches offsets."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        group_instance_id: str | None,
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        heartbeat_interval_ms: int,
    ) -> None:
        self._cluster = cluster
        self.group_id = group_id
        self._instance_id = group_instance_id
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._heartbeat_interval = heartbeat_interval_ms / 1000
        self._member_id = ""
        self._joined = self._followed = ConsumerGroupMetadata(group_id, group_instance_id=group_instance_id)
        self._heart: asyncio.Task[None] | None = None
        self.must_join = True
        """The consumer is to (re)join before it reads on."""
        self.fenced: FencedInstanceIdError | None = None
        """Another consumer has our place: nothing can be done here any more."""
        self.counted: dict[str, int] = {}
        """Topics of the group and their partitions as they were shared out, if we were the one to do it."""

    def metadata(self) -> ConsumerGroupMetadata:
        """Who we are in the group as far as it is followed, for transactions that commit our positions."""
        return self._followed

    # Membership

    async def join(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Become (or stay) a member for the next generation; the partitions that are ours.

        Until `follow` commits are those of the last generation: so are the records that the caller has.
        Raises FencedInstanceIdError, BrokerError, TimedOutError; then it is to be called again.
        """
        if self.fenced is not None:
            raise self.fenced
        self._stop_heart()
        self.must_join = True
        deadline = self._cluster.deadline(f"joining group {self.group_id!r}", self._rebalance_timeout_ms + 60_000)
        while True:
            assigned = await self._try_to_join(topics, deadline)
            if assigned is not None:
                self.must_join = False
                self._heart = asyncio.get_running_loop().create_task(self._beat())
                return assigned

    def follow(self) -> None:
        """The partitions of the newest generation are read from now on: commits are made in its name."""
        self._followed = self._joined

    async def _try_to_join(self, topics: Sequence[str], deadline: Deadline) -> list[TopicPartition] | None:
        subscription = encode_stored(ConsumerProtocolSubscription(topics=sorted(topics)), 1)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=RANGE, metadata=subscription)],
        )
        patience = self._rebalance_timeout_ms + self._cluster.request_timeout_ms
        joined = await self._ask(request, deadline, timeout_ms=patience, use=Use.JOIN)
        error = ErrorCode(joined.error_code)
        self._check_fenced(error)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return None
        if error in _NO_MEMBER:
            self._member_id = ""
            await deadline.pause(error.name)
            return None
        if error:
            raise BrokerError(error, f"group {self.group_id!r} cannot be joined")
        self._member_id = joined.member_id
        assignments = await self._lead(joined, deadline)
        synced = await self._ask(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=joined.generation_id,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type="consumer",
                protocol_name=RANGE,
                assignments=assignments,
            ),
            deadline,
            timeout_ms=patience,
            use=Use.JOIN,
        )
        error = ErrorCode(synced.error_code)
        self._check_fenced(error)
        if error in _NO_MEMBER:
            if error is not ErrorCode.REBALANCE_IN_PROGRESS:
                self._member_id = ""
            return None
        if error:
            raise BrokerError(error, f"group {self.group_id!r} gives no assignment")
        self._joined = ConsumerGroupMetadata(self.group_id, joined.generation_id, joined.member_id, self._instance_id)
        return _partitions_of(synced.assignment)

    async def _lead(self, joined: Any, deadline: Deadline) -> list[SyncGroupRequestAssignment]:
        """If we lead the group: give everybody a share, and remember of how many partitions."""
        self.counted = {}
        if joined.leader != joined.member_id:
            return []
        wanted = {
            member.member_id: decode_stored(ConsumerProtocolSubscription, member.metadata).topics
            for member in joined.members
        }
        counts = {}
        for topic in dict.fromkeys(topic for topics in wanted.values() for topic in topics):
            self._cluster.forget_topic(topic)  # it may have got more partitions
            counts[topic] = (await self._cluster.topic(topic, deadline)).partition_count
        if joined.skip_assignment:
            # A static member is back, and the group goes on as it was shared out before.
            self.counted = await self._shared_out(counts, deadline)
            return []
        self.counted = counts
        given = []
        for member, partitions in assign_ranges(wanted, counts).items():
            by_topic: dict[str, list[int]] = {}
            for at in partitions:
                by_topic.setdefault(at.topic, []).append(at.partition)
            listed = [ConsumerTopicPartitions(topic=name, partitions=found) for name, found in by_topic.items()]
            assignment = encode_stored(ConsumerProtocolAssignment(assigned_partitions=listed, user_data=b""), 1)
            given.append(SyncGroupRequestAssignment(member_id=member, assignment=assignment))
        return given

    async def _shared_out(self, topics: Iterable[str], deadline: Deadline) -> dict[str, int]:
        """How many partitions of each topic the members have; -1 if that is not told."""
        described = (await self._ask(DescribeGroupsRequest(groups=[self.group_id]), deadline)).groups[0]
        if described.error_code:
            return dict.fromkeys(topics, -1)
        counts = dict.fromkeys(topics, 0)
        for member in described.members:
            assigned = _partitions_of(member.member_assignment)
            for at in assigned:
                counts[at.topic] = counts.get(at.topic, 0) + 1
        return counts

    def compare(self, topics: Mapping[str, TopicView]) -> None:
        """Share out anew where a topic has other partitions than were counted."""
        if any(view.partition_count != self.counted.get(name, view.partition_count) for name, view in topics.items()):
            self.must_join = True

    def _check_fenced(self, error: ErrorCode) -> None:
        """Two members with one id would take the place from each other for ever: the first one gives up."""
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.fenced = FencedInstanceIdError(
                f"another consumer with group_instance_id {self._instance_id!r} has joined group {self.group_id!r}: "
                "this one can do nothing more there. If both are meant to run, give each an id of its own"
            )
            raise self.fenced

    async def _beat(self) -> None:
        """Say that we live, as long as we are a member: also while a rebalance waits for us."""
        while True:
            await asyncio.sleep(self._heartbeat_interval)
            request = HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self._joined.generation_id,
                member_id=self._joined.member_id,
                group_instance_id=self._instance_id,
            )
            try:
                deadline = self._cluster.deadline("heartbeat", self._session_timeout_ms)
                error = ErrorCode((await self._ask(request, deadline)).error_code)
                self._check_fenced(error)
            except FencedInstanceIdError:
                self.must_join = True
                return
            except ClientError as lost:
                logger.warning("group %s: no heartbeat: %s", self.group_id, lost)
                continue
            if error:
                self.must_join = True
            if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                if error is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                return

    def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            self._heart = None

    async def leave(self) -> None:
        """Tell the others that we go; a static member keeps its place."""
        self._stop_heart()
        if not self._member_id or self._instance_id is not None:
            return
        request = LeaveGroupRequest(
            group_id=self.group_id, member_id=self._member_id, members=[MemberIdentity(member_id=self._member_id)]
        )
        try:
            await self._ask(request, self._cluster.deadline("leaving", 2000))
        except ClientError:
            pass  # the session ends by itself
        self._member_id = ""

    # Positions

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's positions.  Waits while an open transaction may change one (KIP-447)."""
        by_topic: dict[str, list[int]] = {}
        for at in partitions:
            by_topic.setdefault(at.topic, []).append(at.partition)
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in by_topic.items()]
        request = OffsetFetchRequest(group_id=self.group_id, topics=topics, require_stable=True)
        deadline = self._cluster.deadline(f"reading the positions of group {self.group_id!r}")
        while True:
            answer = await self._ask(request, deadline, most=7, least=7)
            errors = [ErrorCode(part.error_code) for topic in answer.topics for part in topic.partitions]
            errors.append(ErrorCode(answer.error_code))
            wrong = next((error for error in errors if error and not error.retriable), None)
            if wrong is not None:
                raise BrokerError(wrong, f"the positions of group {self.group_id!r} cannot be read")
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

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, uuid.UUID]
    ) -> None:
        """Store positions.  `topic_ids`: of the topics that they are of; one made anew since then has none to store.

        Raises CommitFailedError if we are no longer in the group, FencedInstanceIdError, BrokerError.
        """
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
            group_id=self.group_id,
            generation_id_or_member_epoch=self._followed.generation_id,
            member_id=self._followed.member_id,
            group_instance_id=self._instance_id,
            topics=[
                OffsetCommitRequestTopic(name=name, topic_id=topic_ids.get(name, ZERO_UUID), partitions=found)
                for name, found in by_topic.items()
            ],
        )
        most = None if all(topic_ids.get(name) for name in by_topic) else _NAMES_TOPICS_UNTIL
        deadline = self._cluster.deadline(f"committing positions of group {self.group_id!r}")
        while True:
            answer = await self._ask(request, deadline, most=most)
            errors = [ErrorCode(part.error_code) for topic in answer.topics for part in topic.partitions]
            error = next((error for error in errors if error and error is not ErrorCode.UNKNOWN_TOPIC_ID), None)
            if error is None:
                return
            self._check_fenced(error)
            if error in (*_NO_MEMBER, ErrorCode.GROUP_ID_NOT_FOUND):
                self.must_join = True
                raise CommitFailedError(
                    f"group {self.group_id!r} has been rebalanced ({error.name}): the positions were not taken, the "
                    "records since the last commit go to whoever has the partitions now"
                )
            if not error.retriable or error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise BrokerError(error, f"the positions of group {self.group_id!r} were not taken")
            if error in _MOVED:
                self._cluster.forget_coordinator(GROUP, self.group_id)
            await deadline.pause(error.name)

    # Requests

    async def _ask(
        self,
        request: Any,
        deadline: Deadline,
        *,
        most: int | None = None,
        least: int = 0,
        timeout_ms: int | None = None,
        use: Use = Use.GROUP,
    ) -> Any:
        """To the group's coordinator, again while it moves."""
        while True:
            try:
                node = await self._cluster.coordinator(GROUP, self.group_id, deadline)
                answer = await deadline.within(
                    self._cluster.call(node, request, most=most, least=least, timeout_ms=timeout_ms, use=use)
                )
            except (ConnectionLostError, UnreachableError) as lost:
                self._cluster.forget_coordinator(GROUP, self.group_id)
                await deadline.pause(lost)
                continue
            code = ErrorCode(getattr(answer, "error_code", 0))
            if code in _MOVED or code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self._cluster.forget_coordinator(GROUP, self.group_id)
                await deadline.pause(code.name)
                continue
            return answer


def _partitions_of(assignment: bytes) -> list[TopicPartition]:
    if not assignment:
        return []
    found = decode_stored(ConsumerProtocolAssignment, assignment).assigned_partitions
    return [TopicPartition(topic.topic, number) for topic in found for number in topic.partitions]
