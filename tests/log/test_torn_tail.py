"""Where no commit log tells how far a segment goes, what is whole behind a hole is never taken for a torn tail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from random import Random

import pytest
from tests.log.histories import small_files
from tests.log.log_doubles import ROOT, Node, append, batch, bytes_of, run

from fencepost.log.segment import Segment
from fencepost.log.storage import Storage
from fencepost.log.torn_tail import whole_batch_behind
from fencepost.protocol.batch import HEADER_SIZE, headers
from fencepost.protocol.types import Offset
from fencepost.simulation.disk import SimulatedDisk
from fencepost.simulation.disk_faults import FaultyDisk

DIRECTORY, LOG = ROOT / "t-0", ROOT / "commit-log"


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    small_files(monkeypatch)


def logs(node: Node) -> list[str]:
    return [name for name in node.disk.list(DIRECTORY) if name.endswith(".log")]


def contents(node: Node) -> dict[str, bytes]:
    assert isinstance(node.disk, FaultyDisk)
    return {name: node.disk.bytes_at(DIRECTORY / name) for name in logs(node)}


async def used() -> tuple[Node, list[list[bytes]]]:
    """Three segments of several batches, cleanly closed, and another partition; the batches of both."""
    node = Node(FaultyDisk(Random(1)), [("t", 0), ("u", 0)], segment_bytes=700)
    for number in range(12):
        append(node.partition, batch(tag=f"{number}", size=100))
        append(node.of("u"), batch(tag=f"u{number}"))
        await node.settled()
    written = [bytes_of(node.partition), bytes_of(node.of("u"))]
    node.storage.close()
    assert len(logs(node)) == 3
    return node, written


def without_commit_log(node: Node) -> None:
    for name in node.disk.list(LOG):
        node.disk.remove(LOG / name)


def with_nothing_in_it(node: Node) -> None:
    for name in node.disk.list(LOG):
        file = node.disk.open(LOG / name)
        file.pwrite(Random(2).randbytes(file.size()), 0)


def with_damage_at_its_beginning(node: Node) -> None:
    """The entries that name the segments are not readable."""
    (name,) = (name for name in node.disk.list(LOG) if name.endswith(".log"))
    file = node.disk.open(LOG / name)
    file.pwrite(b"\xff" * 200, 60)


LOSSES = [without_commit_log, with_nothing_in_it, with_damage_at_its_beginning]


def in_the_middle_of_a_batch(node: Node, name: str) -> None:
    assert isinstance(node.disk, FaultyDisk)
    data = node.disk.bytes_at(DIRECTORY / name)
    at = [at for at, _ in headers(data)][1]
    node.disk.open(DIRECTORY / name).pwrite(b"\xff", at + HEADER_SIZE + 3)


def in_the_length_of_a_batch(node: Node, name: str) -> None:
    assert isinstance(node.disk, FaultyDisk)
    data = node.disk.bytes_at(DIRECTORY / name)
    at = [at for at, _ in headers(data)][1]
    node.disk.open(DIRECTORY / name).pwrite(b"\x7f", at + 8)


def a_byte_shorter(node: Node, name: str) -> None:
    file = node.disk.open(DIRECTORY / name)
    file.truncate(file.size() - 1)


def a_batch_shorter(node: Node, name: str) -> None:
    """Nothing is torn."""
    assert isinstance(node.disk, FaultyDisk)
    node.disk.open(DIRECTORY / name).truncate([at for at, _ in headers(node.disk.bytes_at(DIRECTORY / name))][-1])


def in_the_last_batch(node: Node, name: str) -> None:
    """Nothing is behind it."""
    file = node.disk.open(DIRECTORY / name)
    file.pwrite(b"\xff", file.size() - 3)


def removed(node: Node, name: str) -> None:
    node.disk.remove(DIRECTORY / name)


def start(node: Node) -> Storage:
    node.start(Storage(node.disk, node.root, node.settings, node.clock, recover_from_segments=True))
    return node.storage


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("damage", "number"),
    [
        (in_the_middle_of_a_batch, 0),
        (in_the_middle_of_a_batch, 1),
        (in_the_middle_of_a_batch, 2),
        (in_the_length_of_a_batch, 1),
        (in_the_length_of_a_batch, 2),
        (a_byte_shorter, 0),
        (a_byte_shorter, 1),
        (removed, 1),
        (a_byte_shorter, 2),
        (a_batch_shorter, 2),
        (in_the_last_batch, 2),
        (removed, 2),
    ],
)
def test_it_is_offline_and_whole_again_with_a_copy(
    loss: Callable[[Node], None], damage: Callable[[Node, str], None], number: int
) -> None:
    async def main() -> None:
        node, written = await used()
        loss(node)
        name = logs(node)[number]
        whole = contents(node)
        damage(node, name)
        damaged = contents(node)
        for again in range(3):
            storage = start(node)
            assert storage.partition("t", 0) is None
            assert str(DIRECTORY) in storage.offline["t", 0].reason
            assert "put back a copy" in storage.offline["t", 0].reason
            assert bytes_of(node.of("u")) == written[1]
            assert contents(node) == damaged, "nothing is changed"
            storage.close() if again else storage.abandon()
        node.disk.open(DIRECTORY / name).pwrite(whole[name], 0)
        start(node)
        assert [bytes_of(node.partition), bytes_of(node.of("u"))] == written

    run(main())


@pytest.mark.parametrize("loss", LOSSES[:2])
def test_a_hole_in_what_no_checkpoint_has_seen_is_seen(loss: Callable[[Node], None]) -> None:
    async def main() -> None:
        node, _ = await used()
        node.start()
        for tag in ("damaged", "whole"):
            append(node.partition, batch(tag=tag, size=20))
        node.storage.abandon()
        loss(node)
        name = logs(node)[-1]
        damaged = [at for at, _ in headers(contents(node)[name])][-2]
        node.disk.open(DIRECTORY / name).pwrite(b"\xff", damaged + HEADER_SIZE + 3)
        before = contents(node)
        assert f"damaged at byte {damaged}, and there are whole batches behind" in start(node).offline["t", 0].reason
        assert contents(node) == before, "nothing is changed"

    run(main())


@pytest.mark.parametrize("loss", LOSSES[:2])
@pytest.mark.parametrize("damage", [a_byte_shorter, in_the_last_batch])
@pytest.mark.parametrize("number", [0, 1])
def test_a_segment_of_which_nobody_says_how_far_it_goes_is_not_cut_where_others_follow(
    loss: Callable[[Node], None], damage: Callable[[Node, str], None], number: int
) -> None:
    """Nothing whole is behind what is damaged, in its own file."""

    async def main() -> None:
        node, _ = await used()
        loss(node)
        name, following = logs(node)[number : number + 2]
        last = [at for at, _ in headers(contents(node)[name])][-1]
        damage(node, name)
        node.disk.remove((DIRECTORY / name).with_suffix(".checksums"))
        damaged = contents(node)
        reason = start(node).offline["t", 0].reason
        assert f"{name} is damaged at byte {last}, and there are whole batches behind that, from" in reason
        assert following in reason
        assert contents(node) == damaged, "nothing is changed"

    run(main())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("damage", [a_byte_shorter, a_batch_shorter, in_the_last_batch, removed])
def test_who_has_no_copy_may_do_without_what_is_damaged(
    loss: Callable[[Node], None], damage: Callable[[Node, str], None]
) -> None:
    """As docs/operating.md tells."""

    async def main() -> None:
        node, written = await used()
        loss(node)
        name = logs(node)[-1]
        last = [at for at, _ in headers(contents(node)[name])][-1]
        damage(node, name)
        reason = start(node).offline["t", 0].reason
        node.storage.close()
        if name in logs(node):
            assert f"{DIRECTORY / name} has {last} whole bytes and once had" in reason
            node.disk.open(DIRECTORY / name).truncate(last)
        node.disk.remove((DIRECTORY / name).with_suffix(".checksums"))
        start(node)
        left = bytes_of(node.partition)
        assert left == written[0][: len(left)]
        assert len(left) == 11 if name in logs(node) else 8

    run(main())


@pytest.mark.parametrize("loss", LOSSES[:2])
@pytest.mark.parametrize("left", [1, HEADER_SIZE - 1, HEADER_SIZE, 100])
def test_a_torn_tail_is_cut(loss: Callable[[Node], None], left: int, caplog: pytest.LogCaptureFixture) -> None:
    """And it is not said that nothing of it had been acknowledged, for nobody knows."""

    async def main() -> None:
        node, written = await used()
        node.start()
        append(node.partition, batch(tag="last", size=100))
        written[0] = bytes_of(node.partition)
        node.storage.abandon()
        loss(node)
        name, last = logs(node)[-1], written[0][-1]
        file = node.disk.open(DIRECTORY / name)
        file.truncate(file.size() - len(last) + left)
        start(node)
        assert bytes_of(node.partition) == written[0][:-1]

    caplog.set_level(logging.WARNING)
    run(main())
    (line,) = [line for line in caplog.messages if "cut a log" in line]
    assert "no commit log says whether" in line


def test_with_the_flush_of_the_operating_system_a_crash_may_leave_a_hole() -> None:
    """Nothing behind it was promised: it is cut there, as Apache Kafka does."""

    async def main() -> None:
        node = Node(FaultyDisk(Random(1)), segment_bytes=700, flush="os")
        for number in range(12):
            append(node.partition, batch(tag=f"{number}", size=100))
        written = bytes_of(node.partition)
        in_the_middle_of_a_batch(node, logs(node)[1])
        before = len(list(headers(contents(node)[logs(node)[0]])))
        node.kill()
        assert bytes_of(node.partition) == written[: before + 1]

    run(main())


def test_nothing_of_what_was_cut_off_comes_back_after_what_is_written_in_its_place() -> None:
    """A whole batch behind a hole is shorter or longer than the next one: it would stand there, or be damage."""

    async def main() -> None:
        for size in (0, 40, 100, 150, 240):
            node = Node(FaultyDisk(Random(1)), flush="os")
            for number in range(5):
                append(node.partition, batch(tag=f"{number}", size=100))
            written = bytes_of(node.partition)
            assert isinstance(node.disk, FaultyDisk)
            file = node.disk.open(DIRECTORY / f"{0:020d}.log")
            file.pwrite(bytes(len(written[2])), len(written[0]) + len(written[1]))
            node.kill()
            kept = bytes_of(node.partition)
            assert kept == written[:2]
            append(node.partition, batch(tag="new", size=size))
            kept = bytes_of(node.partition)
            for _ in range(2):
                node.kill()
                assert node.storage.offline == {} and bytes_of(node.partition) == kept

    run(main())


def segment(data: bytes) -> Segment:
    disk = SimulatedDisk(Random(1))
    disk.make_directory(DIRECTORY)
    disk.open(DIRECTORY / f"{0:020d}.log").pwrite(data, 0)
    return Segment(disk, DIRECTORY, Offset(0), 1, 4096)


def offset_batches(*offsets: int) -> Iterator[bytes]:
    for offset in offsets:
        yield offset.to_bytes(8, "big") + batch(tag=f"{offset}", size=20)[8:]


def test_a_whole_batch_is_found_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    older, newer = offset_batches(3, 7)
    random = Random(3)
    for piece in (64, 100, 1 << 20):
        monkeypatch.setattr("fencepost.log.torn_tail._PIECE", piece)
        for count in [*range(70), 1000]:
            noise = random.choice((random.randbytes, bytes, lambda n: b"\2" * n))(count)
            found = whole_batch_behind(segment(noise + newer), 0, Offset(5))
            assert found == (len(noise) if count else None), "not where the reading stopped, but behind that"
            assert whole_batch_behind(segment(noise + newer), 0, Offset(8)) is None, "one of an earlier offset is none"
            assert whole_batch_behind(segment(noise + newer[:-1]), 0, Offset(5)) is None
            assert whole_batch_behind(segment(noise + older + newer), 0, Offset(5)) == len(noise + older)
