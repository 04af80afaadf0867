"""Random histories of one node with kills and power losses, and the checker of what is there afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from tests.log.history_model import History, Producer, Violation, Written, fold
from tests.log.log_doubles import START, StoppedClock, batch, marker, now_at, topic_id

from fencepost.log import checkpointing, commit_log, commit_log_entries, durability, storage
from fencepost.log.commit_log import REST_SECONDS, StorageFailed
from fencepost.log.data_directory import DeletedTopic
from fencepost.log.open_files import USUAL
from fencepost.log.partition import Appended, Partition
from fencepost.log.producer_state import Origin
from fencepost.log.settings import LogSettings
from fencepost.log.storage import DirectoryUnusable, Storage
from fencepost.log.upkeep import upkeep
from fencepost.protocol.batch import read_header, stamp
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.steps import Pace, finish
from fencepost.protocol.types import Isolation, LeaderEpoch, Lsn, Milliseconds, Offset
from fencepost.runtime import Slices, at_once
from fencepost.simulation.disk import PowerCut, SimulatedDisk

ROOT = Path("/var/lib/fencepost")
EXTENT, KEPT, SOON = 900, Milliseconds(-1), Milliseconds(2)
SETTINGS = LogSettings(
    segment_bytes=3000, checkpoint_bytes=6000, index_interval_bytes=200, retention_ms=KEPT, file_delete_delay_ms=SOON
)


class World:
    """One node, its disk, and what it was given.

    `flushes`: how its lives may flush.  Where that may be "os" it is killed and never loses its power, in the midst of
    a start only: of an append that a kill interrupts then nobody can say whether it is there.
    """

    def __init__(
        self, seed: int, disk: SimulatedDisk, partitions: int = 4, flushes: Sequence[str] = ("durable",)
    ) -> None:
        self.random = Random(seed)
        self.disk = disk
        self.flushes = flushes
        self.clock = StoppedClock()
        # Some are hardly ever without a checkpoint under way.
        self.settings = SETTINGS.with_(checkpoint_bytes=(6000, 1500, 400)[seed % 3])
        self.deletes = (0.01, 0.1)[seed // 3 % 2]
        """How many of its steps delete a topic."""
        self.names = [("orders", n) for n in range(partitions - 1)] + [("other", 0)]
        self.histories: dict[tuple[str, int], History] = {name: History() for name in self.names}
        self.ids = {name: topic_id(f"{name}") for name in self.names}
        self.deleted: dict[UUID, DeletedTopic] = {}
        """Topics of earlier histories, each of one partition: what the metadata store says of them."""
        self.going: set[tuple[str, int]] = set()
        """Partitions that are deleted, and not made again yet."""
        self.storage = self._make()
        self.ready = False
        self.tagged = 0
        self.survived = 0

    def _make(self) -> Storage:
        life = self.disk.life

        def failed(failure: StorageFailed) -> None:
            if life == self.disk.life and not self.disk.off:
                raise Violation(f"the node ended by itself: {failure}")

        open_files = USUAL if self.disk.descriptors is None else self.disk.descriptors // 2
        more: dict[str, Any] = {"open_files": open_files, "slices": Slices(steps=1)}
        flush = self.random.choice(self.flushes)
        return Storage(self.disk, ROOT, self.settings, self.clock, flush=flush, failed=failed, **more)

    @property
    def loses_power(self) -> bool:
        return "os" not in self.flushes

    def start(self) -> None:
        """Start the node.  Until `ready` nobody has been served."""
        self.ready = False
        self.storage = self._make()
        try:
            self.storage.deleted = self.deleted
            self.storage.take()
            self.storage.recover()
            for name in self.names:
                if name not in self.going:
                    self._create(name)
            self.storage.start()
            self.deleted.clear()
            self._check_deleted()
        except (StorageFailed, DirectoryUnusable) as failure:
            raise Violation(f"the node does not start: {failure}") from failure
        for offline in self.storage.offline.values():
            raise Violation(f"{offline.topic}-{offline.index} does not open: {offline.reason}")
        self.ready = True

    def _create(self, name: tuple[str, int]) -> None:
        self.storage.create_partition(name[0], self.ids[name], name[1])

    # Work

    async def work(self, steps: int) -> None:
        for _ in range(steps):
            if self.disk.off:
                return
            try:
                if self.random.random() < self.deletes and len(self.there) > 1:
                    await self._delete()
                elif self.going and self.random.random() < 0.3:
                    await self._make_again(self.random.choice(sorted(self.going)))
                else:
                    self._step()
            except PowerCut:
                return
            if self.random.random() < 0.4:
                await asyncio.sleep(self.random.choice((0, 0, 0.0005, 0.003)))

    async def _make_again(self, name: tuple[str, int]) -> None:
        """The metadata store is the first to know; it is answered when the commit log knows it too."""
        self.going.remove(name)
        self._create(name)
        await self._durable(self.storage.last_appended)

    async def _durable(self, lsn: Lsn) -> bool:
        """False if the power is cut before that."""
        waiting = asyncio.ensure_future(self.storage.durability.wait(lsn))
        await asyncio.wait([waiting], timeout=1)
        if not waiting.done():
            waiting.cancel()
            assert self.disk.off
        return waiting.done()

    async def _delete(self) -> None:
        """As `Topics` does it: others know that the topic is deleted until the commit log knows it."""
        name = self.random.choice(self.there)
        partition, old = self.partition(name), self.ids[name]
        self.deleted[old] = DeletedTopic(name[0], name[1] + 1)
        self.ids[name] = UUID(int=self.random.getrandbits(128), version=4)
        self.histories[name] = History()
        self.going.add(name)
        assert self.storage.delete_partition(partition), "it is renamed"
        self.storage.deleted_durably()
        if await self._durable(self.storage.lsn):
            del self.deleted[old]

    @property
    def there(self) -> list[tuple[str, int]]:
        return [name for name in self.names if name not in self.going]

    def _step(self) -> None:
        self.clock.at += self.random.randrange(20)
        name = self.random.choice(self.there)
        partition = self.partition(name)
        history = self.histories[name]
        dice = self.random.random()
        if dice < 0.04:
            self._delete_records(partition, history)
            return
        if dice < 0.05:
            self._retain(partition, history)
            return
        producer_id = self.random.randrange(4)
        known = history.producers().get(producer_id)
        if dice < 0.25:
            epoch = (
                known.epoch if known is not None and self.random.random() < 0.5 else (known.epoch + 1 if known else 0)
            )
            commit = self.random.random() < 0.5
            coordinator_epoch = known.coordinator_epoch if known and known.coordinator_epoch > 0 else 1
            data = marker(producer_id, epoch, commit, LeaderEpoch(coordinator_epoch), self.clock.at)
            self._append(partition, history, data, Origin.COORDINATOR)
        elif dice < 0.35:
            self._append(partition, history, self._batch(None, False), Origin.CLIENT)
        else:
            # Two of the producers are transactional, two are not.
            epoch, sequence = (known.epoch, known.next_sequence) if known else (0, 0)
            self._append(
                partition, history, self._batch((producer_id, epoch, sequence), producer_id < 2), Origin.CLIENT
            )

    def _batch(self, producer: tuple[int, int, int] | None, transactional: bool) -> bytes:
        self.tagged += 1
        size = self.random.choice((0, 10, 10, 100, EXTENT, 2 * EXTENT))
        return batch(
            self.random.randrange(1, 4),
            size=size // 2,
            timestamp=self.clock.at,
            producer=producer,
            transactional=transactional,
            tag=f"{self.tagged}:",
        )

    def _append(self, partition: Partition, history: History, data: bytes, origin: Origin) -> None:
        header = read_header(data)
        options: dict[str, Any] = {}
        if header.is_transactional and not header.is_control:
            found = partition.start_verification(*header[9:12], True, now_at(partition))
            if not isinstance(found, ErrorCode) and found is not None and not hasattr(found, "error"):
                options["guard"] = found
        outcome = partition.append(data, origin, now_at(partition), **options)
        if not isinstance(outcome, Appended):
            raise Violation(f"{partition.topic}-{partition.index} refused what follows: {outcome}")
        stamped = bytearray(data)
        stamp(stamped, 0, outcome.base_offset, partition.leader_epoch)
        history.written.append(Written(outcome.lsn, bytes(stamped)))

    def _delete_records(self, partition: Partition, history: History) -> None:
        before = self.random.randint(0, partition.high_watermark)
        lsn = partition.delete_records(Offset(before))
        assert isinstance(lsn, int)
        if before > history.starts[-1][1]:
            history.starts.append((lsn, before))

    def _retain(self, partition: Partition, history: History) -> None:
        before = partition.log_start_offset
        partition.settings = self.settings.with_(retention_ms=self.random.choice((0, 50, 500)))
        at_once(upkeep(self.storage, Milliseconds(self.clock.at + 1)))
        partition.settings = self.settings
        if partition.log_start_offset > before:
            history.starts.append((self.storage.last_appended, partition.log_start_offset))

    def partition(self, name: tuple[str, int]) -> Partition:
        partition = self.storage.partition(*name)
        assert partition is not None
        return partition

    # The end of a life, and the check

    def _check_deleted(self) -> None:
        """What was deleted before the start is gone, and does not come back."""
        there = {f"{topic}-{index}" for topic, index in self.there}
        left = [path for path in self.disk.list(ROOT) if "-" in path and path not in there | {"commit-log"}]
        if left:
            raise Violation(f"{left} are left of topics that were deleted")

    def note(self) -> None:
        """What has been promised so far: to readers by the high watermark."""
        for name, history in self.histories.items():
            partition = self.storage.partition(*name)
            if self.ready and partition is not None:
                history.high_watermark = max(history.high_watermark, partition.high_watermark)

    def check(self, durable: int) -> None:
        """Compare what was started again with what was given and promised; then take it as the new past."""
        newest, oldest_lost = 0, None
        for name in self.there:
            history = self.histories[name]
            kept = self._check_bytes(self.partition(name), history)
            for number, item in enumerate(history.written):
                if number < kept:
                    newest = max(newest, item.lsn)
                elif item.lsn <= durable:
                    raise Violation(f"{name}: an acknowledged batch is lost, lsn {item.lsn} of {durable} durable")
                else:
                    oldest_lost = min(oldest_lost or item.lsn, item.lsn)
            history.written = history.written[:kept]
        if oldest_lost is not None and oldest_lost <= newest:
            raise Violation(f"what survived is no prefix: lsn {oldest_lost} is lost, {newest} is there")
        for name in self.there:
            history = self.histories[name]
            self._check_start(self.partition(name), history, durable)
            self._check_state(self.partition(name), history)
            self._check_reads(self.partition(name), history)
            for item in history.written:
                item.lsn = 0
        self.survived += newest

    def _check_bytes(self, partition: Partition, history: History) -> int:
        """How many of the batches survived; what is there must be a stretch of them, byte for byte."""
        found = [bytes(data) for _, data in partition.scan()]
        first = read_header(found[0]).base_offset if found else partition.log_end_offset
        skipped = sum(read_header(item.data).last_offset < first for item in history.written)
        expected = [item.data for item in history.written[skipped : skipped + len(found)]]
        if found != expected:
            raise Violation(f"{partition.topic}-{partition.index}: records that were never given, or out of order")
        kept = skipped + len(found)
        end = read_header(history.written[kept - 1].data).last_offset + 1 if kept else 0
        if partition.log_end_offset != end or partition.high_watermark != end:
            raise Violation(f"ends at {partition.log_end_offset}, its high watermark {partition.high_watermark}: {end}")
        if end < history.high_watermark:
            raise Violation(f"the high watermark went back from {history.high_watermark} to {end}")
        if found and first > partition.log_start_offset:
            raise Violation(f"begins at {first}, behind its start {partition.log_start_offset}")
        return kept

    def _check_start(self, partition: Partition, history: History, durable: int) -> None:
        least = max(offset for lsn, offset in history.starts if lsn <= durable)
        start = partition.log_start_offset
        if start < least or start not in {offset for _, offset in history.starts}:
            raise Violation(f"starts at {start}: deletion up to {least} was acknowledged")
        history.starts = [(0, start)]

    def _check_state(self, partition: Partition, history: History) -> None:
        producers, aborted = fold(history.written)
        found = {
            producer_id: Producer(
                entry.epoch,
                entry.coordinator_epoch,
                [(b.last_sequence, b.last_offset, b.offset_delta) for b in entry.batches],
                entry.open_first_offset,
            )
            for producer_id, entry in partition.producers.entries.items()
        }
        if found != producers:
            raise Violation(f"{partition.topic}-{partition.index}: producers {found}, the log says {producers}")
        opened = sorted((p.open_at, i) for i, p in producers.items() if p.open_at is not None)
        if partition.producers.open_transactions() != [(i, at) for at, i in opened]:
            raise Violation("open transactions are not what the log says")
        low, high = partition.segments[0].base_offset, partition.log_end_offset
        index = [tuple(entry[:3]) for entry in partition.segments.aborted_transactions(low, high)]
        if index != [entry for entry in aborted if entry[2] >= low and entry[1] < high]:
            raise Violation(f"aborted transactions {index}, the log says {aborted}")

    def _check_reads(self, partition: Partition, history: History) -> None:
        """A consumer from any offset gets the batches from there on, through the indexes."""
        offset = partition.log_start_offset
        if partition.high_watermark > offset:
            offset = Offset(self.random.randrange(offset, partition.high_watermark))
        expected = [i.data for i in history.written if read_header(i.data).last_offset >= offset]
        found = b""
        while offset < partition.high_watermark:
            fetched = partition.read(offset, 3000, Isolation.READ_UNCOMMITTED)
            records = bytes(getattr(fetched, "records", b""))
            if not records:
                raise Violation(f"nothing to read at {offset}, below the high watermark {partition.high_watermark}")
            found += records
            at = 0
            while at < len(records):
                header = read_header(records, at)
                at += header.size
                offset = Offset(header.last_offset + 1)
        if found != b"".join(expected):
            raise Violation("a reader gets something else than the log has")
        for timestamp in (START, self.clock.at - 100, self.clock.at):
            self._check_time(partition, history, Milliseconds(timestamp))

    def _check_time(self, partition: Partition, history: History, timestamp: Milliseconds) -> None:
        start = partition.log_start_offset
        late = [read_header(i.data) for i in history.written]
        late = [h for h in late if h.max_timestamp >= timestamp and h.last_offset >= start]
        expected = None
        for header in late:
            # The records of a batch are a millisecond apart.
            offset = header.base_offset + max(timestamp - header.base_timestamp, 0)
            offset = max(offset, start)
            if offset <= header.last_offset:
                expected = offset
                break
        found = finish(partition.reader.offset_for_timestamp(timestamp, Isolation.READ_UNCOMMITTED, Pace()))
        if (None if found is None else found.offset) != expected:
            raise Violation(f"the first record from {timestamp} on is {expected}, not {found}")


async def live(world: World, lives: int, steps: int) -> None:
    """Start, work, fail, start again and check, several times."""
    random, disk = world.random, world.disk
    durable = 0
    for life in range(lives):
        while True:
            if random.random() < 0.25:
                disk.cut_power_after(random.randrange(1, 60))
            try:
                world.start()
            except PowerCut:
                lose(world)
                continue
            break
        if not disk.off and random.random() < 0.5 and world.loses_power:
            disk.cut_power_after(random.randrange(1, steps * 4))
        world.check(durable)
        await world.work(random.randrange(steps))
        if life % 3 == 2:
            await asyncio.sleep(2 * REST_SECONDS)  # so that the last sync is marked
        world.note()
        durable = world.storage.durability.lsn
        if not disk.off and random.random() < 0.15:
            await stop(world)
        durable = max(durable, world.storage.durability.lsn)
        lose(world)
    if world.loses_power:
        disk.power_loss()
    else:
        disk.crash()
    world.start()
    world.check(durable)


async def stop(world: World) -> None:
    """A clean stop, unless the power is cut meanwhile."""
    try:
        await asyncio.wait_for(world.storage.settle(), 1)
        world.storage.close()
    except (PowerCut, TimeoutError):
        assert world.disk.off


def lose(world: World) -> None:
    world.storage.abandon()
    if world.random.random() < 0.3 or not world.loses_power:
        world.disk.crash()
    else:
        world.disk.power_loss()


def small_files(monkeypatch: Any) -> None:
    """Extents, allocations and parts of a checkpoint and of a sync of a size that a short history meets."""
    monkeypatch.setattr(storage, "EXTENT_THRESHOLD", EXTENT)
    monkeypatch.setattr(commit_log, "_ALLOCATION", 4096)
    monkeypatch.setattr(commit_log, "_LITTLE", 300)
    monkeypatch.setattr(checkpointing, "_TOGETHER", 1)
    monkeypatch.setattr(commit_log_entries, "PIECE_ENTRIES", 2)
    monkeypatch.setattr(durability, "CALLED_AT_ONCE", 1)
    monkeypatch.setattr(storage, "_ADVANCED_AT_ONCE", 1)
