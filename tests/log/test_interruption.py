"""A start that is told to stop goes on for a little; where it is cut off, what it was at is as a kill leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from tests.log.histories import small_files
from tests.log.log_doubles import ROOT, Node, append, append_transactional, batch, bytes_of, end, run

from fencepost.log import interruption, replay
from fencepost.log.interruption import PATIENCE_SECONDS, Interruption
from fencepost.log.open_files import OpenFiles
from fencepost.log.storage import Storage
from fencepost.simulation.disk import SimulatedDisk


def test_a_start_that_is_told_to_stop_goes_on_for_some_seconds_and_is_then_cut_off() -> None:
    async def main() -> None:
        told = False
        watch = Interruption(lambda: told)
        watch.check()
        await asyncio.sleep(2 * PATIENCE_SECONDS)
        watch.check()
        told = True
        watch.check()
        await asyncio.sleep(PATIENCE_SECONDS * 0.9)
        watch.check()
        assert not watch.has_cut_off
        await asyncio.sleep(PATIENCE_SECONDS * 0.2)
        with pytest.raises(asyncio.CancelledError):
            watch.check()
        assert watch.has_cut_off

    run(main())


async def used(names: list[tuple[str, int]], lost: bool) -> tuple[Node, list[list[bytes]]]:
    """A node that was killed, of whose commit log nothing is left where it is `lost`; the batches of each partition."""
    node = Node(SimulatedDisk(Random(1)), names, segment_bytes=400)
    for number in range(4):
        for topic, index in names:
            append(node.of(topic, index), batch(tag=f"{topic}{number}"))
            append_transactional(node.of(topic, index), (7, number, 0), tag=f"{topic}'{number}")
            end(node.of(topic, index), 7, number, number % 2 == 0)
        await node.settled()
    written = [bytes_of(node.of(*name)) for name in names]
    assert isinstance(node.disk, SimulatedDisk)
    node.disk.crash()
    if lost:
        for name in node.disk.list(ROOT / "commit-log"):
            node.disk.remove(ROOT / "commit-log" / name)
    return node, written


@pytest.mark.parametrize("lost", [False, True])
def test_a_start_that_is_cut_off_wherever_it_reads_leaves_everything_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    small_files(monkeypatch)
    monkeypatch.setattr(interruption, "PATIENCE_SECONDS", 0)
    cut_off = 0

    async def main() -> None:
        nonlocal cut_off
        names = [("t", 0), ("u", 0), ("u", 1)]
        node, written = await used(names, lost)
        while True:
            watch = Interruption(after(cut_off + 1))
            try:
                node.start(storage_of(node, watch))
            except asyncio.CancelledError:
                assert watch.has_cut_off
                cut_off += 1
            else:
                assert [bytes_of(node.of(*name)) for name in names] == written
                return

    run(main())
    assert cut_off > 20


@pytest.mark.parametrize("topics", ["t", "tu"])
def test_what_was_cut_is_said_by_the_start_that_did_it_though_it_is_cut_off_itself(
    topics: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one finds nothing to cut there."""
    small_files(monkeypatch)
    monkeypatch.setattr(replay, "_TOGETHER", 1)
    monkeypatch.setattr(interruption, "PATIENCE_SECONDS", 0)

    async def main() -> None:
        node = Node(SimulatedDisk(Random(1)), [(topic, 0) for topic in topics])
        (name,) = node.disk.list(ROOT / "commit-log")
        file = node.disk.open(ROOT / "commit-log" / name)
        begun = len(file.pread(file.size(), 0).rstrip(b"\0"))
        for topic in topics:
            append(node.of(topic), batch(tag=topic))
        await node.settled()
        lost = sum(node.of(topic).segments[-1].size for topic in topics)
        file.pwrite(bytes(file.size() - begun), begun)
        assert isinstance(node.disk, SimulatedDisk)
        node.disk.crash()
        cut_off = 0
        while True:
            try:
                node.start(storage_of(node, Interruption(after(cut_off + 1))))
            except asyncio.CancelledError:
                cut_off += 1
            else:
                break
        said = [int(text.split()[1]) for text in caplog.messages if text.startswith("cut ")]
        assert (sum(said), len(said), cut_off > 5) == (lost, len(topics), True)

    run(main())


def test_a_start_is_cut_off_where_it_reads_a_file_that_is_long_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "PATIENCE_SECONDS", 0)

    async def main() -> None:
        told = False
        disk = OpenFiles(SimulatedDisk(Random(1)), interruption=Interruption(lambda: told))
        disk.make_directory(ROOT)
        file = disk.open(ROOT / "file")
        file.pwrite(b"content", 0)
        assert file.pread(7, 0) == b"content"
        told = True
        with pytest.raises(asyncio.CancelledError):
            file.pread(7, 0)

    run(main())


def after(looks: int) -> Callable[[], bool]:
    """Says that the node was told to stop when it is asked for the so-and-so-many-th time."""
    asked = 0

    def told() -> bool:
        nonlocal asked
        asked += 1
        return asked >= looks

    return told


def storage_of(node: Node, watch: Interruption) -> Storage:
    return Storage(node.disk, node.root, node.settings, node.clock, interruption=watch)


def test_only_a_start_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """From when all is recovered a stop is quick, and leaves nothing to do again."""
    monkeypatch.setattr(interruption, "PATIENCE_SECONDS", 0)

    async def main() -> None:
        node, (written,) = await used([("t", 0)], lost=False)
        told = False
        node.start(storage_of(node, Interruption(lambda: told)))
        told = True
        assert bytes_of(node.partition) == written
        node.restart()

    run(main())
