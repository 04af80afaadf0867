"""Looks for logs worth a pass, in steps: they may be very many, and journals begin new segments meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence, Set
from typing import Final, Protocol

from fencepost.log.cleaner.choice import Range, SegmentFacts, cleanable_range, should_roll
from fencepost.log.cleaner.cleaning import Uncleanable
from fencepost.log.cleaner.first_dirty_offsets import FirstDirtyOffsets, LogId, id_of
from fencepost.log.cleaner.settings import CleanerSettings
from fencepost.log.cleaner.work import Chosen, CleanerMetrics
from fencepost.log.damage import FileDamaged, not_written
from fencepost.log.disk import NothingLeft
from fencepost.log.partition import Partition
from fencepost.log.segment import Segment
from fencepost.log.settings import LONG
from fencepost.node_log import get_logger
from fencepost.protocol.types import NO_TIMESTAMP, Milliseconds

logger = get_logger(__name__)

_PASSED_OVER: Final = 1_000
"""Logs without anything to clean that are passed over in one step: a look at each is short, and there may be many."""


class Storage(Protocol):
    """The part of the node's storage that a survey uses."""

    def partition(self, topic: str, index: int) -> Partition | None: ...

    def partitions(self) -> Iterator[Partition]: ...

    def is_settled(self, partition: Partition, segment: Segment) -> bool: ...

    def checkpoint_soon(self) -> None: ...


class Surveyor:
    """Chooses the compacted logs that are worth a pass.

    `running_for`: milliseconds by a clock that nobody sets: by the wall clock a log would wait for as long as that was
    set back.
    """

    def __init__(
        self,
        storage: Storage,
        settings: CleanerSettings,
        first_dirty: FirstDirtyOffsets,
        metrics: CleanerMetrics,
        running_for: Callable[[], Milliseconds],
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._first_dirty = first_dirty
        self._metrics = metrics
        self._running_for = running_for
        self._later: dict[LogId, int] = {}
        """Logs without room for a pass, and the time (`running_for`) before which they are not tried again."""
        self._unsettled_since: int | None = None
        self.journals: list[Partition] = []
        self.uncleanable: dict[LogId, str] = {}
        """Logs that cannot be cleaned until the node is started again, and why."""

    def survey(self, now: Milliseconds, taken: Set[Partition]) -> Generator[None, None, list[Chosen]]:
        """The partitions worth a pass that are not `taken`, the dirtiest last; a step for each that may be cleaned.

        `now` is the wall clock's time.
        """
        self._metrics.last_run = now
        self._forget()
        compacted = [each for each in self._storage.partitions() if each.settings.is_compacted]
        self.journals = [each for each in compacted if each.settings.journal_roll_bytes >= 0]
        yield from self._roll(self.journals)
        return (yield from self._choose(compacted, now, taken))

    def succeeded(self, log: LogId) -> None:
        """Note that a pass over a log was done."""
        self._later.pop(log, None)

    def put_off(self, log: LogId, full: NothingLeft) -> None:
        """Note, and say, that there is no room for a pass over a log now."""
        if log not in self._later:
            logger.warning(
                "no space is left to compact a log, which is tried again: free some topic=%s partition=%d reason=%s",
                *log[:2],
                full,
            )
        self._later[log] = self._running_for() + self._settings.backoff_ms

    def leave(self, log: LogId, error: Exception) -> None:
        """Note, and say, that a log cannot be cleaned, so that only the others are."""
        self.uncleanable[log] = str(error) or repr(error)
        logger.error(
            "a log is not compacted any more until the node is started again, for it cannot be read: put back a copy "
            "of the file topic=%s partition=%d reason=%s",
            *log[:2],
            str(error) or repr(error),
            exc_info=None if isinstance(error, Uncleanable | FileDamaged | OSError) else error,
        )

    def _forget(self) -> None:
        """Forget what was said of logs that are gone: one made again under the name of one of them is another log."""
        self._first_dirty.keep(self._storage.partition)
        for said in (self._later, self.uncleanable):
            for log in [log for log in said if not self._has(log)]:
                del said[log]

    def _has(self, log: LogId) -> bool:
        found = self._storage.partition(log.topic, log.partition)
        return found is not None and id_of(found) == log

    def _each(self, partitions: Sequence[Partition]) -> Iterator[Partition]:
        """The partitions that are there when it is their turn."""
        return (each for each in partitions if self._storage.partition(each.topic, each.index) is each)

    def _roll(self, journals: Sequence[Partition]) -> Iterator[None]:
        """Apache Kafka never cleans the segment that is written to: a journal begins a new one when it pays."""
        for partition in self._each(journals):
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
                yield

    def _choose(
        self, compacted: Sequence[Partition], now: Milliseconds, taken: Set[Partition]
    ) -> Generator[None, None, list[Chosen]]:
        """The partitions that are worth a pass and can have one now, the dirtiest last; in steps."""
        found: list[Chosen] = []
        at = self._running_for()
        unsettled, dirtiest, delay = 0, 0.0, 0.0
        for place, partition in enumerate(self._each(compacted), 1):
            log = id_of(partition)
            if len(partition.segments) < 2 or log in self.uncleanable or self._later.get(log, 0) > at:
                if place % _PASSED_OVER == 0:
                    yield
                continue
            try:
                wanted, possible = self._ranges(partition, now)
            except (FileDamaged, OSError) as error:
                self.leave(log, error)
                continue
            dirtiest = max(dirtiest, 100 * wanted.dirty_ratio)
            delay = max(delay, max(wanted.overdue_ms, 0) / 1000)
            if wanted.is_worth_it(partition.settings):
                unsettled += wanted.dirty_bytes - possible.dirty_bytes
                if possible.is_worth_it(partition.settings) and partition not in taken:
                    found.append(Chosen(partition, possible))
            yield
        self._metrics.max_dirty_percent, self._metrics.max_compaction_delay_secs = dirtiest, delay
        self._settle(unsettled, at)
        return sorted(found, key=lambda each: each.over.dirty_ratio)

    def _ranges(self, partition: Partition, now: Milliseconds) -> tuple[Range, Range]:
        """The range of a pass over a log if all were settled, and that of one which is possible now."""
        timed = partition.settings.max_compaction_lag_ms < LONG
        facts = [
            SegmentFacts(
                segment.base_offset,
                segment.size,
                segment.max_timestamp,
                _first_timestamp(segment) if timed else NO_TIMESTAMP,
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
        """Ask for a checkpoint when `unsettled` bytes are enough, or some have been unsettled for backoff_ms."""
        if not unsettled:
            self._unsettled_since = None
            return
        if self._unsettled_since is None:
            self._unsettled_since = at
        if unsettled >= self._settings.unsettled_bytes or at - self._unsettled_since >= self._settings.backoff_ms:
            self._unsettled_since = at
            self._storage.checkpoint_soon()


def _first_timestamp(segment: Segment) -> Milliseconds:
    first = next(segment.headers_from(0), None)
    return NO_TIMESTAMP if first is None else first[1].max_timestamp
