"""One group as a consumer sees it: its membership and its committed offsets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fencepost.client.assignors import RANGE, assign_ranges
from fencepost.client.cluster import GROUP, Cluster, Deadline
from fencepost.client.errors import BrokerError, ClientError, CommitFailedError, ConnectionLostError, UnreachableError
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.codec import decode_stored, encode_stored
from fencepost.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
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
from fencepost.protocol.types import TopicPartition

logger = logging.getLogger(__name__)

_MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
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
        self._generation = -1
        self._heart: asyncio.Task[None] | None = None
        self.must_join = True
        """The consumer is to (re)join before it reads on."""

    def metadata(self) -> ConsumerGroupMetadata:
        """Who we are in the group, for transactions that commit our positions."""
        return ConsumerGroupMetadata(self.group_id, self._generation, self._member_id, self._instance_id)

    # Membership

    async def join(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Become (or stay) a member for the next generation; the partitions that are ours."""
        self._stop_heart()
        deadline = self._cluster.deadline(f"joining group {self.group_id!r}", self._rebalance_timeout_ms + 60_000)
        while True:
            assigned = await self._try_to_join(topics, deadline)
            if assigned is not None:
                self.must_join = False
                self._heart = asyncio.get_running_loop().create_task(self._beat())
                return assigned

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
        joined = await self._ask(request, deadline, most=7, timeout_ms=patience)
        error = ErrorCode(joined.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return None
        if error in _NO_MEMBER:
            self._member_id = ""
            await deadline.pause(error.name)
            return None
        if error:
            raise BrokerError(error, f"group {self.group_id!r} cannot be joined")
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = await self._assign(joined, deadline) if joined.leader == joined.member_id else []
        synced = await self._ask(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type="consumer",
                protocol_name=RANGE,
                assignments=assignments,
            ),
            deadline,
            timeout_ms=patience,
        )
        error = ErrorCode(synced.error_code)
        if error in _NO_MEMBER:
            if error is not ErrorCode.REBALANCE_IN_PROGRESS:
                self._member_id = ""
            return None
        if error:
            raise BrokerError(error, f"group {self.group_id!r} gives no assignment")
        if not synced.assignment:
            return []
        assignment = decode_stored(ConsumerProtocolAssignment, synced.assignment)
        return [TopicPartition(found.topic, n) for found in assignment.assigned_partitions for n in found.partitions]

    async def _assign(self, joined: Any, deadline: Deadline) -> list[SyncGroupRequestAssignment]:
        """We lead: give everybody a share."""
        wanted = {
            member.member_id: decode_stored(ConsumerProtocolSubscription, member.metadata).topics
            for member in joined.members
        }
        counts = {}
        for topic in dict.fromkeys(topic for topics in wanted.values() for topic in topics):
            counts[topic] = (await self._cluster.topic(topic, deadline)).partition_count
        given = []
        for member, partitions in assign_ranges(wanted, counts).items():
            by_topic: dict[str, list[int]] = {}
            for at in partitions:
                by_topic.setdefault(at.topic, []).append(at.partition)
            listed = [ConsumerTopicPartitions(topic=name, partitions=found) for name, found in by_topic.items()]
            assignment = encode_stored(ConsumerProtocolAssignment(assigned_partitions=listed, user_data=b""), 1)
            given.append(SyncGroupRequestAssignment(member_id=member, assignment=assignment))
        return given

    async def _beat(self) -> None:
        while not self.must_join:
            await asyncio.sleep(self._heartbeat_interval)
            request = HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
            )
            try:
                deadline = self._cluster.deadline("heartbeat", self._session_timeout_ms)
                answer = await self._ask(request, deadline)
            except ClientError as error:
                logger.warning("group %s: no heartbeat: %s", self.group_id, error)
                self.must_join = True
                return
            if answer.error_code:
                if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                    self._member_id = ""
                self.must_join = True

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
        self._member_id, self._generation = "", -1

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

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Store positions.  Raises CommitFailedError if we are no longer in the group."""
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
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=found) for name, found in by_topic.items()],
        )
        deadline = self._cluster.deadline(f"committing positions of group {self.group_id!r}")
        while True:
            answer = await self._ask(request, deadline, most=8)
            errors = [ErrorCode(part.error_code) for topic in answer.topics for part in topic.partitions]
            error = next((error for error in errors if error), ErrorCode.NONE)
            if not error:
                return
            if error in (*_NO_MEMBER, ErrorCode.FENCED_INSTANCE_ID):
                self.must_join = True
                raise CommitFailedError(
                    f"group {self.group_id!r} has been rebalanced ({error.name}): the positions were not taken, the "
                    "records since the last commit go to whoever has the partitions now"
                )
            if not error.retriable:
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
    ) -> Any:
        """To the group's coordinator, again while it moves."""
        while True:
            try:
                node = await self._cluster.coordinator(GROUP, self.group_id, deadline)
                answer = await self._cluster.call(node, request, most=most, least=least, timeout_ms=timeout_ms)
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
