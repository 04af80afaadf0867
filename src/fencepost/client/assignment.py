"""The assignment of a consumer: its partitions, and where reading begins in each; kept until it is followed."""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from fencepost.client.arguments import places
from fencepost.client.errors import MisuseError
from fencepost.client.fetcher import Fetcher
from fencepost.client.followed import Followed
from fencepost.client.group_offsets import GroupOffsets
from fencepost.client.interceptors import RAISED_BY_USER
from fencepost.client.lasting import Lasting
from fencepost.client.lost_positions import find_lost_positions
from fencepost.client.membership import Membership
from fencepost.client.positions import Positions
from fencepost.client.rebalance_listener import RebalanceListener, end_if_cancelled, tell
from fencepost.client.subscription import Subscription, SubscriptionPattern
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.messages.list_offsets import EARLIEST
from fencepost.protocol.types import ZERO_UUID, TopicPartition


class Assignment:
    """The partitions of a consumer, assigned by the group or the caller, and those of them that it reads.

    `before_joining` is awaited before partitions are given up for a rebalance.
    """

    def __init__(
        self,
        subscription: Subscription,
        fetcher: Fetcher,
        places: Positions,
        group: Membership | None,
        before_joining: Callable[[], Awaitable[None]],
    ) -> None:
        self._subscription = subscription
        self._fetcher = fetcher
        self._places = places
        self._group = group
        self._offsets = None if group is None else GroupOffsets(group)
        self._before_joining = before_joining
        self.preparation = Lasting(self._prepare)
        self._joining = Lasting(self._ask_for_a_share)
        self._share: Sequence[TopicPartition] | None = None
        """The partitions that the group gave when joining ended; None: this member had lost its place in the group."""
        self.is_started = False
        """Whether reading of the present assignment has begun."""
        self._assigned: Collection[TopicPartition] | None = None
        """The partitions given to `assign`; None: those of the topics, or the share that the group gives."""
        self._to_follow: Collection[TopicPartition] | None = None
        """The assigned partitions that are not read yet; None: there are none."""
        self._sought: dict[TopicPartition, OffsetAndMetadata] = {}
        """The positions sought in partitions that are assigned and not read yet."""
        self._to_pause: set[TopicPartition] = set()
        """The partitions not read yet that are paused."""
        self._otherwise: dict[TopicPartition, int] = {}
        """The offsets to begin at in partitions of which the group has no committed offset."""
        self._leaderless: dict[TopicPartition, uuid.UUID] = {}
        """Partitions without a position, as they had no leader to ask for one -> the id of their topic."""
        self._owned: dict[TopicPartition, None] = {}
        """The partitions that the group gave and that were not given up."""
        self._is_joining = False
        """Whether a rebalance is under way: who interrupts it has to give up and take the rest of the partitions."""
        self._listener: RebalanceListener | None = None

    # What is to be read

    def subscribe(
        self,
        topics: Iterable[str],
        pattern: re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or those that fit.  Raises MisuseError after `assign`, or for a pattern no group takes."""
        if self._assigned is not None:
            raise MisuseError("assign() has said which partitions to read: await unsubscribe() before subscribe()")
        if isinstance(pattern, SubscriptionPattern) and not (self._group is not None and self._group.has_epochs):
            raise MisuseError(
                'a SubscriptionPattern is for a group with group_protocol="consumer": give the pattern as a str'
            )
        self.stop()
        self._subscription.choose(topics, pattern)
        self._listener = listener
        self._assigned, self._to_follow, self.is_started = None, None, False
        if not self._keeps:  # else what is not read yet stays ours as well, until we join
            self._otherwise, self._leaderless = {}, {}
            self._to_pause.clear()
        if self._group is not None:
            self._group.must_join = True
            self._group.creates_topics = pattern is None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group shares them out.  Raises MisuseError after `subscribe`."""
        if self._assigned is None and self._subscription.is_chosen:
            raise MisuseError(
                "this consumer is subscribed to topics: await unsubscribe() before assign(), or give it no topics"
            )
        assigned = places("partitions", partitions)
        self.stop()
        self._sought.clear()
        self._to_pause.clear()
        self._assigned, self._to_follow, self.is_started = dict.fromkeys(assigned), None, False
        self._otherwise, self._leaderless = {}, {}

    def forget(self) -> None:
        """Have neither topics nor partitions to read, as before the first `subscribe` or `assign`."""
        self._subscription.choose((), None)
        self._assigned, self._to_follow, self.is_started = None, None, False
        self._otherwise, self._sought, self._listener = {}, {}, None
        self._to_pause.clear()
        self._give_up()
        if self._group is not None:
            self._group.must_join = True

    def stop(self) -> None:
        """Cancel joining and preparing: something else is to be read, or nothing any more."""
        self._fetcher.settle()
        self.preparation.cancel()
        self._joining.cancel()

    def seek(self, at: TopicPartition, position: OffsetAndMetadata) -> None:
        """Read on at `position`; begin there if it is assigned and not read yet.  Raises MisuseError as `followed`."""
        if self.is_not_read_yet(at):
            self._sought[at] = position
        else:
            self.followed(at)
            self._fetcher.seek(at, position)

    def is_not_read_yet(self, at: TopicPartition) -> bool:
        """Whether this partition is assigned, and reading of it has not begun."""
        not_begun = () if self.is_started else self._assigned or ()
        return at in self._leaderless or at in (self._to_follow or ()) or at in not_begun

    def these_or_all(self, partitions: Iterable[TopicPartition] | None) -> Iterable[TopicPartition]:
        """These, or (None) all that are assigned, also where reading has not begun; MisuseError if none ever were."""
        if partitions is not None:
            return partitions
        waiting = self._assigned if self._to_follow is None and not self.is_started else self._to_follow
        if waiting is None and not self.is_started and not self._fetcher.followed:
            raise MisuseError("nothing is assigned to this consumer yet: poll() first, or assign() partitions")
        return sorted({*self._fetcher.followed, *self._leaderless, *(waiting or ())})

    def assigned(self) -> list[TopicPartition]:
        """The partitions that are read, or that `assign` gave and are not read yet; sorted."""
        return sorted(self._fetcher.followed if self._assigned is None or self.is_started else {*self._assigned})

    def position(self, at: TopicPartition) -> int:
        """Offset of the next record; of a partition not read yet, the sought one.  Raises MisuseError as `followed`."""
        if at in self._sought and self.is_not_read_yet(at):
            return self._sought[at].offset
        return int(self.followed(at).position)

    def followed(self, at: TopicPartition) -> Followed:
        """The state of reading of this partition.  Raises MisuseError if it is not being read."""
        self._fetcher.settle()
        if at in self._fetcher.followed:
            return self._fetcher.followed[at]
        if self.is_not_read_yet(at):
            raise MisuseError(f"{at.topic}-{at.partition} is assigned and not read yet: poll() first")
        raise MisuseError(f"{at.topic}-{at.partition} is not assigned to this consumer: poll() first, or assign() it")

    def pause(self, at: TopicPartition) -> None:
        """Hand out no records of this partition, even if it is not read yet.  Raises MisuseError as `followed`."""
        if self.is_not_read_yet(at):
            self._to_pause.add(at)
        else:
            self.followed(at).paused = True

    def resume(self, at: TopicPartition) -> None:
        """Hand out the records of this partition again.  Raises MisuseError as `followed`."""
        if self.is_not_read_yet(at):
            self._to_pause.discard(at)
        else:
            self.followed(at).paused = False

    def paused(self) -> list[TopicPartition]:
        """The paused partitions, sorted.  May be called in any thread."""
        waiting = self._to_pause.copy()  # before too: it may be read by the time that the others are looked at
        read = [at for at, followed in list(self._fetcher.followed.items()) if followed.paused]
        return sorted({*waiting, *(at for at in read if not self.is_not_read_yet(at)), *self._to_pause.copy()})

    def begin_at_committed(self, otherwise: Mapping[TopicPartition, int]) -> None:
        """Follow the same partitions anew, from their committed offsets; `otherwise`: offsets for those without one."""
        if self._to_follow is not None and not self._keeps:
            return
        if self._to_follow is not None and not self._is_joining:
            self.preparation.cancel()  # it is about to follow some, and to go on with the others where they are
        # A member that keeps its partitions reads on in them while it joins for other topics.
        if self.is_started or self._fetcher.followed:
            self._to_pause.update(at for at, followed in self._fetcher.followed.items() if followed.paused)
            self._otherwise = {TopicPartition(*at): offset for at, offset in otherwise.items()}
            self._to_follow = sorted({*self._fetcher.followed, *self._leaderless, *(self._to_follow or ())})
            self._give_up()

    def _give_up(self) -> None:
        """Read no partitions, until some are followed."""
        self._fetcher.follow({}, {})
        self._leaderless = {}

    # Being ready to read

    def is_prepared(self) -> bool:
        """Whether records can be handed out without joining the group or looking up partitions and positions first."""
        if self.preparation.is_under_way or not self.is_started or self._to_follow is not None or self.must_join():
            return False
        return not (self._fetcher.lost() or self._fetcher.made_anew() or self._to_begin() or self._new_partitions())

    def must_join(self) -> bool:
        """Whether the group is to be joined, or what it gave is not taken yet."""
        group = self._group if self._assigned is None else None
        return group is not None and (group.must_join or self._joining.is_under_way)

    async def _prepare(self) -> None:
        """Join, and find partitions and positions, before anything is fetched.  If it fails the next call goes on.

        While others are waited for in a rebalance it is done where something stays ours: that is read on.
        """
        if self._assigned is None:
            await self._subscription.look()
        if self._group is not None and self.must_join():
            if not await self._join(self._group):
                return
        elif not self.is_started and self._to_follow is None:
            self._to_follow = await self._subscription.partitions() if self._assigned is None else self._assigned
        if self._to_follow is not None:
            await self._follow(list(self._to_follow))
        await find_lost_positions(self._fetcher, self._places)
        if self._to_begin():
            await self._begin_those_that_are_led()
        new = self._new_partitions()
        if new:
            ids = {at.topic: topic_id for at, topic_id in new.items()}
            self._fetcher.follow_too(await self._places.ends(list(new), EARLIEST, led_only=True), ids)

    def _to_begin(self) -> list[TopicPartition]:
        """The leaderless partitions that can be read now; of the others the metadata is asked for again."""
        found = [at for at in self._leaderless if at in self._sought or self._subscription.is_led(at)]
        if len(found) < len(self._leaderless):
            self._fetcher.refresh(list(dict.fromkeys(at.topic for at in self._leaderless)))
        return found

    async def _begin_those_that_are_led(self) -> None:
        asked = [at for at in self._to_begin() if at not in self._sought]
        positions = await self._places.reset(asked) | self._sought
        for at in [at for at in self._leaderless if at in positions]:
            self._fetcher.follow_too({at: positions[at]}, {at.topic: self._leaderless.pop(at)})
            self._sought.pop(at, None)
        self._pause_what_is_read_now()

    def _pause_what_is_read_now(self) -> None:
        for at in self._to_pause & self._fetcher.followed.keys():
            self._fetcher.followed[at].paused = True
            self._to_pause.remove(at)

    @property
    def _keeps(self) -> bool:
        """Whether partitions are read on during a rebalance (KIP-429, KIP-848)."""
        return self._group is not None and self._assigned is None and self._group.is_cooperative

    async def _join(self, group: Membership) -> bool:
        """Give up the partitions that are not to be kept, join, and take the new share; whether that is done.

        It is not where others are waited for and something stays ours (KIP-429).  What is given is taken by the call
        that finds it there, so that a listener is told while somebody polls, and not while records are worked on.
        """
        self._is_joining = True
        try:
            while True:
                if not self._joining.is_under_way:
                    await self._before_rebalance(group)
                stays_ours = group.is_cooperative and bool(self._fetcher.followed)
                if not await self._joining.done_within(0 if stays_ours else None):
                    return False
                if self._share is not None:
                    break
            await self._take(group, self._share)
        finally:
            self._is_joining = False
        return True

    async def _ask_for_a_share(self) -> None:
        assert self._group is not None, "whoever joins has a group"
        try:
            self._share = await self._group.join(
                self._subscription.topics, sorted(self._owned), self._subscription.regex
            )
            # Nobody else is given what stays ours before we join again: it is committed in the new generation's name.
            if self._share is not None and self._group.is_cooperative:
                self._group.follow()
        finally:
            self._fetcher.wake()

    async def _before_rebalance(self, group: Membership) -> None:
        if self._fetcher.followed:
            await self._before_joining()
        self._to_follow = None
        is_lost = group.has_lost_place or group.fenced is not None
        if group.is_cooperative and not is_lost:
            await self._give_away([at for at in self._owned if not self._subscription.may_have(at.topic)])
            return
        try:
            await self._give_away(list(self._owned), is_lost=is_lost)
        finally:
            self._give_up()
            self._sought.clear()
            self._to_pause.clear()

    async def _take(self, group: Membership, assigned: Sequence[TopicPartition]) -> None:
        """Follow what the group gave, give up the rest, and tell the listener of both.  Raises an error of that."""
        added = [at for at in assigned if at not in self._owned]
        given = frozenset(assigned)
        revoked = [at for at in self._owned if at not in given]
        self._owned |= dict.fromkeys(added)
        self._to_follow = self._not_read(assigned)
        not_read_yet = {at for at in assigned if self.is_not_read_yet(at)}
        self._sought = {at: found for at, found in self._sought.items() if at in not_read_yet}
        self._to_pause.intersection_update(not_read_yet)
        error: BaseException | None = None
        try:
            if revoked:
                await self._before_joining()
            await self._give_away(revoked)
        except RAISED_BY_USER as raised:
            error = raised
        group.has_now(list(self._owned), gave_up=bool(revoked))
        end_if_cancelled()
        try:
            await tell(self._listener, "on_partitions_assigned", added)
        except RAISED_BY_USER as raised:
            error = error or raised
        end_if_cancelled()
        self._to_follow = self._not_read(assigned)  # all of it where `begin_at_committed` was called meanwhile
        if error is not None:
            raise error

    def _not_read(self, assigned: Sequence[TopicPartition]) -> dict[TopicPartition, None]:
        read = {*self._fetcher.followed, *self._leaderless}
        return {at: None for at in assigned if at not in read}

    async def _give_away(self, partitions: Sequence[TopicPartition], *, is_lost: bool = False) -> None:
        """Tell the listener that these partitions are revoked (or lost), once, then read them no more."""
        for at in partitions:
            del self._owned[at]
        try:
            if partitions:
                hook = "on_partitions_lost" if is_lost else "on_partitions_revoked"
                await tell(self._listener, hook, partitions)
        finally:
            self._fetcher.drop(partitions)
            self._leaderless = {at: known for at, known in self._leaderless.items() if at not in partitions}

    async def leave(self) -> None:
        """Give up all partitions that the group gave, before the member leaves it."""
        if self._group is not None and self._owned:
            await self._give_away(list(self._owned), is_lost=self._group.has_lost_place)

    def _follow_the_pattern(self) -> None:
        """Read the topics that fit the pattern now, after these have changed; with a group, by joining anew."""
        if self._group is not None:
            self._group.must_join = True
        else:
            topics = {*self._subscription.topics}
            self._fetcher.drop([at for at in self._fetcher.followed if at.topic not in topics])
            self._leaderless = {at: known for at, known in self._leaderless.items() if at.topic in topics}

    async def _follow(self, partitions: Sequence[TopicPartition]) -> None:
        # First the ids: a position that is asked for later is not older than its topic.
        topic_ids = await self._subscription.topic_ids(dict.fromkeys(at.topic for at in partitions))
        positions: dict[TopicPartition, int | OffsetAndMetadata] = dict(self._otherwise)
        if self._offsets is not None and partitions:
            committed = await self._offsets.committed(partitions)
            known = {at: found for at, found in committed.items() if found is not None and at not in self._sought}
            there = {at: found for at, found in known.items() if at.topic in topic_ids}
            positions |= known | await self._places.not_behind_the_end(there)
        rest = [at for at in partitions if at.topic in topic_ids and at not in positions and at not in self._sought]
        positions |= await self._places.reset(rest)
        positions |= self._sought
        begun = {at: positions[at] for at in partitions if at in positions}
        leaderless = {at: topic_ids.get(at.topic, ZERO_UUID) for at in partitions if at not in positions}
        if self._keeps:
            self._fetcher.drop([at for at in self._fetcher.followed if at not in self._owned or at in begun])
            self._fetcher.follow_too(begun, topic_ids)
            self._leaderless |= leaderless
        else:
            self._fetcher.follow(begun, topic_ids)
            self._leaderless = leaderless
        self._pause_what_is_read_now()
        if self._group is not None and self._assigned is None:
            self._group.follow()
        self._to_follow, self.is_started = None, True
        self._sought = {at: found for at, found in self._sought.items() if at in self._leaderless}
        self._otherwise = {}

    def _new_partitions(self) -> dict[TopicPartition, uuid.UUID]:
        """New partitions of these topics, with topic ids; in a group none: its leader has it share them out anew."""
        topics = dict.fromkeys(at.topic for at in self._fetcher.followed)
        group = self._group if self._assigned is None else None
        if self._assigned is None and self._subscription.has_changed():
            self._follow_the_pattern()
        counted = group.counted if group is not None else {}
        if self._assigned is None:
            topics |= dict.fromkeys((*self._subscription.topics, *counted))
        missed = [name for name, count in counted.items() if not count] if group is not None else list(topics)
        views = self._subscription.views(list(topics), missed, self._fetcher.refresh)
        if group is not None:
            group.must_join = group.must_join or group.is_to_share_out(views)
        if group is not None or self._assigned is not None:
            return {}
        places = {TopicPartition(name, n): view.topic_id for name, view in views.items() for n in view.leaders}
        known = {*self._fetcher.followed, *self._leaderless}
        new = {at: topic_id for at, topic_id in places.items() if at not in known}
        led = {at: topic_id for at, topic_id in new.items() if self._subscription.is_led(at)}
        if len(led) < len(new):
            self._fetcher.refresh(list(dict.fromkeys(at.topic for at in new if at not in led)))
        return led
