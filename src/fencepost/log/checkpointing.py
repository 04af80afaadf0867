"""When checkpoints are made, and how: one at a time, a little at a time, while others go on to append.

A checkpoint begins a new generation of the commit log.  From then on each partition is named there, written down and
synced at a moment of its own, a few of them together; what is appended before that moment and after it is in the new
generation.  A partition that was named before that moment, because something was appended to it, gets a SYNCED entry.
When all of that is durable the older generations are removed, and only then what they would have needed.

The one that a start begins is made like that too, unless the start has changed what the older generations say: then
nobody is served before it is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

from fencepost.log.agreement import agrees, named_segments
from fencepost.log.checkpoint import Checkpoint, completed, named_file, pending_files
from fencepost.log.commit_log import CommitLog, StorageFailed
from fencepost.log.disk import Disk, File, NothingLeft
from fencepost.log.opening import Aside
from fencepost.log.partition import Partition
from fencepost.log.removal import Removals
from fencepost.log.replay import Replay
from fencepost.log.space import Space
from fencepost.protocol.types import Offset
from fencepost.runtime import Slices, Work, at_once

_TOGETHER: Final = 16
"""Partitions that are synced together: some 100 files, each with a descriptor."""


class Checkpoints:
    """Makes the checkpoints of one storage.

    `partitions`: a live view of all that are open, by topic and number.  `appended_to`: those with pending appends.
    `limit`: bytes of commit log after which a checkpoint is due.  `sizes_kept`: whether every append is noted in the
    commit log.  `flush`: has the commit log synced soon.  `failed`: is told of a disk that does not take one; after
    that `is_alive` is to say so.
    """

    def __init__(
        self,
        disk: Disk,
        root: Path,
        log: CommitLog,
        partitions: Mapping[tuple[str, int], Partition],
        aside: Aside,
        *,
        appended_to: Callable[[], Iterable[Partition]],
        removals: Removals,
        space: Space,
        slices: Slices,
        limit: int,
        sizes_kept: bool,
        flush: Callable[[], None],
        failed: Callable[[StorageFailed], None],
        is_alive: Callable[[], bool],
    ) -> None:
        self._disk, self._root, self._log, self._partitions = disk, root, log, partitions
        self._appended_to = appended_to
        self._removals, self._space, self._slices = removals, space, slices
        self._limit, self._sizes_kept = limit, sizes_kept
        self._flush, self._failed, self._is_alive = flush, failed, is_alive
        self._is_wanted = False
        self._task: asyncio.Task[None] | None = None
        self._room: asyncio.Future[None] | None = None
        """Set while a checkpoint waits for something that it lacks, and what wakes it."""
        self.aside = aside
        """The entries about partitions that are not served, which every generation must have."""
        self._logged_reasons: MutableMapping[Partition, str] = WeakKeyDictionary()
        """Partitions that cannot be written down, and why."""
        self._identified = WeakSet[Partition]()
        """Partitions whose `partition.metadata` is synced."""

    # At start and stop

    def at_start(self, replay: Replay, aside: Aside, *, waits: bool) -> None:
        """Begin a generation after those of `replay`.  Raises NothingLeft, OSError.

        It is complete before this returns where the older ones are not to count beside it, because they do not say just
        what is there now; and unless it `waits`: there are no deletions to finish, and space enough for both.
        """
        self.aside = aside
        generation, opened = replay.newest + 1, self._partitions.values()
        if not waits or not self._sizes_kept or aside.directories() or not agrees(replay, opened):
            self.now(generation, replay.starts)
        else:
            self.begin_at_start(generation, named_segments(replay, opened))

    def now(self, generation: int, moved: Container[str] = ()) -> None:
        """Begin this generation and complete it.  `moved`: directories of which the start of the log was noted.

        Raises NothingLeft, OSError.
        """
        older = self._begin(generation)
        offsets: dict[Partition, Offset] = {}
        for few in self._everything():
            checkpoint = Checkpoint(self._disk, self._logged_reasons, self._identified)
            try:
                at_once(self._write_down(checkpoint, few, moved))
                self._disk.sync_now(checkpoint.files)
            finally:
                checkpoint.close()
            self._note(checkpoint, offsets)
        at_once(self._set_ready())
        self._log.flush_now()
        self._remove(older)
        at_once(self._complete(offsets))

    def begin_at_start(self, generation: int, named_before: Iterable[int]) -> None:
        """Begin this one, and complete it while the node runs, as any other; `named_before`: what older ones name."""
        older = self._begin(generation)
        self._log.note_named_before(named_before)
        self._make_soon(older)

    # While the node runs

    @property
    def is_under_way(self) -> bool:
        """Whether a checkpoint is being made and is not held up by a lack of space or descriptors."""
        return self._task is not None and self._room is None

    def soon(self, least: int = 0) -> None:
        """Begin a checkpoint when the syncs under way are done, if the commit log has `least` bytes."""
        if self._log.size < least:
            return
        self._is_wanted = True
        asyncio.get_running_loop().call_soon(self.begin_if_due)

    def begin_if_due(self) -> None:
        """Begin a checkpoint if the commit log has over `limit` bytes or `soon` asked for one; call after each sync."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        due = self._is_wanted or self._log.size > self._limit
        if not due or not self._log.is_between_syncs or self._task is not None or not self._is_alive():
            return
        try:
            older = self._begin(self._log.generation + 1)
        except NothingLeft:
            return  # The next sync tries again.
        except OSError as error:
            self._fail(error)
            return
        self._is_wanted = False
        self._make_soon(older)

    def _make_soon(self, older: Sequence[int]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._make(older))
        self._task.add_done_callback(self._over)

    def give_up(self) -> None:
        """Leave the checkpoint that is being made as it is.  The older generations are still there."""
        if self._task is not None:
            self._task.cancel()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._task = self._room = None
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, OSError):
            self._fail(error)
        elif error is not None:
            if isinstance(error, Exception):
                self._failed(StorageFailed(f"a checkpoint could not be made: {error!r}"))
            raise error
        elif self._is_wanted:
            self.begin_if_due()

    def _fail(self, error: OSError) -> None:
        self._failed(StorageFailed(f"the disk did not take a checkpoint: {error}"))

    async def _make(self, older: Sequence[int]) -> None:
        offsets: dict[Partition, Offset] = {}
        for few in self._everything():
            while not await self._write_down_durably(few, offsets):
                self._room = asyncio.get_running_loop().create_future()
                await self._room
                self._room = None
        await self._slices.run(self._set_ready())
        await self._log.durability.wait(self._log.appended)
        self._remove(older)
        await self._slices.run(self._complete(offsets))

    async def _write_down_durably(self, few: Sequence[Partition], offsets: dict[Partition, Offset]) -> bool:
        """Write a few partitions down and sync them; False if there was no room, or descriptors, for them."""
        checkpoint = Checkpoint(self._disk, self._logged_reasons, self._identified)
        # What it syncs must stay open.
        self._removals.hold()
        try:
            await self._slices.run(self._write_down(checkpoint, few))
            await self._synced(checkpoint.files)
            had_room = True
        except NothingLeft:
            had_room = False
        finally:
            checkpoint.close()
        self._removals.let_go()
        if had_room:
            self._note(checkpoint, offsets)
            self._flush()
        return had_room

    async def _synced(self, files: Sequence[File]) -> None:
        """Sync these files.  Raises OSError."""
        done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        self._disk.sync(files, lambda error: None if done.done() else done.set_result(error))
        error = await done
        if error is not None:
            raise error

    # Its steps

    def _begin(self, generation: int) -> list[int]:
        """Begin a generation of the commit log; the numbers of the older ones."""
        older = [each for each in self._log.generations() if each < generation]
        self._log.begin(generation)
        pending = self._log.pending_numbers()
        self._log.name_pending(list(pending_files(self._appended_to(), pending)))
        return older

    def _everything(self) -> Iterator[Sequence[Partition]]:
        """All partitions, a few at a time; none at first: then the directory is synced that theirs are in.

        Those that are made later are in the new generation with all that they have.
        """
        there = iter(list(self._partitions.values()))
        yield ()
        while few := list(islice(there, _TOGETHER)):
            yield few

    def _is_there(self, partition: Partition) -> bool:
        """Whether it was not deleted meanwhile."""
        return self._partitions.get((partition.topic, partition.index)) is partition

    def _write_down(self, checkpoint: Checkpoint, few: Sequence[Partition], moved: Container[str] = ()) -> Work[None]:
        if not few:
            checkpoint.add_directory(self._root)
        for partition in few:
            if self._is_there(partition):
                if partition.changed:
                    self._space.attempt(partial(checkpoint.write, partition))
                self._name(checkpoint, partition, moved)
                # Somebody may wait for all that was noted by now.
                self._flush()
            yield

    def _name(self, checkpoint: Checkpoint, partition: Partition, moved: Container[str]) -> None:
        """Name a partition's newest segment in the new generation, if it is not, and tell where the log starts."""
        if partition.segments[-1].number not in self._log.named:
            self._log.add_file(named_file(partition))
            checkpoint.named.add(partition)
        directory = partition.directory.name
        if partition.log_start_offset or directory in moved:
            self._log.add_start(partition.log_start_offset, directory)

    def _note(self, checkpoint: Checkpoint, offsets: dict[Partition, Offset]) -> None:
        """Note that what was written down is synced."""
        for partition, place in checkpoint.places.items():
            if self._is_there(partition):
                offsets[partition] = place.next_offset
                self._identified.add(partition)
                if partition not in checkpoint.named:
                    self._log.add_synced(*place)

    def _set_ready(self) -> Work[None]:
        """Write the READY entry, after which every segment is named in the new generation, in steps."""
        for directory in self.aside.directories():
            for entry in self.aside.entries_of(directory):
                self._log.add_again(entry)
            self._flush()
            yield
        self._log.add_ready(self._sizes_kept and not self.aside.scan_again, searched=self._sizes_kept)
        self._flush()

    def _remove(self, older: Sequence[int]) -> None:
        """Remove the older generations: everything is synced, and said to be.

        The newest of them first: whatever a power loss brings back, what is left counts by itself, or it has a gap
        behind it, or all of it is there.
        """
        for generation in reversed(older):
            self._disk.remove(self._log.path(generation))
            self._disk.sync_directory(self._log.path(0).parent)
        self._log.older_are_gone()

    def _complete(self, offsets: Mapping[Partition, Offset]) -> Work[None]:
        for partition, offset in offsets.items():
            if self._is_there(partition):
                completed(self._disk, partition, offset)
            yield
