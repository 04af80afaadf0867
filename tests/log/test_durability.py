"""What was acknowledged is there after any crash, in order, and nothing else; and the checker of this can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.log.histories import World, live, small_files
from tests.log.history_model import Violation
from tests.log.log_doubles import run

from fencepost.log.commit_log import CommitLog
from fencepost.log.disk import File, SyncDone
from fencepost.log.durability import Durability
from fencepost.log.replay import Replay
from fencepost.log.storage import Storage
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.types import Lsn
from fencepost.runtime import at_once
from fencepost.simulation.disk import SimulatedDisk


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    small_files(monkeypatch)


def history(seed: int, disk: type[SimulatedDisk] = SimulatedDisk) -> World:
    # Half of them with so few descriptors that none is kept for long.
    world = World(seed, disk(Random(seed), descriptors=8 if seed % 2 else None))
    run(live(world, lives=8, steps=80))
    return world


@pytest.mark.parametrize(
    "seed", [*range(100), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(100, 300))]
)
def test_what_was_acknowledged_survives(seed: int) -> None:
    assert history(seed).survived, "a history in which nothing survived shows nothing"


@pytest.mark.parametrize("flushes", [["os"], ["os", "durable"]])
@pytest.mark.parametrize("seed", range(15))
def test_what_was_answered_survives_a_kill_where_nothing_is_synced(seed: int, flushes: Sequence[str]) -> None:
    world = World(seed, SimulatedDisk(Random(seed)), flushes=flushes)
    run(live(world, lives=8, steps=80))


def test_a_seed_is_a_history() -> None:
    first, second = history(7), history(7)
    assert first.histories == second.histories
    assert first.clock.at == second.clock.at


# Mutants


class DeafDisk(SimulatedDisk):
    """Reports syncs that it never does."""

    def sync(self, files: Sequence[File], done: SyncDone) -> None:  # noqa: ARG002
        asyncio.get_running_loop().call_soon(done, None)

    def sync_now(self, files: Sequence[File]) -> None:
        pass


class ForgetfulDisk(SimulatedDisk):
    """Never makes a directory entry durable when asked in place."""

    def sync_directory(self, path: Path) -> None:
        pass


def acknowledge_early(monkeypatch: pytest.MonkeyPatch) -> None:
    add = CommitLog._add

    def early(log: CommitLog, payload: bytes) -> Lsn:
        log.durability.lsn = add(log, payload)
        return log.durability.lsn

    monkeypatch.setattr(CommitLog, "_add", early)


def show_early(monkeypatch: pytest.MonkeyPatch) -> None:
    appended = Storage.appended

    def early(storage: Storage, partition: Any, segment: Any, position: int, data: Any) -> int:
        lsn = appended(storage, partition, segment, position, data)
        partition.advance(partition.log_end_offset)
        return lsn

    monkeypatch.setattr(Storage, "appended", early)


def leave_out_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replay, "apply", lambda *_: None)


def leave_out_the_extents_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    add_extent = CommitLog.add_extent

    def add(log: CommitLog, *entry: Any) -> int:
        lsn = add_extent(log, *entry)
        log._extents.clear()
        return lsn

    monkeypatch.setattr(CommitLog, "add_extent", add)


def forget_old_generations_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = CommitLog.begin

    def hasty(log: CommitLog, generation: int) -> None:
        begin(log, generation)
        for older in log.generations():
            if older < generation:
                log._disk.remove(log.path(older))

    monkeypatch.setattr(CommitLog, "begin", hasty)


def same(_: pytest.MonkeyPatch) -> None:
    pass


@pytest.mark.parametrize(
    ("mutate", "disk"),
    [
        (acknowledge_early, SimulatedDisk),
        (show_early, SimulatedDisk),
        (same, DeafDisk),
        (same, ForgetfulDisk),
        (leave_out_the_replay, SimulatedDisk),
        (leave_out_the_extents_sync, SimulatedDisk),
        (forget_old_generations_at_once, SimulatedDisk),
    ],
)
def test_a_broken_storage_is_caught(
    mutate: Callable[[pytest.MonkeyPatch], None], disk: type[SimulatedDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    for seed in range(60):
        try:
            history(seed, disk)
        except Violation:
            return
        except ProtocolError:
            pass  # Caught too, but not by the checker.
    pytest.fail("no history shows what is broken")


# Who waits


def called_back(durability: Durability, lsn: Lsn) -> None:
    durability.lsn = lsn
    at_once(durability.call_back())


def test_who_waits_is_called_back_when_what_he_waits_for_is_durable_and_not_before() -> None:
    durability, told = Durability(), list[int]()
    for lsn in (1, 3, 2, 5):
        durability.when(Lsn(lsn), partial(told.append, lsn))
    called_back(durability, Lsn(0))
    assert told == []
    called_back(durability, Lsn(1))
    assert told == [1]
    called_back(durability, Lsn(4))
    assert told == [1, 3, 2]
    durability.when(Lsn(4), partial(told.append, 4))
    assert told == [1, 3, 2, 4], "at once, for it is durable"
    called_back(durability, Lsn(5))
    assert told == [1, 3, 2, 4, 5]


def test_many_who_wait_for_one_sync_are_called_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.log.durability.CALLED_AT_ONCE", 3)
    durability, told = Durability(), list[int]()
    for number in range(7):
        durability.when(Lsn(1), partial(told.append, number))
    durability.lsn = Lsn(1)
    steps = [len(told) for _ in durability.call_back()]
    assert steps == [3, 6]
    assert told == list(range(7))


def test_who_gave_up_waiting_is_nothing_to_the_others_and_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        durability = Durability()
        waiting = [asyncio.ensure_future(durability.wait(Lsn(1))) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.sleep(0)
        called_back(durability, Lsn(1))
        await asyncio.gather(waiting[0], waiting[2])
        assert waiting[1].cancelled()

    run(main())
    assert caplog.messages == []


@pytest.mark.parametrize("fails", [False, True])
def test_only_who_ends_the_node_waits_no_longer_than_the_disk_lives(fails: bool) -> None:
    async def main() -> None:
        durability = Durability()
        others, last = (
            asyncio.ensure_future(durability.wait(Lsn(1))),
            asyncio.ensure_future(durability.wait_or_fail(Lsn(1))),
        )
        await asyncio.sleep(0)
        if fails:
            durability.fail()
            durability.fail()
        else:
            called_back(durability, Lsn(1))
        await last
        await asyncio.sleep(0)
        assert others.done() is not fails
        others.cancel()

    run(main())
