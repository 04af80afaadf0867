"""A member of a group of the new protocol: the coordinator shares partitions out, heartbeats say which (KIP-848).

One heartbeat at a time is under way, and it is the only one that changes who we are: whoever waits for a place in the
group waits for its answer, and may stop waiting without anything being lost.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fencepost.client.cluster import Cluster, Deadline, TopicView
from fencepost.client.consumer_group.decisions import (
    EVENTS,
    HEARTBEATING,
    JOIN,
    MEMBERS,
    UNSETTLED,
    Event,
    State,
    Verdict,
    after,
    epoch_of_leaving,
    verdict_of,
)
from fencepost.client.consumer_group.heartbeats import Place, Standing, heartbeat, places_in
from fencepost.client.consumer_group.sentences import refusal, trouble
from fencepost.client.consumer_group.topic_names import TopicNames
from fencepost.client.errors import (
    ClientError,
    FencedInstanceIdError,
    RetriableError,
    TimedOutError,
    UnsupportedByBrokerError,
)
from fencepost.client.group_requests import GroupRequests
from fencepost.client.membership import replaced_error
from fencepost.client.seldom import Seldom
from fencepost.client.transactional_id import ConsumerGroupMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ConsumerGroupHeartbeatRequest
from fencepost.protocol.types import TopicPartition

logger = logging.getLogger(__name__)

#: Seconds between two heartbeats of which the first one was refused for now.
_PAUSE: Final = 0.5
#: Seconds between two heartbeats, whatever the coordinator says: it may not make us ask without end.
_SHORTEST_INTERVAL: Final = 0.05
#: Milliseconds that a member takes to say that it goes; nobody is told when that fails.
_GOODBYE_MS: Final = 2000
#: First version of ConsumerGroupHeartbeat that has room for a regular expression.
_WITH_REGEX: Final = 1


class ConsumerGroupMember:
    """A member of a group: joins, sends heartbeats, leaves.  `server_assignor`: by Kafka's name; None: the broker's.

    Partitions are given up and taken by the caller of `join`, who calls `has_now` when that is done.
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        group_instance_id: str | None,
        *,
        server_assignor: str | None = None,
        rebalance_timeout_ms: int,
        max_poll_interval_ms: float = math.inf,
    ) -> None:
        self._cluster = cluster
        self.group_id = group_id
        self.requests = GroupRequests(cluster, group_id)
        self.is_cooperative = self.has_epochs = True
        self.creates_topics = True
        self.fenced: FencedInstanceIdError | None = None
        self.polled_at = math.inf
        self._max_poll_interval_ms = max_poll_interval_ms
        self._state = State.OUTSIDE
        member_id = str(uuid.UUID(int=cluster.runtime.random.getrandbits(128), version=4))
        self._now = Standing(group_id, member_id, group_instance_id, rebalance_timeout_ms, server_assignor)
        self._sent: Standing | None = None
        """What the coordinator knows of this member; None: nothing for sure."""
        self._epoch = self._joined_at = JOIN
        """The member epoch now, and the one with which it was let in."""
        self._followed = ConsumerGroupMetadata(group_id, group_instance_id=group_instance_id)
        self._follows_joined_at = JOIN
        self._given: frozenset[Place] = frozenset()
        """The partitions that the coordinator gave last."""
        self._is_to_acknowledge = False
        """Whether the coordinator waits to hear that this member has no more than these (KIP-848)."""
        self._places: dict[TopicPartition, Place] = {}
        """Name and number -> topic id and number, of partitions that were given, now or before."""
        self._names = TopicNames(cluster)
        self._is_to_join = True
        self._interval = math.inf
        """Seconds between heartbeats, as the coordinator wants it."""
        self._heart: asyncio.Task[None] | None = None
        self._waiting = 0
        """The number of callers that wait in `join`."""
        self._news = asyncio.Event()
        """Set when a heartbeat is to be sent before the next one is due."""
        self._ended = asyncio.Event()
        """Set when the heartbeat under way has ended; a new Event for each."""
        self._error: ClientError | None = None
        """The error that the next `join` raises; None: none."""
        self._trouble = ""
        """Why the last heartbeat has to be repeated, for messages; empty: it need not be."""
        self._said: defaultdict[ErrorCode | None, Seldom] = defaultdict(Seldom)
        """The limits of log lines, by the error that the coordinator answered; None: it did not answer."""
        self._asking: Deadline | None = None
        """The deadline of the last heartbeat."""

    # What the consumer knows

    @property
    def must_join(self) -> bool:
        """Whether partitions are to be given up or taken, or the coordinator is to be told something."""
        return self._is_to_join or self._state in UNSETTLED or self._error is not None

    @must_join.setter
    def must_join(self, value: bool) -> None:
        self._is_to_join = value

    @property
    def has_lost_place(self) -> bool:
        """Whether this is no member: it never joined, has left, or was removed."""
        return self._state is State.OUTSIDE

    def metadata(self) -> ConsumerGroupMetadata:
        """Group, member id and epoch of commits; the epoch is the newest one of the membership that is followed."""
        return self._followed

    def as_of_now(self, member: ConsumerGroupMetadata) -> ConsumerGroupMetadata | None:
        """`member` with its newest epoch: it still has the partitions it did not give up.  None: its place is lost."""
        if self._state not in MEMBERS or member.generation_id < self._joined_at:
            return None
        return self._current()

    def _current(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self.group_id, self._epoch, self._now.member_id, self._now.group_instance_id)

    def follow(self) -> None:
        """Note that partitions given up or lost are read no more: commits have the present epoch from now on."""
        if self._state in MEMBERS:
            self._followed, self._follows_joined_at = self._current(), self._joined_at

    def check_fenced(self, error: ErrorCode) -> None:
        """Raises FencedInstanceIdError if another member has our group_instance_id."""
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self._be_replaced()
        if self.fenced is not None:
            raise self.fenced

    def commit_was_refused(self, member: ConsumerGroupMetadata) -> None:
        """Send a heartbeat at once if `member` is this one: its answer says whether this is a member still."""
        if self.as_of_now(member) is not None:
            self._news.set()

    @property
    def counted(self) -> Mapping[str, int]:
        """Empty: the coordinator sees by itself that there are more partitions."""
        return {}

    def is_to_share_out(self, topics: Mapping[str, TopicView]) -> bool:  # noqa: ARG002
        """False: the coordinator shares out."""
        return False

    # A place in the group

    async def join(
        self, topics: Sequence[str], owned: Sequence[TopicPartition] = (), regex: str | None = None
    ) -> list[TopicPartition] | None:
        """Become, or stay, a member that reads these topics; the partitions that the coordinator has given by now.

        Raises as `Membership.join`.
        """
        if self.fenced is not None:
            raise self.fenced
        if owned and self.has_lost_place:
            return None
        self._raise_error()
        self._is_to_join = True
        self._waiting += 1
        try:
            return await self._joined(tuple(sorted(topics)), regex, owned)
        finally:
            self._waiting -= 1
            self.polled_at = asyncio.get_running_loop().time()

    async def _joined(
        self, topics: tuple[str, ...], regex: str | None, owned: Sequence[TopicPartition]
    ) -> list[TopicPartition] | None:
        deadline = self._cluster.deadline(f"joining group {self.group_id!r}")
        if topics != self._now.topics:
            await self._names.look_at(topics, self.creates_topics, deadline)
        self._now = self._now._replace(topics=topics, regex=regex)
        while not (owned and self.has_lost_place):
            self._has(owned)
            self._raise_error()
            if self._state not in MEMBERS or self._sent != self._now:
                await self._heartbeat_ended(deadline)
                continue
            named = await self._names.of(self._given, topics if regex is None else None, deadline)
            if self._state in MEMBERS:
                self._places |= named
                self._is_to_join = False
                return sorted(named)
        return None

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def _heartbeat_ended(self, deadline: Deadline) -> None:
        """Wait until the heartbeat has ended that begins now, or is under way.  Raises TimedOutError."""
        self._state = after(self._state, Event.JOIN)
        if self._heart is None or self._heart.done():
            self._heart = asyncio.get_running_loop().create_task(self._beat())
        if self._sent is not None:
            self._news.set()
        try:
            await deadline.within(self._ended.wait())
        except TimedOutError as late:
            trouble = self._trouble or ("" if self._asking is None else self._asking.last_met)
            raise TimedOutError(str(late) if trouble in str(late) else f"{late}; {trouble}") from None

    def has_now(self, owned: Sequence[TopicPartition], *, gave_up: bool) -> None:  # noqa: ARG002
        """Tell the coordinator which partitions this member has now; it gives those that were given up to others."""
        self._has(owned)
        if self._now.owned == self._given:
            self._state = after(self._state, Event.TAKEN)
        if self._has_news:
            self._news.set()

    @property
    def _has_news(self) -> bool:
        """Whether a heartbeat is to be sent at once, as the coordinator does not know all of `_now`."""
        return self._sent != self._now or (self._is_to_acknowledge and self._state is State.STABLE)

    def _has(self, owned: Sequence[TopicPartition]) -> None:
        self._now = self._now._replace(owned=frozenset(self._places[at] for at in owned))

    async def leave(self) -> None:
        """Leave, so that others have our partitions at once; those of a static member are kept for it for a while."""
        self._stop_heart()
        if self._sent is not None or self._state in HEARTBEATING:
            await self._say_goodbye()
        self._be_out(Event.LEFT)

    # Heartbeats

    def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            self._heart = None

    async def _beat(self) -> None:
        """Send heartbeats as long as this is a member or wants to be one."""
        while self._state in HEARTBEATING:
            if self._left_to_poll() <= 0:
                await self._leave_unpolled()
                continue
            self._news.clear()
            pause = await self._exchange()
            ended, self._ended = self._ended, asyncio.Event()
            ended.set()
            await self._until_due(pause)

    async def _until_due(self, pause: float | None) -> None:
        """Wait for the next heartbeat; `pause`: seconds that are to be waited whatever there is to say."""
        if pause is not None:
            await asyncio.sleep(pause)
        elif self._state in MEMBERS and not self._has_news:
            try:
                async with asyncio.timeout(min(self._interval, max(self._left_to_poll(), 0))):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _left_to_poll(self) -> float:
        """Seconds until records must be asked for (`max_poll_interval_ms`); infinite while somebody waits in `join`."""
        if self._waiting:
            return math.inf
        return self.polled_at + self._max_poll_interval_ms / 1000 - asyncio.get_running_loop().time()

    async def _exchange(self) -> float | None:
        """Send one heartbeat and act on its answer; seconds that must pass before the next, None: none."""
        epoch = JOIN if self._state is State.JOINING else self._epoch
        now, sent, self._sent = self._now, self._sent, None
        if sent is not None and self._is_to_acknowledge:
            sent = sent._replace(owned=None)
        # What was given by an answer that is lost is given again to who says everything, and to nobody else.
        request, again = heartbeat(now, sent, epoch), heartbeat(now, None, epoch)
        self._is_to_acknowledge = self._is_to_acknowledge and now.owned != self._given
        try:
            least = _WITH_REGEX if now.regex is not None else 0
            self._asking = self._cluster.deadline("a heartbeat")
            answer = await self.requests.ask(request, self._asking, again=again, least=least)
        except ClientError as error:
            is_lasting = isinstance(error, UnsupportedByBrokerError) or self._state is State.JOINING
            if is_lasting and not isinstance(error, RetriableError):
                self._be_out(Event.LOST, refusal(error, now))
                return None
            self._trouble = str(error)
            self._say(None, f"no heartbeat: {error}")
            return self._again_in()
        return self._take(answer, now)

    def _again_in(self) -> float:
        return self._interval if self._state in MEMBERS else _PAUSE

    def _take(self, answer: Any, sent: Standing) -> float | None:
        """Act on the answer to a heartbeat that said `sent`; seconds until the next one, None: when it is due."""
        error = ErrorCode(answer.error_code)
        verdict = verdict_of(error, self._state)
        if verdict is Verdict.TAKEN:
            # An answer with an error says nothing of it: there it is 0.
            self._interval = max(answer.heartbeat_interval_ms / 1000, _SHORTEST_INTERVAL)
            self._trouble, self._sent = "", sent
            self._note_epoch(answer.member_epoch)
            self._note_given(places_in(answer.assignment))
        elif verdict is Verdict.AGAIN:
            self._trouble = trouble(error, answer.error_message, sent)
            self._say(error, self._trouble)
            return self._again_in()
        elif verdict is Verdict.REPLACED:
            self._be_replaced()
        elif verdict is Verdict.COMPLAINT:
            self._error = refusal(error, sent, answer.error_message)
            return self._again_in()
        elif verdict is Verdict.REFUSED:
            self._be_out(EVENTS[verdict], refusal(error, sent, answer.error_message))
        else:
            logger.info("group %s: our place is lost (%s): we join again", self.group_id, error.name)
            self._be_out(EVENTS[verdict])
        return None

    def _say(self, answered: ErrorCode | None, what: str) -> None:
        if (end := self._said[answered].due(asyncio.get_running_loop().time())) is not None:
            logger.warning("group %s: %s%s", self.group_id, what, end)

    def _note_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        if self._state is State.JOINING:
            self._joined_at = epoch
        elif self._follows_joined_at == self._joined_at:
            self._followed = self._current()

    def _note_given(self, given: frozenset[Place] | None) -> None:
        if given is not None:
            self._is_to_acknowledge = self._is_to_acknowledge or given != self._given
            self._given = given
        event = Event.KEPT if given is None else Event.TAKEN if given == self._now.owned else Event.GIVEN
        self._state = after(self._state, event)

    def _be_out(self, event: Event, error: ClientError | None = None) -> None:
        self._state = after(self._state, event)
        self._epoch, self._sent, self._given, self._is_to_acknowledge = JOIN, None, frozenset(), False
        self._error = error or self._error

    def _be_replaced(self) -> None:
        self.fenced = self.fenced or replaced_error(self._now.group_instance_id, self.group_id)
        self._be_out(Event.REPLACED, self.fenced)

    async def _leave_unpolled(self) -> None:
        """Leave the group as `max_poll_interval_ms` have passed without a poll, and log it."""
        logger.warning(
            "group %s: poll() was not called for max_poll_interval_ms=%s: its partitions go to other members until it "
            "is; have fewer records a poll (max_records), or a longer interval",
            *(self.group_id, self._max_poll_interval_ms),
        )
        self._be_out(Event.LEFT)
        await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self._now.member_id,
            member_epoch=epoch_of_leaving(self._now.group_instance_id),
            instance_id=self._now.group_instance_id,
        )
        try:
            await self.requests.ask(request, self._cluster.deadline("leaving", _GOODBYE_MS))
        except ClientError:
            pass  # the session ends by itself
