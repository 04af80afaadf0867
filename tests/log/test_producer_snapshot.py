"""Producer snapshots: Apache Kafka's format, the window beside it, and damage (facts §6.10)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from struct import pack

import pytest
from crc32c import crc32c

from fencepost.log.producer_snapshot import decode_snapshot, encode_snapshot, read_snapshot, write_snapshot
from fencepost.log.producer_state import BatchMetadata, ProducerEntry
from fencepost.protocol.types import NO_LEADER_EPOCH, Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId
from fencepost.simulation.disk import SimulatedDisk

ROOT = Path("/")


def entries() -> list[ProducerEntry]:
    full = ProducerEntry(ProducerId(7), Epoch(3), LeaderEpoch(2), Milliseconds(900), Offset(40), last_seen=950)
    full.batches.extend(
        BatchMetadata(number, Offset(10 * number), 2, Milliseconds(100 * number)) for number in range(7)
    )
    return [full, ProducerEntry(ProducerId(8), Epoch(0), NO_LEADER_EPOCH, Milliseconds(500), None, last_seen=501)]


def test_the_format() -> None:
    body = pack(">iqhiqiqiq", 2, 7, 3, 6, 60, 2, 900, 2, 40) + pack(">qhiqiqiq", 8, 0, -1, -1, 0, 500, -1, -1)
    assert encode_snapshot(entries()) == pack(">hI", 1, crc32c(body)) + body


def test_the_whole_window_comes_back() -> None:
    disk = SimulatedDisk(Random(1))
    for file in write_snapshot(disk, ROOT, Offset(99), entries()):
        file.close()
    assert read_snapshot(disk, ROOT, Offset(99)) == entries()
    assert read_snapshot(disk, ROOT, Offset(98)) is None


@pytest.mark.parametrize("damage", ["missing", "torn", "corrupt"])
def test_without_its_window_a_producer_has_its_last_batch(damage: str) -> None:
    disk = SimulatedDisk(Random(1))
    _, window = write_snapshot(disk, ROOT, Offset(99), entries())
    if damage == "missing":
        disk.remove(ROOT / f"{99:020d}.window")
    elif damage == "torn":
        window.truncate(window.size() - 3)
    else:
        window.pwrite(b"\xff", 20)
    assert read_snapshot(disk, ROOT, Offset(99)) is None
    found = read_snapshot(disk, ROOT, Offset(99), whole=False)
    assert found is not None
    assert [[batch[:3] for batch in entry.batches] for entry in found] == [[(6, 60, 2)], []]


def test_every_damage_is_noticed() -> None:
    data = encode_snapshot(entries())
    assert decode_snapshot(data) is not None
    assert all(decode_snapshot(data[:count]) is None for count in range(len(data)))
    for at in range(len(data)):
        assert decode_snapshot(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None


@pytest.mark.parametrize("moved", [(".snapshot",), (".window",), (".snapshot", ".window")])
@pytest.mark.parametrize("fewer", [False, True])
def test_what_is_of_another_offset_is_not_believed(moved: tuple[str, ...], fewer: bool) -> None:
    """Both are whole by themselves, and may have the same producers."""
    disk = SimulatedDisk(Random(1))
    for offset, given in ((50, entries()), (99, entries())):
        if offset == 50:
            given[0].batches.pop() if fewer else given[0].batches.append(
                BatchMetadata(9, Offset(90), 2, Milliseconds(900))
            )
        for file in write_snapshot(disk, ROOT, Offset(offset), given):
            file.close()
    for suffix in moved:
        disk.rename(ROOT / f"{50:020d}{suffix}", ROOT / f"{99:020d}{suffix}")
    assert read_snapshot(disk, ROOT, Offset(99)) is None


def test_a_window_of_an_older_version_is_bound_to_nothing_and_read() -> None:
    disk = SimulatedDisk(Random(1))
    _, window = write_snapshot(disk, ROOT, Offset(99), entries())
    window.pwrite(crc32c(window.pread(window.size(), 4)).to_bytes(4, "big"), 0)
    assert read_snapshot(disk, ROOT, Offset(99)) == entries()
