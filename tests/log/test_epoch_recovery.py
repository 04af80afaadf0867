"""`leader-epoch-checkpoint` damaged in every way that a byte, a cut or somebody else's file can: it is made again."""

from __future__ import annotations

import logging
from functools import lru_cache
from random import Random
from typing import Any

import pytest
from tests.log.log_doubles import ROOT, Node, append, batch, run

from fencepost.log import commit_log
from fencepost.protocol.types import LeaderEpoch
from fencepost.simulation.disk_faults import FaultyDisk

FILE = ROOT / "t-0" / "leader-epoch-checkpoint"
LEADERS = {0: 3, 2: 1, 5: 40, 6: 2, 11: 7}
"""Leader epoch -> how many batches of three records it writes."""
SETTINGS: dict[str, Any] = {"segment_bytes": 1500}
SOMEBODY_ELSES = [
    b"",
    b"0\n",
    b"0\n0\n",
    b"0\n1\n0 0\n",
    b"0\n1\n11 138\n",
    b"0\n1\n11 0\n",
    b"0\n1\n12 0\n",
    b"0\n2\n0 0\n11 138\n",
    b"0\n4\n0 0\n2 9\n5 12\n6 132\n",
    b"0\n5\n0 0\n2 9\n5 12\n6 132\n11 139\n",
    b"0\n5\n0 0\n2 9\n5 15\n6 132\n11 138\n",
    b"0\n5\n0 0\n2 9\n4 12\n6 132\n11 138\n",
    b"0\n5\n0 0\n3 9\n5 12\n6 132\n11 138\n",
    b"0\n5\n0 0\n2 9\n5 12\n6 132\n11 99999999999999999999\n",
    b"0\n5\n0 0\n2 9\n5 12\n6 132\n11 1000\n",
    "0\n1\n0 \N{SUPERSCRIPT TWO}\n".encode(),
    bytes(35),
]


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "_ALLOCATION", 4096)


@lru_cache
def written() -> tuple[FaultyDisk, bytes, dict[int, tuple[int, int]]]:
    """A closed disk, the file, and the answers."""

    async def main() -> tuple[FaultyDisk, bytes, dict[int, tuple[int, int]]]:
        disk = FaultyDisk(Random(1))
        node = Node(disk, leader_epoch=0, **SETTINGS)
        for epoch, count in LEADERS.items():
            node.leader_epoch = epoch
            node.restart()
            for _ in range(count):
                append(node.partition, batch(3))
            await node.settled()
        known = answers(node)
        node.storage.close()
        return disk, disk.bytes_at(FILE), known

    return run(main())


def answers(node: Node) -> dict[int, tuple[int, int]]:
    return {epoch: node.partition.end_offset_for_epoch(LeaderEpoch(epoch)) for epoch in range(-1, 13)}


def changes() -> list[bytes | None]:
    whole = written()[1]
    assert whole == b"0\n5\n0 0\n2 9\n5 12\n6 132\n11 138\n"
    found: list[bytes | None] = [None, *SOMEBODY_ELSES]
    for at in range(len(whole)):
        found += [whole[:at], whole[:at] + whole[at + 1 :], whole[:at] + b"1" + whole[at:]]
        found += [whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for bit in range(8)]
    return found


@pytest.mark.parametrize("part", range(4))
def test_however_the_file_is_damaged_the_answers_are_the_same(part: int) -> None:
    disk, _, known = written()

    async def main(change: bytes | None) -> None:
        node = Node(damaged(disk, change), leader_epoch=11, **SETTINGS)
        assert answers(node) == known, change
        assert len({start for _, start in node.partition.epoch_starts}) == len(node.partition.epoch_starts)
        append(node.partition, batch(3))
        await node.settled()
        node.leader_epoch = 12
        node.restart()
        assert answers(node) == known | {11: (11, 162), 12: (12, 162)}, change
        node.storage.close()

    for change in changes()[part::4]:
        run(main(change))


def damaged(disk: FaultyDisk, change: bytes | None) -> FaultyDisk:
    disk = disk.copy()
    if change is None:
        disk.remove(FILE)
        disk.sync_directory(FILE.parent)
    else:
        disk.overwrite(FILE, change)
    return disk


def test_a_file_that_is_right_is_left_and_one_that_cannot_be_read_is_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        disk, whole, known = written()
        disk = disk.copy()
        node = Node(disk, leader_epoch=11, **SETTINGS)
        node.restart()
        assert (disk.bytes_at(FILE), caplog.messages) == (whole, [])
        node.storage.close()
        disk.fail(FILE, "read")
        for _ in range(2):
            node.start()
            assert answers(node) == known
            node.storage.close()
        (line,) = caplog.messages
        assert "leader-epoch-checkpoint could not be read" in line and "topic=t partition=0" in line

    with caplog.at_level(logging.WARNING, "fencepost"):
        run(main())


def test_what_batches_of_no_order_say_does_not_count_against_a_whole_file() -> None:
    """The leader epoch in front of a batch is covered by no checksum."""

    async def main() -> None:
        disk, whole, known = written()
        disk = disk.copy()
        segment = FILE.parent / f"{0:020d}.log"
        data = bytearray(disk.bytes_at(segment))
        size = int.from_bytes(data[8:12], "big") + 12
        data[4 * size + 15] = 6  # the first batch of epoch 5
        disk.overwrite(segment, bytes(data))
        node = Node(disk, leader_epoch=11, **SETTINGS)
        assert answers(node) == known and disk.bytes_at(FILE) == whole
        node.storage.close()

    run(main())
