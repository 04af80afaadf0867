"""When checkpoints are made, and what completes them: one at a time, while others go on to append.

A checkpoint begins a new generation of the commit log, whose first entries name every segment that is written to.  When
everything of the older generations is synced elsewhere, and those entries are durable, the older ones are removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from fencepost.log.checkpoint import Checkpoint, named_files, starts
from fencepost.log.commit_log import CommitLog, StorageFailed
from fencepost.log.disk import Disk, NothingLeft
from fencepost.log.opening import Aside
from fencepost.log.partition import Partition
from fencepost.log.removal import Removals
from fencepost.log.space import Space


class Checkpoints:
    """Those of one storage.

    `partitions`: a live view of all that are open.  `limit`: bytes of commit log after which a checkpoint is due.
    `sizes_kept`: whether every append is noted in the commit log.  `flush`: has the commit log synced soon.
    `failed`: is told of a disk that does not take one; after that `is_alive` is to say so.
    """

    def __init__(
        self,
        disk: Disk,
        root: Path,
        log: CommitLog,
        partitions: Collection[Partition],
        aside: Aside,
        *,
        removals: Removals,
        space: Space,
        limit: int,
        sizes_kept: bool,
        flush: Callable[[], None],
        failed: Callable[[StorageFailed], None],
        is_alive: Callable[[], bool],
    ) -> None:
        self._disk, self._root, self._log, self._partitions = disk, root, log, partitions
        self._removals, self._space = removals, space
        self._limit, self._sizes_kept = limit, sizes_kept
        self._flush, self._failed, self._is_alive = flush, failed, is_alive
        self._is_wanted = False
        self.is_under_way = False
        self.aside = aside
        """What every generation must say of partitions that are not served."""

    def now(self, generation: int, moved: Mapping[str, int] | None = None) -> None:
        """Begin this generation and complete it, at start and stop.  `moved`: partitions of which a start was noted.

        Raises NothingLeft, OSError.
        """
        older = self._log.generations()
        self._log.begin(generation)
        checkpoint = self._written()
        self._disk.sync_now(checkpoint.files)
        self._name_everything(moved or {})
        self._log.flush_now()
        self._complete(checkpoint, older)

    def soon(self) -> None:
        """Begin one when the syncs that are under way are done."""
        self._is_wanted = True
        asyncio.get_running_loop().call_soon(self.begin_if_due)

    def begin_if_due(self) -> None:
        """Begin one if the commit log is long enough, or somebody wants one; call it after each sync."""
        due = self._is_wanted or self._log.size > self._limit
        if due and self._log.is_between_syncs and not self.is_under_way and self._is_alive():
            self._begin()

    def _begin(self) -> None:
        older = self._log.generations()
        try:
            checkpoint = self._space.attempt(self._written)
            self._log.begin(self._log.generation + 1)
        except NothingLeft:
            return  # The next sync tries again.
        except OSError as error:
            self._fail(error)
            return
        self.is_under_way, self._is_wanted = True, False
        self._removals.hold()
        lsn = self._name_everything({})
        self._flush()

        def synced(error: OSError | None) -> None:
            if error is not None:
                self._fail(error)
            elif self._is_alive():
                self._log.when_durable(lsn, finish)

        def finish() -> None:
            self.is_under_way = False
            try:
                self._complete(checkpoint, older)
            except OSError as error:
                self._fail(error)
                return
            self._removals.let_go()

        self._disk.sync(checkpoint.files, synced)

    def _written(self) -> Checkpoint:
        return Checkpoint(self._disk, self._root, [each for each in self._partitions if each.changed])

    def _complete(self, checkpoint: Checkpoint, older: list[int]) -> None:
        """Everything is synced: remove older generations, and only then what they would have needed."""
        for generation in older:
            self._disk.remove(self._log.path(generation))
        self._disk.sync_directory(self._log.path(0).parent)
        self._log.older_are_gone()
        checkpoint.finish(set(self._partitions))

    def _name_everything(self, moved: Mapping[str, int]) -> int:
        """Begin a generation with every segment that is written to, or that pending entries write to; the lsn of it."""
        self._log.name_files(list(named_files(self._partitions, self._log.pending_numbers())))
        for name, start in starts(self._partitions, moved):
            self._log.add_start(start, name)
        for entry in self.aside:
            self._log.add_again(entry)
        return self._log.add_ready(self._sizes_kept and not self.aside.scan_again)

    def _fail(self, error: OSError) -> None:
        self._failed(StorageFailed(f"the disk did not take a checkpoint: {error}"))
