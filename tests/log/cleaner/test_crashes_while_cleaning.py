"""Whenever the node ends in the middle of a pass, nothing is lost and nothing doubled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from tests.log.cleaner_doubles import (
    RETENTION,
    SETTINGS,
    Writer,
    cleaner_of,
    committed,
    expected,
    producers_of,
    table,
    until_idle,
)
from tests.log.log_doubles import Node, run

from fencepost.log.cleaner import swapping
from fencepost.log.cleaner.log_cleaner import LogCleaner
from fencepost.log.commit_log import StorageFailed
from fencepost.protocol.types import Offset
from fencepost.simulation.disk import PowerCut, SimulatedDisk

BUSY = {**SETTINGS, "checkpoint_bytes": 5_000}


def check(node: Node, writer: Writer) -> None:
    """The log has what was written, as far as it goes, and its directory nothing else."""
    partition = node.partition
    end, start = partition.log_end_offset, partition.log_start_offset
    assert table(committed(partition)) == expected(writer.history, start, end)
    offsets = [header.base_offset for header, _ in partition.scan()]
    assert offsets == sorted(set(offsets)), "a batch is there twice"
    for name in node.disk.list(partition.directory):
        assert not name.endswith((swapping.CLEANED, ".swap")), name
        if name.endswith(("log", "index")):
            assert int(name[:20]) in partition.segments.bases, name


def die(node: Node, cleaner: LogCleaner) -> None:
    """Nothing that was scheduled happens any more."""
    with suppress(PowerCut):
        cleaner.close()
    node.storage.failure = StorageFailed("the node has ended")


def started(seed: int, disk: SimulatedDisk) -> tuple[Node, Writer]:
    node = Node(disk, **BUSY)
    writer = Writer(node, Random(seed))
    return node, writer


async def crash_at(operation: int, seed: int, power_loss: bool, busy: bool) -> bool:
    """Crash at the n-th change of the disk since the cleaner was started; False if there are not so many."""
    disk = SimulatedDisk(Random(seed * 1000 + operation))
    node, writer = started(seed, disk)
    for _ in range(20 if not busy else 60):
        writer.step()
    await node.settled()
    await until_idle(node)
    node.clock.at += RETENTION + 1
    for _ in range(20 if not busy else 60):
        writer.step()
    await node.settled()
    producers, seen = producers_of(node.partition), node.partition.high_watermark
    disk.cut_power_after(operation)
    cleaner = cleaner_of(node, backoff_ms=3, journal_interval_ms=1)
    cleaner.start()
    steps = 0
    while not disk.off and steps < (60 if busy else 20):
        steps += 1
        try:
            if busy:
                act(node, writer)
        except PowerCut:
            break
        await asyncio.sleep(0.003)
        seen = max(seen, node.partition.high_watermark)
    reached = disk.off
    die(node, cleaner)
    node.lose_power() if power_loss else node.kill()
    check(node, writer)
    assert node.partition.log_end_offset >= seen, "what readers have seen is gone"
    assert busy or producers_of(node.partition) == producers
    await until_idle(node)
    check(node, writer)
    node.kill()
    check(node, writer)
    assert busy or reached or cleaner.metrics.passes, "there was something to clean"
    return reached


def close_all(writer: Writer) -> None:
    """End every transaction, so that the log is stable to its end."""
    for producer_id in sorted(writer.open):
        writer.end(producer_id)


def act(node: Node, writer: Writer) -> None:
    """Somebody else works on the partition meanwhile."""
    dice = writer.random.random()
    if dice < 0.1:
        node.partition.delete_records(Offset(writer.random.randint(0, node.partition.high_watermark // 3)))
    elif dice < 0.2:
        node.storage.checkpoint_soon()
    elif dice < 0.3:
        if node.partition.segments[-1].size:
            node.partition.roll()
    else:
        writer.step()


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_no_write_of_a_pass_is_a_bad_moment(power_loss: bool) -> None:
    operation = 1
    while run(crash_at(operation, 2, power_loss, busy=False)):
        operation += 1
    assert operation > 30, "a pass makes more changes than that"


@pytest.mark.parametrize("seed", range(60))
def test_nor_while_the_log_is_written_to_and_cut(seed: int) -> None:
    operation = Random(seed).randrange(1, 250)
    run(crash_at(operation, seed, power_loss=seed % 3 > 0, busy=True))


def test_what_is_deleted_between_decision_and_swap_goes_after_it() -> None:
    """The commit log would say of the new segment, which has the name of the first old one, that it was removed."""

    async def main() -> None:
        node, writer = started(9, SimulatedDisk(Random(9)))
        for _ in range(3):
            for _ in range(6):
                writer.step()
            close_all(writer)
            node.partition.roll()
        await node.settled()
        node.restart()
        sources, readers = node.partition.segments.bases[:2], []
        original = swapping.decide

        def decide(*where: Any) -> None:
            original(*where)
            readers.append(node.partition.scan())
            next(readers[0])

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(swapping, "decide", decide)
            cleaner = cleaner_of(node, journal_interval_ms=1)
            cleaner.start()
            await asyncio.sleep(1)
        assert readers
        lsn = node.partition.delete_records(sources[1])
        assert isinstance(lsn, int)
        await node.storage.durability.wait(lsn)
        assert node.partition.is_held, "nothing is swapped while somebody reads segment after segment"
        die(node, cleaner)
        node.kill()
        check(node, writer)
        assert node.partition.log_start_offset == sources[1]

    run(main())


def test_a_full_segment_that_waits_for_its_sync_is_not_settled_by_a_checkpoint() -> None:
    """Its last bytes stand in the new generation, and would be written into what has come into its place."""

    async def main() -> None:
        node, writer = started(4, SimulatedDisk(Random(4)))
        for _ in range(6):
            writer.step()
        await asyncio.sleep(0)  # The sync is under way.
        node.storage.checkpoint_soon()
        for _ in range(3):
            writer.step()
        close_all(writer)
        node.partition.roll()
        await node.settled()
        cleaner = cleaner_of(node, unsettled_bytes=10**9, backoff_ms=10**6, journal_interval_ms=1)
        cleaner.start()
        await asyncio.sleep(1)
        die(node, cleaner)
        node.kill()
        check(node, writer)

    run(main())
