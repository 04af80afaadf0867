"""A pass of the cleaner that is under way, and the figures and log lines of passes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from fencepost.log.cleaner.choice import Range
from fencepost.log.cleaner.cleaning import Abandoned, Pass, Steps, Unfold
from fencepost.log.cleaner.first_dirty_offsets import id_of
from fencepost.log.cleaner.offset_map import OffsetMap
from fencepost.log.disk import File, NothingLeft
from fencepost.log.partition import Partition
from fencepost.node_log import get_logger
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.types import Milliseconds

logger = get_logger(__name__)


@dataclass
class CleanerMetrics:
    """Apache Kafka's metrics of LogCleaner and LogCleanerManager (of one pass: of the last), and counts of ours."""

    max_dirty_percent: float = 0.0
    cleaner_recopy_percent: float = 0.0
    max_clean_time_secs: float = 0.0
    max_buffer_utilization_percent: float = 0.0
    max_compaction_delay_secs: float = 0.0
    last_run: int = -1
    passes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class Chosen(NamedTuple):
    """A partition that is worth a pass, and its range."""

    partition: Partition
    over: Range

    @property
    def is_journal(self) -> bool:
        """Whether it is a coordinator's."""
        return self.partition.settings.journal_roll_bytes >= 0

    @property
    def is_there(self) -> bool:
        """Whether retention or DeleteRecords has left something of it since it was chosen."""
        return self.partition.segments[0].base_offset < self.over.upper_bound


class Work:
    """A pass over one partition that is under way: its steps, and what the last of them waits for."""

    def __init__(self, chosen: Chosen, newest: OffsetMap, now: Milliseconds, began: float) -> None:
        self.partition = chosen.partition
        self.log = id_of(chosen.partition)
        self.is_journal = chosen.is_journal
        self.newest = newest
        self.began = began
        self.cleaning = Pass(chosen.partition, chosen.over, newest, now)
        self.steps: Steps[None] = self.cleaning.steps()
        self._unfolded: bytes | ProtocolError | None = None
        self._failed: Exception | None = None
        """Why the function failed that the other thread was to do, whatever the batch is."""
        self.moved = 0
        """Bytes read and written as of the last step."""

    def step(self) -> Sequence[File] | Unfold | None:
        """Do a step of the pass; what it stops with.  Raises as the steps do, and StopIteration at their end."""
        unfolded, self._unfolded = self._unfolded, None
        failed, self._failed = self._failed, None
        return self.steps.send(unfolded) if failed is None else self.steps.throw(failed)

    def unfold(self, unfold: Unfold, then: Callable[[], None]) -> None:
        """Have `unfold` called in another thread, and its result, or what it raised, ready for the next step.

        Where there is no thread, or no memory, the pass fails, and goes on later: whoever waited for it would for ever.
        """

        def unfolded(done: asyncio.Future[bytes]) -> None:
            if done.cancelled():
                return
            try:
                self._unfolded = done.result()
            except ProtocolError as error:
                self._unfolded = error
            except Exception as error:
                self._failed = NothingLeft(errno.ENOMEM, f"a large batch was not unfolded: {error!r}")
            then()

        loop = asyncio.get_running_loop()
        try:
            begun = loop.run_in_executor(None, unfold)
        except RuntimeError as error:  # no thread can be started
            begun = loop.create_future()
            begun.set_exception(error)
        begun.add_done_callback(unfolded)

    def stop(self) -> None:
        """End the pass, leaving nothing behind that was not decided."""
        with suppress(Abandoned):
            self.steps.throw(Abandoned())

    def moves(self) -> int:
        """Bytes read and written since this was last asked."""
        done = self.cleaning.statistics
        total = done.bytes_mapped + done.bytes_read + done.bytes_written
        moved, self.moved = total - self.moved, total
        return moved

    def say(self) -> None:
        """Say in the node's log what the pass did."""
        done = self.cleaning.statistics
        logger.info(
            "cleaned topic=%s partition=%d end=%d bytes_read=%d bytes_written=%d records_read=%d records_kept=%d",
            *self.log[:2],
            self.cleaning.end_offset,
            done.bytes_read,
            done.bytes_written,
            done.records_read,
            done.records_kept,
        )
