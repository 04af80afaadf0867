"""Membership in a classic consumer group."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from fencepost.client.assignors import RANGE, STICKY, is_cooperative
from fencepost.client.cluster import Cluster, Deadline, TopicView, Use
from fencepost.client.deadline import attempt
from fencepost.client.errors import (
    BrokerError,
    ClientError,
    FencedInstanceIdError,
)
from fencepost.client.group_leader import GroupLeader
from fencepost.client.group_protocol import partitions_of, subscription
from fencepost.client.group_requests import GroupRequests
from fencepost.client.lasting import Lasting
from fencepost.client.membership import replaced_error
from fencepost.client.seldom import Seldom
from fencepost.client.transactional_id import ConsumerGroupMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from fencepost.protocol.messages.join_group import JoinGroupRequestProtocol
from fencepost.protocol.messages.leave_group import MemberIdentity
from fencepost.protocol.types import TopicPartition

logger = logging.getLogger(__name__)

#: First version of JoinGroup in which whoever has no id is given one, and waits for nobody (KIP-394).
_NAMED_SINCE: Final = 4
#: Milliseconds that a member takes to say that it goes; nobody is told when that fails.
_GOODBYE_MS: Final = 2000
NO_MEMBER: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)


class Group:
    """A member of a classic group: joins, heartbeats and leaves."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        group_instance_id: str | None,
        *,
        strategies: Sequence[str] = (RANGE,),
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        heartbeat_interval_ms: int,
        max_poll_interval_ms: float = math.inf,
    ) -> None:
        self._cluster = cluster
        self.group_id = group_id
        self.requests = GroupRequests(cluster, group_id)
        self.leader = GroupLeader(self.requests)
        self._instance_id = group_instance_id
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._heartbeat_interval = heartbeat_interval_ms / 1000
        self._max_poll_interval_ms = max_poll_interval_ms
        self.polled_at = math.inf
        """When records were asked for last, in seconds of the loop's clock."""
        self._strategies = strategies
        self.has_epochs = False
        self.is_cooperative = is_cooperative(strategies)
        """Whether the member keeps its partitions while it joins."""
        self._had: Sequence[TopicPartition] = ()
        """The partitions that were given last."""
        self.has_lost_place = False
        """Whether this was a member and is none: its partitions may be another member's."""
        self._member_id = ""
        self._introduction = Lasting(self._introduce)
        """The first JoinGroup, which brings the member id.

        The coordinator keeps a place for whoever asks, and others wait for it: it goes on when its caller is cancelled.
        """
        self._first: tuple[JoinGroupRequest, Deadline] | None = None
        """The request of `_introduction`, and its deadline; None: there was none."""
        self._first_answer: JoinGroupResponse | None = None
        self._joined = self._followed = ConsumerGroupMetadata(group_id, group_instance_id=group_instance_id)
        self._heart: asyncio.Task[None] | None = None
        self._no_heartbeat = Seldom()
        self.must_join = True
        """Whether the consumer is to call `join` before it reads on."""
        self.creates_topics = True
        """Whether to have topics made that are not there, where the broker does that."""
        self.fenced: FencedInstanceIdError | None = None
        """The error if another consumer has this group_instance_id, for good; else None."""

    def metadata(self) -> ConsumerGroupMetadata:
        """Group, generation and member id in whose name commits are made: those of the last `follow`."""
        return self._followed

    # Membership

    async def join(
        self, topics: Sequence[str], owned: Sequence[TopicPartition] = (), _: str | None = None
    ) -> list[TopicPartition] | None:
        """Become (or stay) a member for the next generation; the partitions that it gives to this member.

        `owned`: those that we keep meanwhile.  None if we have lost our place, and they may be somebody else's: they
        are to be given up, and then this is to be called again.  Until `follow` commits are those of the last
        generation: so are the records that the caller has.
        Raises FencedInstanceIdError, BrokerError, TimedOutError; then it is to be called again.
        """
        if self.fenced is not None:
            raise self.fenced
        if owned and self.has_lost_place:
            return None
        self._stop_heart()
        self.must_join = True
        self.has_lost_place = False
        deadline = self._cluster.deadline(f"joining group {self.group_id!r}", self._rebalance_timeout_ms + 60_000)
        while True:
            assigned = await self._try_to_join(topics, owned, deadline)
            if self.has_lost_place and owned:
                return None
            if assigned is not None:
                self.must_join = self.has_lost_place = False
                self._had = assigned
                self._heart = asyncio.get_running_loop().create_task(self._beat())
                return assigned

    def as_of_now(self, member: ConsumerGroupMetadata) -> ConsumerGroupMetadata | None:
        """`member` itself, or None if that was in another generation, or our place is lost."""
        return member if member == self._followed and not self.has_lost_place else None

    def follow(self) -> None:
        """Note that the newest generation's partitions are read from now on: commits are made in its name."""
        self._followed = self._joined

    def has_now(self, owned: Sequence[TopicPartition], *, gave_up: bool) -> None:  # noqa: ARG002
        """Join again if partitions were given up: others get them in the next generation."""
        self.must_join = self.must_join or gave_up

    def commit_was_refused(self, member: ConsumerGroupMetadata) -> None:
        """Join again if `member` is us: the coordinator is in another generation, or a rebalance waits for us."""
        self.must_join = self.must_join or member == self._followed

    @property
    def counted(self) -> Mapping[str, int]:
        """Topic -> number of its partitions, if this member shared them out; -1: not known, 0: it was not there."""
        return self.leader.counted

    def is_to_share_out(self, topics: Mapping[str, TopicView]) -> bool:
        """Whether a topic has another number of partitions than `counted` says."""
        return self.leader.has_changed(topics)

    def _protocols(self, topics: Sequence[str], owned: Sequence[TopicPartition]) -> list[JoinGroupRequestProtocol]:
        generation = self._joined.generation_id
        return [
            JoinGroupRequestProtocol(
                name=strategy,
                metadata=subscription(strategy, topics, self._had if strategy == STICKY else owned, generation),
            )
            for strategy in self._strategies
        ]

    async def _try_to_join(
        self, topics: Sequence[str], owned: Sequence[TopicPartition], deadline: Deadline
    ) -> list[TopicPartition] | None:
        """Join once; the partitions of this member, None if that is to be tried again.  Raises BrokerError."""
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=self._protocols(topics, owned),
        )
        joined = await self._ask_to_join(request, deadline)
        if joined is None:
            return None
        error = ErrorCode(joined.error_code)
        self.check_fenced(error)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return None
        if error in NO_MEMBER:
            self._lose_place()
            await deadline.pause(error.name)
            return None
        if error:
            raise BrokerError(error, f"group {self.group_id!r} cannot be joined")
        self._member_id = joined.member_id
        return await self._sync(joined, deadline)

    async def _ask_to_join(self, request: JoinGroupRequest, deadline: Deadline) -> JoinGroupResponse | None:
        """The answer to JoinGroup; None if an earlier caller's was answered, which has brought the member id."""
        if self._introduction.is_under_way:
            await self._introduction.done_within(None)
            return None
        if self._member_id or self._instance_id is not None:
            answer: JoinGroupResponse = await self._ask(request, deadline)
            return answer
        self._first = request, deadline
        await self._introduction.done_within(None)
        return self._first_answer

    async def _introduce(self) -> None:
        assert self._first is not None, "whoever asks says what"
        self._first_answer = None
        self._first_answer = await self._ask(*self._first, prompt_since=_NAMED_SINCE)
        self._member_id = self._first_answer.member_id

    async def _ask(self, request: Any, deadline: Deadline, prompt_since: int | None = None) -> Any:
        """The coordinator's answer to a request that may wait for other members."""
        patience = self._rebalance_timeout_ms + self._cluster.request_timeout_ms
        return await self.requests.ask(request, deadline, timeout_ms=patience, use=Use.JOIN, prompt_since=prompt_since)

    async def _sync(self, joined: JoinGroupResponse, deadline: Deadline) -> list[TopicPartition] | None:
        """The partitions of this member in the generation it has joined; None if that is over.  Raises BrokerError."""
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=await self.leader.share_out(joined, deadline, self.creates_topics),
        )
        synced = await self._ask(request, deadline)
        error = ErrorCode(synced.error_code)
        self.check_fenced(error)
        if error in NO_MEMBER:
            if error is not ErrorCode.REBALANCE_IN_PROGRESS:
                self._lose_place()
            return None
        if error:
            raise BrokerError(error, f"group {self.group_id!r} gives no assignment")
        self._joined = ConsumerGroupMetadata(self.group_id, joined.generation_id, joined.member_id, self._instance_id)
        return partitions_of(synced.assignment)

    def check_fenced(self, error: ErrorCode) -> None:
        """Raises FencedInstanceIdError for an error that says that another member has our group_instance_id.

        Two members with one id would take the place from each other for ever: the first one gives up.
        """
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.fenced = replaced_error(self._instance_id, self.group_id)
            raise self.fenced

    async def _beat(self) -> None:
        """Send heartbeats as long as this is a member, also while a rebalance waits for it."""
        while True:
            await asyncio.sleep(self._heartbeat_interval)
            if (asyncio.get_running_loop().time() - self.polled_at) * 1000 > self._max_poll_interval_ms:
                await self._leave_unpolled()
                return
            request = HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self._joined.generation_id,
                member_id=self._joined.member_id,
                group_instance_id=self._instance_id,
            )
            try:
                deadline = self._cluster.deadline("heartbeat", self._session_timeout_ms)
                error = ErrorCode((await self.requests.ask(request, deadline)).error_code)
                self.check_fenced(error)
            except FencedInstanceIdError:
                self.must_join = True
                return
            except ClientError as lost:
                if (end := self._no_heartbeat.due(asyncio.get_running_loop().time())) is not None:
                    logger.warning("group %s: no heartbeat: %s%s", self.group_id, lost, end)
                continue
            if error:
                self.must_join = True
            if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                self.has_lost_place = True
                if error is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                return

    def _lose_place(self) -> None:
        self._member_id, self.has_lost_place, self._had = "", True, ()

    def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            self._heart = None

    async def leave(self) -> None:
        """Leave the group, which gives the partitions to others; a static member keeps its place."""
        self._stop_heart()
        if self._introduction.is_under_way and self.requests.joins:
            introduced = partial(self._introduction.done_within, None)
            await attempt(introduced, self._cluster.deadline("leaving", _GOODBYE_MS))
        self._introduction.cancel()
        await self._say_goodbye()

    async def _leave_unpolled(self) -> None:
        """Leave the group as `max_poll_interval_ms` have passed without a poll, and log it."""
        logger.warning(
            "group %s: poll() was not called for max_poll_interval_ms=%s: its partitions go to other members until it "
            "is; have fewer records a poll (max_records), or a longer interval",
            *(self.group_id, self._max_poll_interval_ms),
        )
        self.must_join = self.has_lost_place = True
        await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        if not self._member_id or self._instance_id is not None:
            return
        request = LeaveGroupRequest(
            group_id=self.group_id, member_id=self._member_id, members=[MemberIdentity(member_id=self._member_id)]
        )
        try:
            await self.requests.ask(request, self._cluster.deadline("leaving", _GOODBYE_MS))
        except ClientError:
            pass  # the session ends by itself
        self._member_id = ""
