"""Commits the positions of a consumer for its group: when asked, and by itself (auto_commit).

One request after the other, in the order of the calls: a commit that is sent again overtakes none that came later.
One that nothing is in the way of is sent at once, and if all is well its answer ends it, which is the cheapest way
there is; a task does all others, and takes this one over where it is not answered well, or in time.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from fencepost.client.deadline import Deadline
from fencepost.client.errors import (
    BrokerError,
    ClientError,
    ClosedError,
    CommitFailedError,
    MisuseError,
    RetriableError,
    TimedOutError,
)
from fencepost.client.fetcher import Fetcher
from fencepost.client.group_offsets import GroupOffsets
from fencepost.client.interceptors import RAISED_BY_USER
from fencepost.client.lent import Working
from fencepost.client.membership import Membership
from fencepost.client.positions import Positions
from fencepost.client.seldom import Seldom
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import OffsetCommitResponse
from fencepost.protocol.types import TopicPartition

logger = logging.getLogger(__name__)

Committed: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback: TypeAlias = Callable[[Committed, Exception | None], object]
"""Called with the positions, and the error if they were not committed, None if they were."""


class _Callbacks:
    """Calls the callbacks of commits; an exception of one is logged, at most once a minute, and dropped."""

    def __init__(self) -> None:
        self._failed = Seldom()

    def tell(self, callback: CommitCallback, positions: Committed, error: Exception | None) -> None:
        try:
            callback(positions, error)
        except RAISED_BY_USER:
            if (end := self._failed.due(asyncio.get_running_loop().time())) is not None:
                logger.exception("a callback of commit_async() failed%s", end)


class _Commit:
    """A commit that waits or is under way: positions, and the member in whose name they are committed."""

    def __init__(
        self,
        positions: Committed,
        topic_ids: Mapping[TopicPartition, uuid.UUID],
        member: ConsumerGroupMetadata,
        deadline: Deadline,
        callback: CommitCallback | None,
        callbacks: _Callbacks,
        working: Working,
    ) -> None:
        self.positions = positions
        self.working, self.worked_on = working, frozenset(working)
        """The partitions that the caller worked on at the call; more may be handed out into `working` since then."""
        self.topic_ids = topic_ids
        self.member = member
        self.deadline = deadline
        self.done: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        self._callback, self._callbacks = callback, callbacks

    def end(self, error: Exception | None) -> None:
        """End it: it is stored, or `error` says why not."""
        if self._callback is not None:
            self._callbacks.tell(self._callback, self.positions, error)
        if self.done.done():
            return
        if error is None:
            self.done.set_result(self.positions)
        else:
            self.done.set_exception(error)
            if self._callback is not None:
                self.done.exception()  # it has been told


class Commits:
    """Commits the positions of one consumer, by itself every `auto_commit_interval_ms` milliseconds (None: never)."""

    def __init__(
        self, group: Membership | None, fetcher: Fetcher, places: Positions, auto_commit_interval_ms: float | None
    ) -> None:
        self._group = group
        self._offsets = None if group is None else GroupOffsets(group)
        self._fetcher = fetcher
        self._places = places
        self.is_automatic = group is not None and auto_commit_interval_ms is not None
        self._interval = (auto_commit_interval_ms or 0) / 1000
        self._last = 0.0
        """When the last automatic commit began, in seconds of the loop's clock."""
        self._by_itself: asyncio.Future[Committed] | None = None
        """The last automatic commit."""
        self._not_committed = Seldom()
        self._callbacks = _Callbacks()
        self._waiting: list[_Commit] = []
        """The commits that are not sent yet, in the order of the calls."""
        self._sent: Sequence[_Commit] = ()
        """The commits in the request that is under way."""
        self._work: asyncio.Task[None] | None = None
        """The task that sends the commits which cannot be sent at once; None: it was never needed."""
        self._at_once: asyncio.Future[OffsetCommitResponse] | None = None
        """The answer to the commit that was sent at once; None: none is under way."""
        self._late: asyncio.TimerHandle | None = None

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit these positions (None: those after all records handed out).  Raises as `Consumer.commit` does."""
        commit = self._begin(offsets)
        if commit is None:
            await self.settled()
            return
        try:
            if self._at_once is not None and commit in self._sent:
                await commit.done  # which has an end in time
            else:
                await commit.deadline.within(commit.done)
        finally:
            if commit in self._waiting:
                self._waiting.remove(commit)
            elif commit.done.done() and not commit.done.cancelled():
                commit.done.exception()  # whoever is cancelled does not ask

    def commit_async(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None, callback: CommitCallback | None
    ) -> asyncio.Future[Committed]:
        """As `commit`, without waiting for it; the future's result is the positions that were committed.

        Raises TypeError, MisuseError and FencedInstanceIdError at once.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"callback={callback!r}: it must be something to call, as in callback(offsets, error)")
        commit = self._begin(offsets, callback)
        if commit is not None:
            return commit.done
        nothing: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        nothing.set_result({})
        if callback is not None:
            self._callbacks.tell(callback, {}, None)
        return nothing

    def _begin(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None,
        callback: CommitCallback | None = None,
    ) -> _Commit | None:
        """Send or queue a commit of positions (None: all); None if there are none.  Raises as `commit_async`."""
        if self._group is None or self._offsets is None:
            raise MisuseError("commit() needs a group_id: give the consumer one")
        if self._group.fenced is not None:
            raise self._group.fenced
        self._fetcher.settle()  # else what a thread took last is noted behind what is committed
        positions = self.next_offsets() if offsets is None else self._places.checked(offsets)
        if not positions:
            return None
        commit = _Commit(
            positions,
            self._topic_ids(positions),
            self._group.metadata(),
            self._offsets.deadline(),
            callback,
            self._callbacks,
            self._fetcher.working,
        )
        if not (self._is_idle and self._sent_at_once(self._offsets, commit)):
            self._waiting.append(commit)
            if self._is_idle:
                self._set_to_work(self._offsets)
        return commit

    @property
    def _is_idle(self) -> bool:
        return self._at_once is None and (self._work is None or self._work.done())

    def _set_to_work(self, offsets: GroupOffsets, begun: asyncio.Future[OffsetCommitResponse] | None = None) -> None:
        self._work = asyncio.get_running_loop().create_task(self._send_all(offsets, begun))

    def _sent_at_once(self, offsets: GroupOffsets, commit: _Commit) -> bool:
        answer = offsets.begin(commit.positions, commit.topic_ids, commit.member)
        if answer is None:
            return False
        self._at_once, self._sent = answer, [commit]
        answer.add_done_callback(self._answered_at_once)
        if self._late is None:
            self._watch(commit.deadline)
        return True

    def _answered_at_once(self, answer: asyncio.Future[OffsetCommitResponse]) -> None:
        if answer is not self._at_once:
            # It was late or this was closed, perhaps in the same turn of the loop: whoever goes on with it may be gone.
            if not answer.cancelled():
                answer.exception()
            return
        (commit,), offsets = self._sent, self._offsets
        assert offsets is not None, "who has sent something has a group"
        self._at_once = None
        if answer.exception() is not None or not offsets.is_stored(answer.result()):
            self._set_to_work(offsets, answer)
            return
        self._sent = ()
        self._are_done(commit)
        if self._waiting:
            self._set_to_work(offsets)
        commit.end(None)

    def _watch(self, deadline: Deadline) -> None:
        self._late = asyncio.get_running_loop().call_later(deadline.left, self._look_whether_late)

    def _look_whether_late(self) -> None:
        """Hand the commit sent at once over to the task if it is late, else look again when it would be."""
        self._late = None
        if self._at_once is None or self._offsets is None:
            return
        if (deadline := self._sent[0].deadline).left > 0:
            self._watch(deadline)
            return
        begun, self._at_once = self._at_once, None
        self._set_to_work(self._offsets, begun)

    def _topic_ids(self, positions: Committed) -> dict[TopicPartition, uuid.UUID]:
        """The topic id of each position, if known: those of a topic that was made anew may be of the former one."""
        followed = self._fetcher.followed
        read = {at: followed[at].topic_id for at in positions if at in followed}
        named = {at.topic: topic_id for at, topic_id in read.items()}
        return {at: read.get(at, named[at.topic]) for at in positions if at.topic in named}

    async def _send_all(self, offsets: GroupOffsets, begun: asyncio.Future[OffsetCommitResponse] | None) -> None:
        """Send all commits that wait, several in one request if possible.  `begun`: the answer to one sent at once."""
        while begun is not None or self._waiting:
            if begun is None:
                self._sent = _for_one_request(self._waiting)
                del self._waiting[: len(self._sent)]
            together = self._sent
            error = await self._send(offsets, together, begun)
            begun = None
            if error is None or len(together) == 1 or isinstance(error, CommitFailedError | TimedOutError):
                for each in together:
                    each.end(error)
            else:  # one of them may be refused for itself
                for each in together:
                    each.end(await self._send(offsets, [each]))
            self._sent = ()

    async def _send(
        self,
        offsets: GroupOffsets,
        commits: Sequence[_Commit],
        begun: asyncio.Future[OffsetCommitResponse] | None = None,
    ) -> Exception | None:
        positions: dict[TopicPartition, OffsetAndMetadata] = {}
        topic_ids: dict[TopicPartition, uuid.UUID] = {}
        for each in commits:
            positions |= each.positions
            topic_ids |= each.topic_ids
        try:
            await offsets.commit(positions, topic_ids, commits[-1].member, commits[-1].deadline, begun)
        except Exception as error:
            return error
        for each in commits:
            self._are_done(each)
        return None

    def _are_done(self, commit: _Commit) -> None:
        """Note that positions are committed: unless more was handed out, none before them is committed later."""
        if commit.working is self._fetcher.working:
            same = commit.worked_on & commit.working.keys()
            commit.working |= {at: position for at, position in commit.positions.items() if at in same}

    async def settled(self) -> None:
        """Wait until no commit is under way or waits for its turn."""
        while not self._is_idle:
            under_way = self._at_once or self._work
            assert under_way is not None, "idle is who has neither"
            await asyncio.wait([under_way])
            await asyncio.sleep(0)  # who is told of its end, and commits again, does so before

    def close(self) -> None:
        """End the commits that wait or are under way with a ClosedError."""
        if self._work is not None:
            self._work.cancel()
        if self._at_once is not None:
            self._at_once.cancel()
            self._at_once = None
        if self._late is not None:
            self._late.cancel()
        left, self._waiting = [*self._sent, *self._waiting], []
        for each in left:
            if not each.done.done():
                each.end(
                    ClosedError(
                        "the consumer is closed; whether these positions are stored is not known: ask committed()"
                    )
                )

    async def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets, None where it has none.  Raises MisuseError without a group."""
        if self._offsets is None:
            raise MisuseError("committed() needs a group_id: give the consumer one")
        return await self._offsets.committed(partitions)

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """By partition, the position after the records handed out and the control and aborted records behind them."""
        self._fetcher.settle()
        return {at: followed.committed() for at, followed in self._fetcher.followed.items()}

    def _done(self) -> dict[TopicPartition, int | OffsetAndMetadata]:
        """By partition, the position after the records that the caller is done with: not those handed out last."""
        return {**self.next_offsets(), **self._fetcher.before_work()}

    async def commit_done(self) -> None:
        """Commit the positions after the records that the caller is done with.  Raises as `commit`."""
        positions = self._done()
        if positions:
            await self.commit(positions)

    def commit_if_due(self) -> None:
        """Begin an automatic commit if one is due; it is not waited for."""
        if not self.is_due() or (self._by_itself is not None and not self._by_itself.done()):
            return
        self._last = asyncio.get_running_loop().time()
        positions = self._done()
        if positions and self._group is not None and self._group.fenced is None:
            self._by_itself = self.commit_async(positions, self._note)

    def _note(self, _: Committed, error: Exception | None) -> None:
        """Note how an automatic commit ended: a failure that may pass is logged, any other raised by the next poll."""
        if isinstance(error, CommitFailedError):
            logger.info("%s", error)  # who prepares joins again
        elif isinstance(error, RetriableError | ClosedError):
            if (end := self._not_committed.due(asyncio.get_running_loop().time())) is not None:
                logger.warning("positions were not committed, which is tried again: %s%s", error, end)
        elif isinstance(error, ClientError):
            self._fetcher.error = error
        elif error is not None:
            logger.error("positions were not committed", exc_info=error)

    def is_due(self) -> bool:
        """Whether an automatic commit is to begin now."""
        return self.is_automatic and asyncio.get_running_loop().time() - self._last >= self._interval

    async def before_joining(self) -> None:
        """Before partitions are given up: commit if that is automatic, and wait for the commits under way."""
        if self.is_automatic:
            try:
                await self.commit_done()
            except CommitFailedError:
                pass  # they belong to others by now, who read them again
            except BrokerError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                # There is nothing to keep positions of, and who waited for that would give up nothing any more.
                logger.warning("before a rebalance %s", error)
        await self.settled()


def _for_one_request(commits: Sequence[_Commit]) -> list[_Commit]:
    """The first ones, as many as are in the name of the same member, and of topics that were not made anew between."""
    member, topic_ids, found = commits[0].member, dict[TopicPartition, uuid.UUID](), list[_Commit]()
    for each in commits:
        if each.member != member or any(topic_ids.get(at, known) != known for at, known in each.topic_ids.items()):
            break
        topic_ids |= each.topic_ids
        found.append(each)
    return found
