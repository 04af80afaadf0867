"""A cleaned segment takes the place of others whole or not at all, at every change of the directory, by every loss."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from fencepost.log.cleaner import swapping
from fencepost.log.disk import Disk
from fencepost.protocol.types import Offset
from fencepost.simulation.disk import PowerCut, SimulatedDisk

DIRECTORY = Path("/data/t-0")
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
BASES = (0, 100, 200, 300)


def name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


def write(disk: Disk, file: str, text: str) -> None:
    opened = disk.open(DIRECTORY / file)
    opened.pwrite(text.encode(), 0)
    disk.sync_now([opened])
    opened.close()


def content(disk: Disk) -> dict[str, str]:
    found = {}
    for file in disk.list(DIRECTORY):
        opened = disk.open(DIRECTORY / file)
        found[file] = opened.pread(100, 0).decode()
        opened.close()
    return found


OLD = {name(base, suffix): f"old {base}{suffix}" for base in BASES for suffix in SUFFIXES}
NEW = {name(0, suffix): f"new{suffix}" for suffix in SUFFIXES} | {
    name(300, suffix): f"old 300{suffix}" for suffix in SUFFIXES
}


def swap(disk: Disk) -> None:
    """As a pass does it."""
    for suffix in SUFFIXES:
        write(disk, name(0, suffix + swapping.CLEANED), f"new{suffix}")
    disk.sync_directory(DIRECTORY)
    swapping.decide(disk, DIRECTORY, Offset(0), Offset(300))
    disk.sync_directory(DIRECTORY)
    swapping.carry_out(disk, DIRECTORY, Offset(0), Offset(300))
    disk.sync_directory(DIRECTORY)


def made(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.make_directory(DIRECTORY)
    for file, text in OLD.items():
        write(disk, file, text)
    for path in (DIRECTORY, *DIRECTORY.parents):
        disk.sync_directory(path)
    return disk


def cut(disk: SimulatedDisk, operation: int, power_loss: bool, work: object) -> bool:
    """Do it until the power is cut at that change; False if there are not so many."""
    disk.cut_power_after(operation)
    try:
        work(disk)  # type: ignore[operator]
    except PowerCut:
        (disk.power_loss if power_loss else disk.crash)()
        return True
    disk.power_loss()
    return False


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_it_is_all_new_or_all_old(power_loss: bool) -> None:
    outcomes = set()
    first, more = 1, True
    while more:
        more = False
        for seed in range(40):
            disk = made(seed)
            more |= cut(disk, first, power_loss, swap)
            # The start that tidies up may be cut off as well, in its turn at every of its changes.
            second = 1 + seed % 16
            cut(disk, second, True, lambda disk: swapping.finish(disk, DIRECTORY))
            swapping.finish(disk, DIRECTORY)
            found = content(disk)
            assert found in (OLD, NEW), f"cut at {first} and {second}, seed {seed}: {found}"
            outcomes.add(found == NEW)
            swapping.finish(disk, DIRECTORY)
            assert content(disk) == found
        first += 1
    assert outcomes == {False, True} and first > 20


def test_an_undecided_one_is_forgotten_before_the_next() -> None:
    disk = made(1)
    write(disk, name(100, ".index" + swapping.CLEANED), "half")
    swapping.discard(disk, DIRECTORY)
    assert content(disk) == OLD


def test_a_name_that_is_no_swap_is_left() -> None:
    disk = made(1)
    write(disk, "notes.swap", "mine")
    swapping.finish(disk, DIRECTORY)
    assert content(disk) == {**OLD, "notes.swap": "mine"}
