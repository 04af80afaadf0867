"""When logs are cleaned: the dirtiest first, one at a time, in steps between which everybody else works."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from fencepost.log.cleaner import first_dirty_offsets
from fencepost.log.cleaner.choice import Range, SegmentFacts, cleanable_range, first_dirty, should_roll
from fencepost.log.cleaner.cleaning import Abandoned, Pass, Statistics, Steps, Uncleanable
from fencepost.log.cleaner.offset_map import OffsetMap
from fencepost.log.cleaner.settings import CleanerSettings
from fencepost.log.commit_log import StorageFailed
from fencepost.log.damage import FileDamaged
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

#: Seconds that the cleaner may work without a break, if others have worked as long before.
LONGEST_TURN: Final = 0.01

Key = tuple[str, int]


class Timer(Protocol):
    """What `call_later` returns."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """The event loop's."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer: ...

    def time(self) -> float:
        """Seconds."""
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


@dataclass
class CleanerMetrics:
    """Apache Kafka's, of LogCleaner and LogCleanerManager; those of one pass are of the last one."""

    max_dirty_percent: float = 0.0
    cleaner_recopy_percent: float = 0.0
    max_clean_time_secs: float = 0.0
    max_buffer_utilization_percent: float = 0.0
    max_compaction_delay_secs: float = 0.0
    last_run: int = -1
    passes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class _Chosen(NamedTuple):
    partition: Partition
    over: Range


class _Work:
    """A pass that is under way."""

    def __init__(self, chosen: _Chosen, newest: OffsetMap, now: Milliseconds, began: float) -> None:
        self.partition = chosen.partition
        self.key = (chosen.partition.topic, chosen.partition.index)
        self.newest = newest
        self.began = began
        self.cleaning = Pass(chosen.partition, chosen.over, newest, now)
        self.steps: Steps = self.cleaning.steps()
        self.moved = 0
        """Bytes read and written as of the last step."""

    def stop(self) -> None:
        """Leave nothing behind that was not decided."""
        with suppress(Abandoned):
            self.steps.throw(Abandoned())

    def moves(self) -> int:
        """Bytes read and written since this was last asked."""
        done = self.cleaning.statistics
        total = done.bytes_mapped + done.bytes_read + done.bytes_written
        moved, self.moved = total - self.moved, total
        return moved


class LogCleaner:
    """Chooses which compacted partition is cleaned next, and cleans one at a time, on timers of the event loop.

    `start` it when the journals are read; `close` it before the storage.
    """

    def __init__(self, storage: Storage, settings: CleanerSettings, clock: Clock, timers: Timers) -> None:
        self._storage = storage
        self._settings = settings
        self._clock = clock
        self._timers = timers
        self._first_dirty = first_dirty_offsets.read(storage.disk, storage.path)
        self._noted = dict(self._first_dirty)
        """What the file has of it."""
        self._note_after = 0
        self._later: dict[Key, int] = {}
        """Not to be tried again before that time: there was no room."""
        self._unsettled_since: int | None = None
        self._chosen: list[_Chosen] = []
        """What is cleaned after this, the dirtiest last."""
        self._work: _Work | None = None
        self._timer: Timer | None = None
        self._due = 0.0
        """When it rings."""
        self._is_closed = False
        self.uncleanable: dict[Key, str] = {}
        """Partitions that cannot be cleaned until the node is started again, and why."""
        self.metrics = CleanerMetrics()

    def start(self) -> None:
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
        if self._work is not None:
            self._work.stop()
            self._work = None

    def _wait(self, seconds: float) -> None:
        assert self._timer is None, "one thing at a time"
        self._due = self._timers.time() + seconds
        self._timer = self._timers.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._storage.failure is not None:
            return
        if self._work is not None:
            self._go_on(self._work)
        else:
            self._look()

    # What to clean

    def _look(self) -> None:
        now = self._clock.now()
        self.metrics.last_run = now
        compacted = [each for each in self._storage.partitions() if each.settings.is_compacted]
        journals = [each for each in compacted if each.settings.journal_roll_bytes >= 0]
        self._roll(journals)
        self._chosen = self._choose(compacted, now)
        if self._chosen:
            self._begin()
            return
        self._note(now)
        interval = self._settings.backoff_ms
        self._wait((min(interval, self._settings.journal_interval_ms) if journals else interval) / 1000)

    def _begin(self) -> None:
        """Begin with the next one that was chosen, or look again."""
        if self._chosen:
            chosen = self._chosen.pop()
            newest = OffsetMap(chosen.over.first_dirty_offset, self._settings.capacity)
            self._work = _Work(chosen, newest, self._clock.now(), self._timers.time())
        self._wait(0)

    def _roll(self, journals: Sequence[Partition]) -> None:
        """Apache Kafka never cleans the segment that is written to: a journal begins a new one when it pays."""
        for partition in journals:
            active, dirty = partition.segments[-1], self._dirty_from(partition)
            clean = sum(each.size for each in partition.segments[:-1] if each.base_offset < dirty)
            if should_roll(active.size, clean, partition.settings.journal_roll_bytes):
                try:
                    partition.roll()
                except NothingLeft:
                    return

    def _dirty_from(self, partition: Partition) -> int:
        checkpoint = self._first_dirty.get((partition.topic, partition.index))
        return first_dirty(checkpoint, partition.log_start_offset, partition.log_end_offset)

    def _choose(self, compacted: Sequence[Partition], now: Milliseconds) -> list[_Chosen]:
        """The partitions that are worth it, the dirtiest last.  What is not settled is told to the storage."""
        found: list[_Chosen] = []
        unsettled = 0
        self.metrics.max_dirty_percent = self.metrics.max_compaction_delay_secs = 0.0
        for partition in compacted:
            key = (partition.topic, partition.index)
            if len(partition.segments) < 2 or key in self.uncleanable or self._later.get(key, 0) > now:
                continue
            wanted, possible = self._ranges(partition, now)
            self.metrics.max_dirty_percent = max(self.metrics.max_dirty_percent, 100 * wanted.dirty_ratio)
            delay = max(wanted.overdue_ms, 0) / 1000
            self.metrics.max_compaction_delay_secs = max(self.metrics.max_compaction_delay_secs, delay)
            if not wanted.is_worth_it(partition.settings):
                continue
            if possible.is_worth_it(partition.settings):
                found.append(_Chosen(partition, possible))
            else:
                unsettled += wanted.dirty_bytes - possible.dirty_bytes
        self._settle(unsettled, now)
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
        dirty, stable, settings = self._dirty_from(partition), partition.last_stable_offset, partition.settings
        everything = [each._replace(settled=True) for each in facts]
        return (
            cleanable_range(everything, dirty, stable, settings, now),
            cleanable_range(facts, dirty, stable, settings, now),
        )

    def _settle(self, unsettled: int, now: Milliseconds) -> None:
        """Have a checkpoint when enough waits for one, or anything has waited for long."""
        if not unsettled:
            self._unsettled_since = None
            return
        if self._unsettled_since is None:
            self._unsettled_since = now
        if unsettled >= self._settings.unsettled_bytes or now - self._unsettled_since >= self._settings.backoff_ms:
            self._unsettled_since = now
            self._storage.checkpoint_soon()

    # A pass

    def _go_on(self, work: _Work) -> None:
        if self._is_void(work):
            self._end(work)
            return
        begin = self._timers.time()
        # As long as others have just made it wait: a loop that is busy has few turns, and what is to be cleaned grows.
        turn = min(begin - self._due, LONGEST_TURN)
        try:
            files = next(work.steps)
            while files is None and self._timers.time() - begin < turn:
                files = next(work.steps)
        except StopIteration:
            self._done(work)
        except Abandoned:
            self._end(work)
        except NothingLeft as full:
            self._put_off(work, full)
        except (Uncleanable, FileDamaged, OSError) as error:
            self._give_up(work, error)
        else:
            if files is not None:
                self._sync(work, files) if files else self._wait(PATIENCE)
                return
            # At most half of the time is the cleaner's.
            rate = work.moves() / self._settings.io_max_bytes_per_second
            self._wait(max(self._timers.time() - begin, rate))

    def _is_void(self, work: _Work) -> bool:
        """Whether the topic is gone, or is not to be compacted any more."""
        partition = work.partition
        if self._storage.partition(*work.key) is not partition:
            return True
        return not partition.settings.is_compacted and not partition.is_held

    def _sync(self, work: _Work, files: Sequence[File]) -> None:
        def synced(error: OSError | None) -> None:
            if self._work is not work or self._is_closed:
                return
            if error is not None:
                self._fail(error, f"a cleaned segment of {work.partition.directory}")
            else:
                self._wait(0)

        self._storage.disk.sync(files, synced)

    def _done(self, work: _Work) -> None:
        self._first_dirty[work.key] = work.cleaning.end_offset
        self._later.pop(work.key, None)
        metrics, done = self.metrics, work.cleaning.statistics
        metrics.passes += 1
        metrics.bytes_read += done.bytes_read + done.bytes_mapped
        metrics.bytes_written += done.bytes_written
        metrics.cleaner_recopy_percent = 100 * done.bytes_written / max(done.bytes_read, 1)
        metrics.max_clean_time_secs = self._timers.time() - work.began
        metrics.max_buffer_utilization_percent = 100 * work.newest.utilization
        _say(work, done)
        self._end(work)

    def _put_off(self, work: _Work, full: NothingLeft) -> None:
        if work.key not in self._later:
            logger.warning(
                "no space is left to compact a log, which is tried again: free some topic=%s partition=%d reason=%s",
                *work.key,
                full,
            )
        self._later[work.key] = self._clock.now() + self._settings.backoff_ms
        self._end(work)

    def _give_up(self, work: _Work, error: Exception) -> None:
        if work.partition.is_held:
            # Half of a swap is done: only a start can tell what of it.
            self._fail(error, f"a cleaned segment of {work.partition.directory}")
            return
        self.uncleanable[work.key] = str(error)
        logger.error(
            "a log is not compacted any more until the node is started again, for it cannot be read: put back a copy "
            "of the file topic=%s partition=%d reason=%s",
            *work.key,
            error,
        )
        self._end(work)

    def _fail(self, error: Exception, what: str) -> None:
        """The node ends, as with any sync that fails."""
        self._storage.fail(StorageFailed(f"the disk did not take {what}: {error}"))

    def _end(self, work: _Work) -> None:
        work.stop()
        self._work = None
        self._begin()

    def _note(self, now: Milliseconds) -> None:
        """Write down what is clean, now and then: to lose it costs only work."""
        offsets = {key: each for key, each in self._first_dirty.items() if self._storage.partition(*key) is not None}
        if offsets == self._noted or now < self._note_after:
            return
        self._first_dirty, self._noted = offsets, dict(offsets)
        self._note_after = now + self._settings.backoff_ms

        def written(error: OSError | None) -> None:
            if error is not None:
                self._fail(error, first_dirty_offsets.NAME)

        try:
            first_dirty_offsets.write(self._storage.disk, self._storage.path, offsets, written)
        except NothingLeft:
            self._noted = {}


def _first_timestamp(segment: Segment) -> int:
    first = next(segment.headers_from(0), None)
    return -1 if first is None else first[1].max_timestamp


def _say(work: _Work, done: Statistics) -> None:
    logger.info(
        "cleaned topic=%s partition=%d end=%d bytes_read=%d bytes_written=%d records_read=%d records_kept=%d",
        *work.key,
        work.cleaning.end_offset,
        done.bytes_read,
        done.bytes_written,
        done.records_read,
        done.records_kept,
    )
