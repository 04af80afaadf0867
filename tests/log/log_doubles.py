"""What the tests of the log share: virtual time, batches, and a world of one node on a simulated disk."""

from __future__ import annotations

import asyncio
import selectors
import uuid
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

from fencepost.log.disk import Disk, File
from fencepost.log.offline import OfflinePartition
from fencepost.log.open_files import USUAL
from fencepost.log.partition import Appended, Partition, Refused
from fencepost.log.producer_state import Origin, VerificationGuard
from fencepost.log.settings import LogSettings
from fencepost.log.storage import Storage
from fencepost.protocol.control import control_batch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import decode_batch, encode_batch
from fencepost.protocol.types import FIRST_LEADER_EPOCH, Buffer, Epoch, LeaderEpoch, Milliseconds, ProducerId
from fencepost.simulation.disk import PowerCut, SimulatedDisk

START = Milliseconds(1_700_000_000_000)
ROOT = Path("/data")
T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Passes time instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits and nothing is scheduled"
        self.now += max(timeout, 0.0)
        self.turns += 1
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which a second takes no time."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self.unexpected: list[BaseException] = []
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self._virtual.now

    @property
    def turns(self) -> int:
        """How often it has gone round."""
        return self._virtual.turns

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or AssertionError(context["message"])
        if not isinstance(error, PowerCut):
            self.unexpected.append(error)


def delete_topic(storage: Storage, topic: str) -> bool:
    """Delete its partitions; whether nothing is left under their own names."""
    known: list[Partition | OfflinePartition] = [*storage.partitions(), *storage.offline.values()]
    going = [each for each in known if each.topic == topic]
    renamed = [storage.delete_partition(each) for each in going]
    storage.deleted_durably()
    return all(renamed)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time; whatever a callback raised is raised here."""
    loop = VirtualLoop()
    try:
        result = loop.run_until_complete(main)
        if loop.unexpected:
            raise loop.unexpected[0]
        return result
    finally:
        loop.close()


async def synced(disk: Disk, file: File) -> None:
    """Sync a file, and close it."""
    done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    disk.sync([file], done.set_result)
    assert await done is None
    file.close()


class StoppedClock:
    """Tells the time that the test sets."""

    def __init__(self, now: int = START) -> None:
        self.at = now

    def now(self) -> Milliseconds:
        return Milliseconds(self.at)


def topic_id(topic: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, topic)


def batch(
    count: int = 1,
    *,
    size: int = 0,
    timestamp: int = START,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
    tag: str = "",
) -> bytes:
    """A client's batch; `producer` is (id, epoch, base sequence)."""
    records = [(timestamp + n, b"k", tag.encode() + bytes(size), ()) for n in range(count)]
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    return encode_batch(
        records,
        producer_id=ProducerId(producer_id),
        producer_epoch=Epoch(epoch),
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(
    producer_id: int,
    epoch: int,
    commit: bool,
    coordinator_epoch: LeaderEpoch = FIRST_LEADER_EPOCH,
    timestamp: int = START,
) -> bytes:
    return control_batch(ProducerId(producer_id), Epoch(epoch), coordinator_epoch, commit, Milliseconds(timestamp))


def now_at(partition: Partition) -> Milliseconds:
    """What the clock says of the storage that a partition is of."""
    return cast(Storage, partition._journal).now()


def append(partition: Partition, data: Buffer, **options: Any) -> Appended:
    """Append as a client and insist that it is taken."""
    outcome = partition.append(data, options.pop("origin", Origin.CLIENT), now_at(partition), **options)
    assert isinstance(outcome, Appended), outcome
    return outcome


def append_transactional(
    partition: Partition, producer: tuple[int, int, int], count: int = 1, *, bump: bool = False, **options: Any
) -> Appended:
    """Verify and append a batch of a transaction."""
    producer_id, epoch, sequence = producer
    guard = partition.start_verification(ProducerId(producer_id), Epoch(epoch), sequence, bump, now_at(partition))
    assert guard is None or isinstance(guard, VerificationGuard), guard
    return append(partition, batch(count, producer=producer, transactional=True, **options), guard=guard)


def end(partition: Partition, producer_id: int, epoch: int, commit: bool, **options: Any) -> Appended:
    """Write a transaction marker as the coordinator does."""
    data = marker(producer_id, epoch, commit, options.pop("coordinator_epoch", 0))
    return append(partition, data, origin=Origin.COORDINATOR, **options)


def error_of(outcome: Appended | Refused) -> ErrorCode:
    return outcome.error if isinstance(outcome, Refused) else ErrorCode.NONE


def bytes_of(partition: Partition) -> list[bytes]:
    """Every batch of the log."""
    return [bytes(data) for _, data in partition.scan()]


def values_of(partition: Partition) -> list[bytes | None]:
    return [record.value for data in bytes_of(partition) for record in decode_batch(data)]


class Node:
    """A storage that can be crashed and started again, with the same partitions."""

    def __init__(
        self,
        disk: Disk | None = None,
        partitions: Sequence[tuple[str, int]] = (("t", 0),),
        flush: str = "durable",
        root: Path = ROOT,
        open_files: int = USUAL,
        leader_epoch: int = 0,
        **settings: Any,
    ) -> None:
        self.disk = disk or SimulatedDisk(Random(1))
        self.names = list(partitions)
        self.flush = flush
        self.root = root
        self.open_files = open_files
        self.settings = LogSettings(**settings)
        self.clock = StoppedClock()
        self.leader_epoch = leader_epoch
        """Of every partition, as of the next start."""
        self.failed: Callable[[Exception], None] | None = None
        self.storage = self.start()

    def start(self, storage: Storage | None = None) -> Storage:
        if hasattr(self, "storage"):
            # Who was killed does nothing any more.
            self.storage.abandon()
        self.storage = storage or Storage(
            self.disk,
            self.root,
            self.settings,
            self.clock,
            flush=self.flush,
            failed=self.failed,
            open_files=self.open_files,
        )
        self.storage.take()
        self.storage.recover()
        for topic, index in self.names:
            self.storage.create_partition(topic, topic_id(topic), index, leader_epoch=LeaderEpoch(self.leader_epoch))
        self.storage.start()
        return self.storage

    @property
    def partition(self) -> Partition:
        return self.of(*self.names[0])

    def of(self, topic: str, index: int = 0) -> Partition:
        partition = self.storage.partition(topic, index)
        assert partition is not None
        return partition

    async def settled(self) -> None:
        await self.storage.settle()

    def kill(self) -> None:
        assert isinstance(self.disk, SimulatedDisk)
        self.disk.crash()
        self.start()

    def lose_power(self) -> None:
        assert isinstance(self.disk, SimulatedDisk)
        self.disk.power_loss()
        self.start()

    def restart(self) -> None:
        self.storage.close()
        self.start()
