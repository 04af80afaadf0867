"""Cleans compacted logs: the dirtiest first, in steps between which everybody else works.

One at a time, but some of the coordinators' journals together: while one waits for the disk the next one goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from fencepost.log.cleaner import first_dirty_offsets, pace, surveying
from fencepost.log.cleaner.cleaning import Abandoned
from fencepost.log.cleaner.first_dirty_offsets import FirstDirtyOffsets, LogId
from fencepost.log.cleaner.offset_map import OffsetMap
from fencepost.log.cleaner.settings import CleanerSettings
from fencepost.log.cleaner.surveying import Surveyor
from fencepost.log.cleaner.work import Chosen, CleanerMetrics, Work
from fencepost.log.commit_log import StorageFailed
from fencepost.log.disk import Disk, File, NothingLeft
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
    """A timer of the event loop, as `call_later` returns it."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Timers of the event loop."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer: ...

    def time(self) -> float:
        """The loop's clock, in seconds."""
        ...


class Storage(surveying.Storage, Protocol):
    """The part of the node's storage that the cleaner uses."""

    path: Path
    failure: StorageFailed | None

    @property
    def disk(self) -> Disk: ...

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
        self.metrics = CleanerMetrics()
        self._surveyor = Surveyor(storage, settings, self._first_dirty, self.metrics, self._running_for)
        self._survey: Generator[None, None, list[Chosen]] | None = None
        """The survey that is under way."""
        self._survey_at = 0.0
        self._has_looked = False
        """Whether the last turn was a survey's."""
        self._chosen: list[Chosen] = []
        """The partitions to clean after those under way, the dirtiest last."""
        self._under_way: list[Work] = []
        """Passes that were begun."""
        self._ready: deque[Work] = deque()
        """Passes under way that wait for nothing but their turn."""
        self._turn_ends = 0.0
        self._rest = 0.0
        """Seconds that the next turn must wait for, at least."""
        self._behind = 0
        """Bytes of the journals that wait to be cleaned, when they were last measured."""
        self._measure_at = 0.0
        self._timer: Timer | None = None
        self._due = 0.0
        """When the timer rings, by the loop's clock in seconds."""
        self._is_closed = False

    @property
    def uncleanable(self) -> Mapping[LogId, str]:
        """Logs that cannot be cleaned until the node is started again, and why."""
        return self._surveyor.uncleanable

    def start(self) -> None:
        self._first_dirty.keep(self._storage.partition)
        if self._settings.enable:
            self._wait(min(self._settings.backoff_ms, self._settings.journal_interval_ms) / 1000)

    def abandon(self) -> None:
        """Begin no step any more and give nothing back, as in a crash."""
        self._is_closed = True
        self._survey = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """End the passes under way without a result: what they have not swapped in is removed."""
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
        if self._is_survey_due():
            taken = {each.partition for each in self._chosen} | {each.partition for each in self._under_way}
            self._survey = self._surveyor.survey(self._clock.now(), taken)
        # Passes do not wait until all logs are looked at: a turn of theirs follows each one of the survey.
        if self._survey is None or (self._has_looked and (self._ready or self._may_begin())):
            self._has_looked = False
            self._take_turn()
        else:
            self._has_looked = True
            self._look(self._survey)

    def _running_for(self) -> Milliseconds:
        """Milliseconds of the loop's clock, which nobody sets."""
        return Milliseconds(int(self._timers.time() * 1000))

    # What to clean

    def _is_survey_due(self) -> bool:
        if self._survey is not None:
            return False
        if not self._chosen and not self._under_way:
            return True
        # What grows meanwhile must not wait until all of this is done.
        return bool(self._surveyor.journals) and self._timers.time() >= self._survey_at

    def _look(self, survey: Generator[None, None, list[Chosen]]) -> None:
        """Go on with a survey: what it finds comes after what was chosen before."""
        begin = self._timers.time()
        try:
            while self._timers.time() < begin + pace.LONGEST_TURN:
                next(survey)
        except StopIteration as done:
            self._survey = None
            self._looked(done.value)
        except Exception as error:
            # Nobody would ring for what is left to clean if it went further up.
            self._survey = None
            logger.error("logs to compact could not be looked for, which is tried again", exc_info=error)
            self._wait(self._idle())
        else:
            self._wait(self._timers.time() - begin)

    def _looked(self, found: list[Chosen]) -> None:
        interval = self._settings.journal_interval_ms / 1000
        self._survey_at = self._timers.time() + interval
        self._chosen[:0] = found
        self._first_dirty.note(
            self._running_for(), self._settings.backoff_ms, lambda e: self._fail(e, first_dirty_offsets.NAME)
        )
        if self._under_way or self._chosen:
            self._wait(0)
            return
        self._wait(self._idle())

    def _idle(self) -> float:
        """Seconds until the next survey, where there is nothing to clean."""
        idle = self._settings.backoff_ms or _UNNAMED_BACKOFF_MS
        return (min(idle, self._settings.journal_interval_ms) if self._surveyor.journals else idle) / 1000

    def _take_turn(self) -> None:
        """Go on with one pass after the other, until the time is over or all of them wait for something."""
        begin = self._timers.time()
        if begin >= self._measure_at:
            self._measure_at = begin + _MEASURED_FOR
            self._behind = pace.backlog(self._surveyor.journals, self._first_dirty.of)
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
        is_wanted = self._survey is not None or self._ready or self._may_begin() or not self._under_way
        if self._timer is None and is_wanted:
            rest, self._rest = self._rest, 0.0
            self._wait(rest)

    def _next(self) -> Work | None:
        """The next pass that can go on: one that waits for nothing, else one that is begun; None if there is none."""
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
        """Whether the partition that was chosen next may be cleaned beside those under way."""
        if not self._chosen or not self._under_way:
            return bool(self._chosen)
        alone = not (self._chosen[-1].is_journal and self._under_way[-1].is_journal)
        return not alone and len(self._under_way) < pace.TOGETHER

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
        """Have a pass go on that waits for nothing any more."""
        if any(each is work for each in self._under_way) and not self._is_closed:
            self._ready.append(work)
            self._wait_for_turn()

    def _is_void(self, work: Work) -> bool:
        """Whether the topic of a pass is gone, or is not to be compacted any more."""
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
        self._surveyor.succeeded(work.log)
        metrics, done = self.metrics, work.cleaning.statistics
        metrics.passes += 1
        metrics.bytes_read += done.bytes_read + done.bytes_mapped
        metrics.bytes_written += done.bytes_written
        metrics.cleaner_recopy_percent = 100 * done.bytes_written / max(done.bytes_read, 1)
        metrics.max_clean_time_secs = self._timers.time() - work.began
        metrics.max_buffer_utilization_percent = 100 * work.newest.utilization
        work.say()
        self._end(work)

    def _give_up(self, work: Work, error: Exception) -> None:
        if work.partition.is_held:
            # Half of a swap is done: only a start can tell what of it.
            self._fail(error, f"a cleaned segment of {work.partition.directory}")
            return
        if isinstance(error, NothingLeft):
            self._surveyor.put_off(work.log, error)
        else:
            self._surveyor.leave(work.log, error)
        self._end(work)

    def _fail(self, error: Exception, what: str) -> None:
        """End the node, as any sync that fails does.  `what`: what the disk did not take."""
        self._storage.fail(StorageFailed(f"the disk did not take {what}: {error}"))

    def _end(self, work: Work) -> None:
        work.stop()
        self._under_way.remove(work)
