"""The one loop that reads, transforms and writes: what both faces of `ExactlyOnce` do, by the table in `loop_steps`.

Nothing is read while a transaction is open.  A consumer joins its group anew only when it reads, so its partitions go
to somebody else only after its transaction has ended; or after the group's rebalance time-out, and then the coordinator
refuses the positions of the last generation, and the transaction is aborted (KIP-447).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final, Protocol, TypeVar

from fencepost.client.consumer import Consumer
from fencepost.client.errors import ClientError, CommitFailedError, MisuseError
from fencepost.client.loop_claims import claim
from fencepost.client.loop_steps import Next, Phase, follows
from fencepost.client.records import ConsumerRecord
from fencepost.client.settings import check_counts, check_milliseconds
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.types import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Milliseconds after which somebody who waits for records looks whether the loop is to stop.
_SLICE_MS: Final = 200
#: Seconds between two tries.
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0


class TransactionalProducer(Protocol):
    """What the loop uses of a producer, in whichever event loop that runs."""

    @property
    def transactional_id(self) -> str | None: ...

    @property
    def is_initialized(self) -> bool: ...

    async def init_transactions(self) -> None: ...

    async def begin_transaction(self) -> None: ...

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str | ConsumerGroupMetadata
    ) -> None: ...

    async def commit_transaction(self) -> None: ...

    async def abort_transaction(self) -> None: ...


class State(Enum):
    """The states of a transaction that was handed out."""

    HANDED_OUT = auto()
    OPEN = auto()
    COMMITTED = auto()
    ENDED = auto()
    """Aborted or given up, or not known yet."""


class Handed:
    """Records handed out for one transaction; `positions` are those after them, `first` their first offsets."""

    def __init__(self, consumer: Consumer, records: Sequence[ConsumerRecord]) -> None:
        self.state = State.HANDED_OUT
        self.member = consumer.group_metadata()
        self.records: list[ConsumerRecord] = []
        self.first: dict[TopicPartition, int] = {}
        self.positions: dict[TopicPartition, OffsetAndMetadata] = {}
        self.add(consumer, records)

    def add(self, consumer: Consumer, records: Sequence[ConsumerRecord]) -> None:
        """Add the records that follow."""
        self.records += records
        for record in records:
            self.first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        self.positions = {at: reached for at, reached in consumer.next_offsets().items() if at in self.first}

    def precede(self, records: Sequence[ConsumerRecord]) -> None:
        """Take the offsets of these records into `first`, as they come before ours or are of other partitions."""
        for record in records:
            at = TopicPartition(record.topic, record.partition)
            self.first[at] = min(self.first.get(at, record.offset), record.offset)

    def goes_on_with(self, consumer: Consumer, records: Sequence[ConsumerRecord]) -> bool:
        """Whether these records follow ours: the consumer did not go on elsewhere meanwhile, as after a rebalance."""
        reached = {at: each.offset for at, each in consumer.next_offsets().items() if at in self.first}
        if consumer.group_metadata() != self.member or len(reached) < len(self.first):
            return False
        for record in reversed(records):
            reached[TopicPartition(record.topic, record.partition)] = record.offset
        return all(reached[at] >= position.offset for at, position in self.positions.items())


class TransactionLoop:
    """Hands out records, one transaction at a time: `next`, `begin` what it gave, `end` it.

    One loop at a time, too: a second one on the same consumer or producer is refused while this one has handed out what
    has not ended.
    """

    def __init__(
        self,
        consumer: Consumer,
        producer: TransactionalProducer,
        *,
        max_records: int,
        linger_ms: float,
        retry_timeout_ms: float,
    ) -> None:
        check_counts(max_records=max_records)
        check_milliseconds(linger_ms=linger_ms, retry_timeout_ms=retry_timeout_ms)
        if producer.transactional_id is None:
            raise MisuseError("the producer has no transactional_id: give it one")
        consumer.check_transactional()
        self._consumer = consumer
        self._producer = producer
        self._max_records = max_records
        self._linger = linger_ms / 1000
        self._retry_seconds = retry_timeout_ms / 1000
        self._patience = _Patience(self._retry_seconds)
        """The patience with transactions that fail, until one is committed."""
        self._idle_since: float | None = None
        """Since when there are no records, in seconds of the event loop's clock; None: there are some."""
        self._is_stopped = False
        self._is_busy = False
        self._handed: Handed | None = None
        """The last records that were handed out; None: none were."""
        self._begun_as: tuple[ConsumerGroupMetadata, list[TopicPartition]] | None = None
        """The last member and partitions of which the group has committed where they were begun."""
        self._unsettled: Phase | None = None
        """COMMIT or ABORT: the end that its transaction was to have, if that may not have been done; else None."""

    def stop(self) -> None:
        """Have `next` return None from now on."""
        self._is_stopped = True

    # Handing out

    async def next(self) -> Handed | None:
        """The next records; None after `stop`.  What became of the last transaction is found out first."""
        with self._alone():
            self._check_left()
            await self._settle()
            if not self._producer.is_initialized:
                await self._done(Phase.INIT, self._producer.init_transactions)
            while not self._is_stopped:
                self._handed = await self._done(Phase.POLL, self._collect)
                self._note_idleness()
                if self._handed is not None:
                    return self._handed
            return None

    def take_back(self, handed: Handed | None) -> None:
        """Hand out again the records that `next` gave last, as the caller never got them."""
        if handed is not None and handed.state is State.HANDED_OUT:
            self._put_back(handed)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A block for one call.  Raises MisuseError during another: what it puts back could be committed by that."""
        if self._is_busy:
            raise MisuseError("a transaction is asked for, begun or ended already: one task at a time")
        claim(self, {"consumer": self._consumer, "producer": self._producer})
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    @property
    def is_in_use(self) -> bool:
        """Whether it has something handed out that has not ended, or is about to."""
        is_out = self._handed is not None and self._handed.state in (State.HANDED_OUT, State.OPEN)
        return is_out or self._is_busy

    def _note_idleness(self) -> None:
        """Renew the patience if there were no records for as long as it lasts."""
        now = asyncio.get_running_loop().time()
        if self._handed is not None:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since > self._retry_seconds:
            self._patience.renew()

    def _check_left(self) -> None:
        """Raises MisuseError if the last transaction was not entered, or not left; its records are put back then."""
        handed = self._handed
        if handed is None or handed.state in (State.COMMITTED, State.ENDED):
            return
        was_open = handed.state is State.OPEN
        self._put_back(handed)
        if was_open:
            self._unsettled = Phase.ABORT
            raise MisuseError("the last transaction was not left, and is aborted: leave its block first")
        raise MisuseError("the last transaction was not entered: process its records inside `with` (`async with`)")

    async def _collect(self) -> Handed | None:
        """The records that are there, and those that come within `linger_ms`; None: none came."""
        loop, consumer = asyncio.get_running_loop(), self._consumer
        records = await consumer.poll(_SLICE_MS, self._max_records)
        handed, end = Handed(consumer, records) if records else None, loop.time() + self._linger
        try:
            await self._note_beginnings(handed)
            while handed is not None and (room := self._max_records - len(handed.records)):
                if (left := end - loop.time()) <= 0 or self._is_stopped:
                    break
                records = await consumer.poll(min(left * 1000, _SLICE_MS), room)
                if handed.goes_on_with(consumer, records):
                    handed.add(consumer, records)
                elif consumer.keeps_positions or consumer.group_metadata() == handed.member:
                    handed.precede(records)  # for reading goes on behind them, in what is kept
                    self._put_back(handed)
                    return None
                else:
                    handed = Handed(consumer, records) if records else None
        except BaseException as error:
            if handed is not None:
                self._put_back(handed)
            if not isinstance(error, CommitFailedError):  # of the beginnings, which is tried again after the rebalance
                raise
            return None
        return handed

    async def _note_beginnings(self, handed: Handed | None) -> None:
        """Commit where reading begins in partitions of which the group has no committed offset.

        Whoever has them after a rebalance would begin elsewhere otherwise, and what came meanwhile would be lost.
        """
        consumer = self._consumer
        if consumer.begins_at_beginning:
            return
        member, assigned = consumer.group_metadata(), consumer.assignment()
        if member.generation_id < 0 or (member, assigned) == self._begun_as or not assigned:
            return
        begun = {at: consumer.position(at) for at in assigned} | (handed.first if handed is not None else {})
        committed = await consumer.committed(assigned)
        await consumer.commit({at: begun[at] for at, found in committed.items() if found is None})
        self._begun_as = member, assigned

    def _put_back(self, handed: Handed) -> None:
        """Have these read again: by this consumer where it has their partitions, unless it is before them already, for
        a log was truncated, or its topic made anew; else by whoever has them."""
        handed.state = State.ENDED
        if self._consumer.group_metadata() != handed.member:
            if self._consumer.keeps_positions:
                self._go_back_to_committed(handed)
            return
        for at, position in self._consumer.next_offsets().items():
            if at in handed.first:
                self._consumer.seek(at, min(handed.first[at], position.offset))

    def _go_back_to_committed(self, handed: Handed) -> None:
        """Go back to the committed offsets; without one, before these records, in other partitions to the position."""
        consumer = self._consumer
        consumer.seek_to_committed({at: each.offset for at, each in consumer.next_offsets().items()} | handed.first)

    # One transaction

    async def begin(self, handed: Handed) -> None:
        """Open the transaction.  Raises MisuseError unless these are the records that `next` gave last."""
        if handed is not self._handed or handed.state is not State.HANDED_OUT:
            raise MisuseError("a transaction is entered once, before the next one: ask the loop for that")
        with self._alone():
            try:
                await self._done(Phase.BEGIN, self._producer.begin_transaction)
            except BaseException as error:
                await self._follow_up(Phase.BEGIN, error, handed)
                raise
            handed.state = State.OPEN

    async def end(self, handed: Handed, error: BaseException | None) -> bool:
        """End a transaction: commit, or do what the table says for an error of the block; whether that is dealt with.

        Raises the error of a step that is not dealt with, and MisuseError if the transaction is not open.
        """
        if handed.state is not State.OPEN:
            raise MisuseError("this transaction is not open: enter its block first")
        with self._alone():
            return await self._end(handed, error)

    async def _end(self, handed: Handed, error: BaseException | None) -> bool:
        phase, producer = Phase.BLOCK, self._producer
        try:
            if error is None:
                phase = Phase.SEND_OFFSETS
                # Nobody has polled, so whatever epoch the member has by now the partitions are ours still, or lost.
                await self._done(
                    phase,
                    lambda: producer.send_offsets_to_transaction(
                        handed.positions, self._consumer.as_of_now(handed.member)
                    ),
                )
                phase = Phase.COMMIT
                await self._done(phase, producer.commit_transaction)
        except BaseException as failure:
            error = failure
        if error is None:
            self._has_committed(handed)
        elif not await self._follow_up(phase, error, handed):
            if phase is not Phase.BLOCK:
                raise error
            return False
        return True

    def _has_committed(self, handed: Handed) -> None:
        handed.state = State.COMMITTED
        self._unsettled = None
        self._patience.renew()

    async def _settle(self) -> None:
        """Abort the last transaction, or find out whether it was committed, if that is not known."""
        handed, phase = self._handed, self._unsettled
        if handed is None or phase is None:
            return
        if phase is Phase.ABORT:
            await self._abort()
            return
        try:
            await self._done(Phase.COMMIT, self._producer.commit_transaction)
        except BaseException as error:
            if not await self._follow_up(Phase.COMMIT, error, handed):
                raise
        else:
            self._has_committed(handed)

    # What follows

    async def _done(self, phase: Phase, call: Callable[[], Awaitable[T]]) -> T:
        """Call until it succeeds; its result.  Raises an error that is not to be tried again, or for too long was."""
        patience = _Patience(self._retry_seconds)
        while True:
            try:
                return await call()
            except BaseException as error:
                if follows(phase, error) is not Next.AGAIN or not await patience.pause():
                    raise
                logger.warning("%s is tried again: %s", self._named(phase), error)

    async def _follow_up(self, phase: Phase, error: BaseException, handed: Handed) -> bool:
        """Do what the table says for an error; True: the records are handed out again, False: raise the error."""
        step = follows(phase, error)
        handed.state = State.ENDED
        if step in (Next.RETRY, Next.GIVE_UP):
            self._put_back(handed)
            self._unsettled = Phase.ABORT
        if step is Next.RETRY:
            logger.warning(
                "%s: its %d records are handed out again: %s", self._named(phase), len(handed.records), error
            )
            await self._abort()
            return await self._patience.pause()
        if step is Next.GIVE_UP:
            await self._abort_because_of(error)
        elif step is Next.PUT_BACK or phase is Phase.BEGIN:
            self._put_back(handed)
        elif phase is Phase.COMMIT:
            self._unsettled = None if step is Next.LEAVE else Phase.COMMIT
            self._go_back_to_committed(handed)
            if step is Next.SETTLE:
                await self._ask_once_more(handed)
        return False

    async def _abort(self) -> None:
        await self._done(Phase.ABORT, self._producer.abort_transaction)
        self._unsettled = None

    async def _abort_because_of(self, error: BaseException) -> None:
        """Abort because of `error`, once; if that fails `error` gets a note, and `next` aborts before anything else."""
        try:
            await self._producer.abort_transaction()
            self._unsettled = None
        except ClientError as failure:
            error.add_note(
                f"The transaction could not be aborted ({failure}): the broker aborts it when its time is up."
            )

    async def _ask_once_more(self, handed: Handed) -> None:
        try:
            await self._producer.commit_transaction()
        except ClientError as error:
            logger.warning("%s: it is not known what became of it: %s", self._named(Phase.COMMIT), error)
        else:
            self._has_committed(handed)

    def _named(self, phase: Phase) -> str:
        return f"transactional_id={self._producer.transactional_id} {phase.name}"


class _Patience:
    """For how many seconds failures are followed by another try: from the first one on, until it is renewed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None
        self._pause = _FIRST_PAUSE

    async def pause(self) -> bool:
        """Wait before the next try, 20 ms to 1 s; False, at once, if the time is up."""
        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until = now + self._seconds
        if now + self._pause > self._until:
            return False
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        await asyncio.sleep(pause)
        return True

    def renew(self) -> None:
        """Forget the failures so far: the seconds count from the next one on."""
        self._until, self._pause = None, _FIRST_PAUSE
