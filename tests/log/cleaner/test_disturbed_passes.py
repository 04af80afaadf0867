"""Whatever else happens to a log in the middle of a pass: nothing of it is lost, and it is cleaned in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
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
from tests.log.log_doubles import ROOT, Node, append, delete_topic, run

from fencepost.log.cleaner import cleaning, swapping
from fencepost.log.cleaner.log_cleaner import LogCleaner
from fencepost.log.disk import File, SyncDone
from fencepost.log.partition import Partition
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Offset
from fencepost.simulation.disk import SimulatedDisk

NAMES = (("t", 0), ("other", 0))
STRIDE = 5


async def written(seed: int, journals: bool = False) -> tuple[Node, Writer]:
    """A log that has been cleaned once and is dirty again, and another one; `journals` are cleaned together."""
    node = Node(SimulatedDisk(Random(seed)), NAMES, **SETTINGS, journal_roll_bytes=1 << 30 if journals else -1)
    writer = Writer(node, Random(seed))
    for _ in range(30):
        writer.step()
    await clean(node)
    node.clock.at += RETENTION + 1
    for _ in range(30):
        writer.step()
    for producer_id in sorted(writer.open):
        writer.end(producer_id)
    for _ in range(9):
        append(node.of("other"), encode_batch([(node.clock.at, b"k", bytes(400), ())]))
    for name, _ in NAMES:
        node.of(name).roll()
    return node, writer


async def clean(node: Node) -> LogCleaner:
    await node.settled()
    return await until_idle(node)


def check(node: Node, writer: Writer) -> None:
    partition = node.partition
    assert table(committed(partition)) == expected(writer.history, partition.log_start_offset, partition.log_end_offset)
    for name in node.disk.list(partition.directory):
        assert not name.endswith((swapping.CLEANED, ".swap")), name


def is_clean(cleaner: LogCleaner, node: Node, topic: str) -> bool:
    """Whether there is nothing left to clean."""
    partition = node.of(topic)
    return cleaner._first_dirty.of(partition) == partition.segments.bases[-1]


# What happens


def becomes_delete(node: Node, _: Writer) -> None:
    node.partition.settings = node.partition.settings.with_(cleanup_policy="delete")


def becomes_delete_for_a_moment(node: Node, writer: Writer) -> None:
    becomes_delete(node, writer)
    settings = node.partition.settings.with_(cleanup_policy="compact")
    asyncio.get_running_loop().call_later(0.004, setattr, node.partition, "settings", settings)


def is_retained(node: Node, _: Writer) -> None:
    """compact,delete: all but the newest segments are too old."""
    policies, now = {"cleanup_policy": "compact,delete", "retention_ms": RETENTION // 4}, node.clock.now()
    node.partition.settings = node.partition.settings.with_(**policies)
    node.partition.retain(now)


def loses_records(node: Node, _: Writer) -> None:
    assert isinstance(node.partition.delete_records(Offset(node.partition.high_watermark // 2)), int)


def rolls(node: Node, writer: Writer) -> None:
    writer.step()
    node.partition.roll()


def fills_the_disk(node: Node, _: Writer) -> None:
    assert isinstance(node.disk, SimulatedDisk)
    node.disk.capacity = node.disk.used() + 10


def ends_well(node: Node, writer: Writer) -> None:
    """What was in the way is gone."""
    assert isinstance(node.disk, SimulatedDisk)
    node.disk.capacity = None
    node.partition.settings = node.partition.settings.with_(cleanup_policy="compact")
    node.clock.at += RETENTION + 1
    for producer_id in sorted(writer.open):
        writer.end(producer_id)
    if node.partition.segments[-1].size:
        node.partition.roll()


async def disturbed(at: int, happens: Callable[[Node, Writer], None], node: Node, writer: Writer) -> bool:
    """Let it happen before that step of the passes over the log; False if there are not so many."""
    await node.settled()
    cleaner, partition, steps = cleaner_of(node), node.partition, 0
    go_on = cleaner._go_on

    def counted(work: Any) -> None:
        nonlocal steps
        if work.partition is partition:
            steps += 1
            if steps == at:
                happens(node, writer)
        go_on(work)

    cleaner._go_on = counted  # type: ignore[method-assign]
    cleaner.start()
    await asyncio.sleep(30)
    assert not cleaner.uncleanable
    if happens is not fills_the_disk:
        assert is_clean(cleaner, node, "other"), "the next one has its turn"
    cleaner.close()
    return steps >= at


@pytest.mark.parametrize("journals", [False, True])
@pytest.mark.parametrize(
    "happens",
    [becomes_delete, becomes_delete_for_a_moment, is_retained, loses_records, rolls, fills_the_disk],
)
def test_nothing_is_lost_and_it_is_cleaned_in_the_end(
    happens: Callable[[Node, Writer], None], journals: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "STEP", 1)

    async def main(at: int) -> bool:
        node, writer = await written(5, journals)
        reached = await disturbed(at, happens, node, writer)
        check(node, writer)
        start = node.partition.log_start_offset
        ends_well(node, writer)
        cleaner = await clean(node)
        # What the first cleaner did is noted now and then only, so this one may have to do it again.
        assert all(is_clean(cleaner, node, name) for name, _ in NAMES)
        check(node, writer)
        producers = producers_of(node.partition)
        node.kill()
        check(node, writer)
        assert node.partition.log_start_offset >= start
        assert producers_of(node.partition) == producers
        return reached

    at, reached = 1, True
    while reached:
        reached = run(main(at))
        at += STRIDE
    assert at > 20, "a pass has more steps than that"


@pytest.mark.parametrize("journals", [False, True])
def test_a_log_of_which_nothing_is_left_when_its_turn_comes_is_passed_over(
    journals: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was chosen while it had something to clean."""
    monkeypatch.setattr(cleaning, "STEP", 1)

    async def main() -> None:
        node, _ = await written(5, journals)
        node.storage.checkpoint_soon()
        await asyncio.sleep(1)
        cleaner = cleaner_of(node)
        seen: list[Partition] = []
        go_on = cleaner._go_on

        def counted(work: Any) -> None:
            if not seen:
                for name, _ in NAMES:
                    if node.of(name) is not work.partition:
                        node.of(name).delete_records(Offset(-1))
                        assert len(node.of(name).segments) == 1
            seen.append(work.partition)
            go_on(work)

        cleaner._go_on = counted  # type: ignore[method-assign]
        cleaner.start()
        await asyncio.sleep(30)
        assert len(set(seen)) == 1
        append(node.partition, encode_batch([(node.clock.at, b"k", None, ())]))
        node.partition.roll()
        await asyncio.sleep(30)
        assert is_clean(cleaner, node, "t"), "the cleaner goes on"
        cleaner.close()

    run(main())


@pytest.mark.parametrize("happens", [loses_records, is_retained])
def test_what_goes_while_the_cleaned_segment_is_synced_does_not_come_back(
    happens: Callable[[Node, Writer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        node, writer = await written(1)
        await node.settled()
        disk, met = node.storage.disk, list[str]()
        sync = disk.sync

        def syncing(files: Sequence[File], done: SyncDone) -> None:
            names = [name for file in files if (name := getattr(file, "name", "")).endswith(f".log{swapping.CLEANED}")]
            if names and not met:
                met.extend(names)
                happens(node, writer)
            sync(files, done)

        monkeypatch.setattr(disk, "sync", syncing)
        cleaner = cleaner_of(node)
        cleaner.start()
        await asyncio.sleep(20)
        ends_well(node, writer)
        assert met and node.storage.failure is None and not cleaner.uncleanable
        check(node, writer)
        cleaner.close()
        await node.settled()
        start = node.partition.log_start_offset
        node.lose_power()
        assert 0 < start == node.partition.log_start_offset
        check(node, writer)

    run(main())


def test_a_topic_that_is_deleted_takes_its_pass_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "STEP", 1)

    def is_deleted(node: Node, _: Writer) -> None:
        node.names = list(NAMES[1:])
        delete_topic(node.storage, "t")

    async def main(at: int) -> bool:
        node, writer = await written(6)
        reached = await disturbed(at, is_deleted, node, writer)
        await node.settled()
        assert (node.storage.partition("t", 0) is None) is reached
        node.kill()
        left = [name for name in node.disk.list(ROOT) if name.startswith("t-")]
        assert left == ([] if reached else ["t-0"])
        return reached

    at, reached = 1, True
    while reached:
        reached = run(main(at))
        at += STRIDE
    assert at > 20, "a pass has more steps than that"


def test_a_damaged_segment_stops_its_own_log_only_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Wherever the damage is; what is superseded anyway may go unread."""

    def said(path: Path) -> int:
        return sum(str(path) in each.getMessage() for each in caplog.records)

    seen: list[str] = []

    async def main(place: int) -> str:
        node, writer = await written(7)
        await node.settled()
        for segment in node.partition.segments[:-1]:
            if place < segment.size:
                break
            place -= segment.size
        else:
            return "beyond"
        file, path = node.disk.open(segment.path), segment.path
        whole = file.pread(12, place)
        file.pwrite(bytes(each ^ 0x55 for each in whole), place)
        caplog.clear()
        cleaner = await clean(node)
        assert is_clean(cleaner, node, "other")
        if not cleaner.uncleanable:
            check(node, writer)
            return "cleaned"
        ((log, why),) = cleaner.uncleanable.items()
        assert log.topic == "t" and str(path) in why
        assert said(path) == 1 or seen, "after some of them the others are left out"
        file.pwrite(whole, place)
        node.restart()
        await clean(node)
        check(node, writer)
        return "stopped"

    while "beyond" not in seen:
        seen.append(run(main(len(seen) * 130)))
    assert seen.count("stopped") > 10
    assert "cleaned" in seen


@pytest.mark.parametrize("backoff_ms", [0, 1_000])
def test_where_there_is_nothing_to_clean_it_is_not_looked_without_a_pause(backoff_ms: int) -> None:
    async def main() -> None:
        node, looks = Node(**SETTINGS), 0
        cleaner = cleaner_of(node, backoff_ms=backoff_ms)
        survey = cleaner._surveyor.survey

        def counted(*given: Any) -> Any:
            nonlocal looks
            looks += 1
            assert looks < 500, "without a pause no time passes"
            return survey(*given)

        cleaner._surveyor.survey = counted  # type: ignore[assignment, method-assign]
        cleaner.start()
        await asyncio.sleep(10)
        cleaner.close()
        assert looks == pytest.approx(10_000 / (backoff_ms or 100), abs=2)

    run(main())
