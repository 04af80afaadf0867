"""When logs are cleaned: the dirtiest first, in steps between which everybody else works.

One at a time, but some of the coordinators' journals together: while one waits for the disk the next one goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from fencepost.log.cleaner import first_dirty_offsets, pace
from fencepost.log.cleaner.choice import Range, SegmentFacts, cleanable_range, should_roll
from fencepost.log.cleaner.cleaning import Abandoned, Uncleanable
from fencepost.log.cleaner.first_dirty_offsets import FirstDirtyOffsets, LogId, id_of
from fencepost.log.cleaner.offset_map import OffsetMap
from fencepost.log.cleaner.settings import CleanerSettings
from fencepost.log.cleaner.work import Chosen, CleanerMetrics, Work
from fencepost.log.commit_log import StorageFailed
from fencepost.log.damage import FileDamaged, not_written
from fencepost.log.disk import Disk, File, NothingLeft
from fencepost.log.partition import Partition
from fencepost.log.segment import Segment
from fencepost.log.settings import LONG
from fencepost.node_log import get_logger
from fencepost.protocol.types import Milliseconds
from fencepost.runtime import Clock

logger = get_logger(__name__)

#: Seconds until a pass that waits for a reader looks again.
PATIENCE: Final = 0.05

#: With log.cleaner.backoff.ms=0, which is no pause, it is looked ten times a second.
_UNNAMED_BACKOFF_MS: Final = 100

#: Seconds until it is measured again how much waits to be cleaned.
_MEASURED_FOR: Final = 0.25


class Timer(Protocol):
    """What `call_later` returns."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Timers of the event loop."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer: ...

    def time(self) -> float:
        """The loop's clock, in seconds."""
        ...


class Storage(Protocol):
    """What the cleaner needs of the node's storage."""

    path: Path
    failure: StorageFailed | None

    @property
    def disk(self) -> Disk: ...

    def partition(self, topic: str, index: int) -> Partition | None: ...

    def partitions(self) -> Iterator[Partition]: ...

    def is_settled(self, partition: Partition, segment: Segment) -> bool: ...

    def checkpoint_soon(self) -> None: ...

    def fail(self, failure: StorageFailed) -> None: ...


class LogCleaner:
    """Chooses which compacted partitions are cleaned next, and cleans some at once, on timers of the event loop.

    `start` it when the journals are read; `close` it before the storage.
    """

    def __init__(self, storage: Storage, settings: CleanerSettings, clock: Clock, timers: Timers) -> None:
        self._storage = storage
        self._settings = settings
        self._clock = clock
        self._timers = timers
        self._first_dirty = FirstDirtyOffsets(storage.disk, storage.path)
        self._later: dict[LogId, int] = {}
        """Not to be tried again before that time: there was no room."""
        self._unsettled_since: int | None = None
        self._chosen: list[Chosen] = []
        """What is cleaned after this, the dirtiest last."""
        self._under_way: list[Work] = []
        """Passes that were begun."""
        self._ready: deque[Work] = deque()
        """Those of them that wait for nothing but their turn."""
        self._turn_ends = 0.0
        self._rest = 0.0
        """Seconds that the next turn must wait for, at least."""
        self._journals: list[Partition] = []
        self._behind = 0
        """Bytes of them that wait to be cleaned, when they were last measured."""
        self._measure_at = 0.0
        self._survey_at = 0.0
        self._timer: Timer | None = None
        self._due = 0.0
        """When it rings."""
        self._is_closed = False
        self.uncleanable: dict[LogId, str] = {}
        """Logs that cannot be cleaned until the node is started again, and why."""
        self.metrics = CleanerMetrics()

    def start(self) -> None:
        self._first_dirty.keep(self._storage.partition)
        if self._settings.enable:
            self._wait(min(self._settings.backoff_ms, self._settings.journal_interval_ms) / 1000)

    def abandon(self) -> None:
        """What a crash does: nothing more happens."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Stop in the middle, which is no harm."""
        self.abandon()
        for work in self._under_way:
            work.stop()
        self._under_way.clear()
        self._ready.clear()

    def _wait(self, seconds: float) -> None:
        assert self._timer is None, "one thing at a time"
        self._due = self._timers.time() + seconds
        self._timer = self._timers.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._storage.failure is not None:
            return
        if self._chosen or self._under_way:
            self._take_turn()
        else:
            self._look()

    def _take_turn(self) -> None:
        """Go on with one pass after the other, until the time is over or all of them wait for something."""
        begin = self._timers.time()
        if begin >= self._measure_at:
            self._measure_at = begin + _MEASURED_FOR
            self._behind = pace.backlog(self._journals, self._first_dirty.of)
        if self._journals and begin >= self._survey_at:
            # What grows meanwhile must not wait until all of this is done.
            self._survey()
        self._turn_ends = begin + pace.turn(begin - self._due, self._behind)
        while (work := self._next()) is not None:
            self._go_on(work)
            if self._is_closed or self._storage.failure is not None:
                return
            if self._timers.time() >= self._turn_ends:
                break
        # At most half of the time is the cleaner's.
        self._rest = max(self._rest, self._timers.time() - begin)
        self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        """Have another turn, if there is something to do in it."""
        if self._timer is None and (self._ready or self._may_begin() or not self._under_way):
            rest, self._rest = self._rest, 0.0
            self._wait(rest)

    def _next(self) -> Work | None:
        """A pass that can go on, or one that is begun for it."""
        if self._ready:
            return self._ready.popleft()
        while self._may_begin():
            chosen = self._chosen.pop()
            if chosen.is_there:
                return self._begin(chosen)
        return None

    def _begin(self, chosen: Chosen) -> Work:
        capacity = self._settings.capacity
        if chosen.is_journal:
            capacity = max(capacity // pace.TOGETHER, 1)
        newest = OffsetMap(chosen.over.first_dirty_offset, capacity)
        work = Work(chosen, newest, self._clock.now(), self._timers.time())
        self._under_way.append(work)
        return work

    def _may_begin(self) -> bool:
        """Whether the next one that was chosen may be begun beside those that are under way."""
        if not self._chosen or not self._under_way:
            return bool(self._chosen)
        alone = not (self._chosen[-1].is_journal and self._under_way[-1].is_journal)
        return not alone and len(self._under_way) < pace.TOGETHER

    # What to clean

    def _look(self) -> None:
        self._survey()
        if self._chosen:
            self._wait(0)
            return
        interval = self._settings.backoff_ms or _UNNAMED_BACKOFF_MS
        self._wait((min(interval, self._settings.journal_interval_ms) if self._journals else interval) / 1000)

    def _survey(self) -> None:
        """See what is worth a pass: it comes after what was chosen before."""
        now, at = self._clock.now(), self._running_for()
        self.metrics.last_run = now
        self._forget()
        compacted = [each for each in self._storage.partitions() if each.settings.is_compacted]
        self._journals = [each for each in compacted if each.settings.journal_roll_bytes >= 0]
        self._survey_at = self._timers.time() + self._settings.journal_interval_ms / 1000
        self._roll(self._journals)
        self._chosen[:0] = self._choose(compacted, now, at)
        self._first_dirty.note(at, self._settings.backoff_ms, lambda e: self._fail(e, first_dirty_offsets.NAME))

    def _running_for(self) -> Milliseconds:
        """A time that nobody sets: by the wall clock a log would wait for as long as that was set back."""
        return Milliseconds(int(self._timers.time() * 1000))

    def _forget(self) -> None:
        """What was said of logs that are gone: one that is made again under the name of one of them is another log."""
        self._first_dirty.keep(self._storage.partition)
        for said in (self._later, self.uncleanable):
            for log in [log for log in said if not self._is_there(log)]:
                del said[log]

    def _is_there(self, log: LogId) -> bool:
        found = self._storage.partition(log.topic, log.partition)
        return found is not None and id_of(found) == log

    def _roll(self, journals: Sequence[Partition]) -> None:
        """Apache Kafka never cleans the segment that is written to: a journal begins a new one when it pays."""
        for partition in journals:
            active, dirty = partition.segments[-1], self._first_dirty.of(partition)
            clean = sum(each.size for each in partition.segments[:-1] if each.base_offset < dirty)
            if should_roll(active.size, clean, partition.settings.journal_roll_bytes):
                try:
                    partition.roll()
                except NothingLeft:
                    return
                except (FileDamaged, OSError) as error:
                    # It is for its next writer to meet that again, and for others to go on.
                    partition.refusal(not_written(partition.directory, error))

    def _choose(self, compacted: Sequence[Partition], now: Milliseconds, at: Milliseconds) -> list[Chosen]:
        """The partitions that are worth it, the dirtiest last.  What is not settled is told to the storage.

        `now` is the wall clock's time, `at` that of `_running_for`.
        """
        found: list[Chosen] = []
        unsettled = 0
        taken = {each.partition for each in self._chosen} | {each.partition for each in self._under_way}
        self.metrics.max_dirty_percent = self.metrics.max_compaction_delay_secs = 0.0
        for partition in compacted:
            log = id_of(partition)
            if len(partition.segments) < 2 or log in self.uncleanable or self._later.get(log, 0) > at:
                continue
            try:
                wanted, possible = self._ranges(partition, now)
            except (FileDamaged, OSError) as error:
                self._leave(log, error)
                continue
            self.metrics.max_dirty_percent = max(self.metrics.max_dirty_percent, 100 * wanted.dirty_ratio)
            delay = max(wanted.overdue_ms, 0) / 1000
            self.metrics.max_compaction_delay_secs = max(self.metrics.max_compaction_delay_secs, delay)
            if not wanted.is_worth_it(partition.settings):
                continue
            unsettled += wanted.dirty_bytes - possible.dirty_bytes
            if partition not in taken and possible.is_worth_it(partition.settings):
                found.append(Chosen(partition, possible))
        self._settle(unsettled, at)
        return sorted(found, key=lambda each: each.over.dirty_ratio)

    def _ranges(self, partition: Partition, now: Milliseconds) -> tuple[Range, Range]:
        """What should be cleaned, and what of it may be cleaned now."""
        timed = partition.settings.max_compaction_lag_ms < LONG
        facts = [
            SegmentFacts(
                segment.base_offset,
                segment.size,
                segment.max_timestamp,
                _first_timestamp(segment) if timed else -1,
                self._storage.is_settled(partition, segment),
            )
            for segment in partition.segments
        ]
        dirty, stable, settings = self._first_dirty.of(partition), partition.last_stable_offset, partition.settings
        everything = [each._replace(settled=True) for each in facts]
        return (
            cleanable_range(everything, dirty, stable, settings, now),
            cleanable_range(facts, dirty, stable, settings, now),
        )

    def _settle(self, unsettled: int, at: Milliseconds) -> None:
        """Have a checkpoint when enough waits for one, or anything has waited for long."""
        if not unsettled:
            self._unsettled_since = None
            return
        if self._unsettled_since is None:
            self._unsettled_since = at
        if unsettled >= self._settings.unsettled_bytes or at - self._unsettled_since >= self._settings.backoff_ms:
            self._unsettled_since = at
            self._storage.checkpoint_soon()

    # A pass

    def _go_on(self, work: Work) -> None:
        if self._is_void(work):
            self._end(work)
            return
        try:
            wanted = work.step()
            while wanted is None and self._timers.time() < self._turn_ends:
                wanted = work.step()
        except StopIteration:
            self._done(work)
        except Abandoned:
            self._end(work)
        except Exception as error:
            # Whatever it is, the others are cleaned; nobody would ring for them if it went further up.
            self._give_up(work, error)
        else:
            self._rest += work.moves() / self._settings.io_max_bytes_per_second
            if wanted is None:
                self._ready.append(work)
            elif callable(wanted):
                work.unfold(wanted, partial(self._resume, work))
            elif wanted:
                self._sync(work, wanted)
            else:
                self._timers.call_later(PATIENCE, lambda: self._resume(work))

    def _resume(self, work: Work) -> None:
        """Go on: it waits for nothing any more."""
        if any(each is work for each in self._under_way) and not self._is_closed:
            self._ready.append(work)
            self._wait_for_turn()

    def _is_void(self, work: Work) -> bool:
        """Whether the topic is gone, or is not to be compacted any more."""
        partition = work.partition
        if self._storage.partition(partition.topic, partition.index) is not partition:
            return True
        return not partition.settings.is_compacted and not partition.is_held

    def _sync(self, work: Work, files: Sequence[File]) -> None:
        def synced(error: OSError | None) -> None:
            if error is None:
                self._resume(work)
            elif not self._is_closed:
                self._fail(error, f"a cleaned segment of {work.partition.directory}")

        self._storage.disk.sync(files, synced)

    def _done(self, work: Work) -> None:
        self._first_dirty.cleaned(work.log, work.cleaning.end_offset)
        self._later.pop(work.log, None)
        metrics, done = self.metrics, work.cleaning.statistics
        metrics.passes += 1
        metrics.bytes_read += done.bytes_read + done.bytes_mapped
        metrics.bytes_written += done.bytes_written
        metrics.cleaner_recopy_percent = 100 * done.bytes_written / max(done.bytes_read, 1)
        metrics.max_clean_time_secs = self._timers.time() - work.began
        metrics.max_buffer_utilization_percent = 100 * work.newest.utilization
        work.say()
        self._end(work)

    def _put_off(self, work: Work, full: NothingLeft) -> None:
        if work.log not in self._later:
            logger.warning(
                "no space is left to compact a log, which is tried again: free some topic=%s partition=%d reason=%s",
                *work.log[:2],
                full,
            )
        self._later[work.log] = self._running_for() + self._settings.backoff_ms

    def _give_up(self, work: Work, error: Exception) -> None:
        if work.partition.is_held:
            # Half of a swap is done: only a start can tell what of it.
            self._fail(error, f"a cleaned segment of {work.partition.directory}")
            return
        if isinstance(error, NothingLeft):
            self._put_off(work, error)
        else:
            self._leave(work.log, error)
        self._end(work)

    def _leave(self, log: LogId, error: Exception) -> None:
        self.uncleanable[log] = str(error) or repr(error)
        logger.error(
            "a log is not compacted any more until the node is started again, for it cannot be read: put back a copy "
            "of the file topic=%s partition=%d reason=%s",
            *log[:2],
            str(error) or repr(error),
            exc_info=None if isinstance(error, Uncleanable | FileDamaged | OSError) else error,
        )

    def _fail(self, error: Exception, what: str) -> None:
        """The node ends, as with any sync that fails."""
        self._storage.fail(StorageFailed(f"the disk did not take {what}: {error}"))

    def _end(self, work: Work) -> None:
        work.stop()
        self._under_way.remove(work)


def _first_timestamp(segment: Segment) -> int:
    first = next(segment.headers_from(0), None)
    return -1 if first is None else first[1].max_timestamp
