"""The troubles of a world, one incident at a time: of the node, its disk, its clients, their network and its topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import Enum
from random import Random
from typing import Any, Final, Literal, NamedTuple

from fencepost.simulation.changing_settings import ChangingSettings
from fencepost.simulation.changing_topics import ChangingTopics
from fencepost.simulation.crashes import finalize
from fencepost.simulation.disk import PowerCut
from fencepost.simulation.disk_faults import Wrong
from fencepost.simulation.faulty_runs import move_coordinator
from fencepost.simulation.hanging_transactions import look_for_what_hangs
from fencepost.simulation.world import PORT, Client, World

HOUR_MS: Final = 3_600_000


class Trouble(Enum):
    """The kinds of trouble that may befall a world; the value says it in words."""

    KILLED = "killed"
    POWER_LOST = "power lost"
    STOPPED = "stopped"
    DIES_AT_A_WRITE = "dies at a write"
    DIES_WHILE_IT_STARTS = "dies while it starts"
    A_SYNC_FAILS = "a sync fails"
    A_FILE_FAILS = "reads or writes of a file fail for a while"
    READS_ARE_WRONG = "reads of a file give flipped bits, or too little, for a while"
    DISK_FULL = "the disk is full for a while"
    SYNCS_ARE_SLOW = "syncs are slow for a while"
    CONNECTIONS_CUT = "connections cut"
    COORDINATOR_MOVES = "coordinator moves"
    LEVEL_CHANGES = "level changes"
    CLOCK_JUMPS = "clock jumps"
    CLIENT_STANDS_STILL = "a client stands still"
    CLIENT_CUT_OFF = "a client is cut off, in one direction or both"
    TOPIC_MADE_ANEW = "a topic is made anew"
    TOPIC_GROWS = "a topic gets partitions"
    RECORDS_DELETED = "records are deleted"
    SETTINGS_CHANGE = "settings of a topic change"
    HANGING_LOOKED_FOR = "somebody looks for transactions that hang"


#: Trouble that the election of a coordinator is not remembered over.
ENDS: Final = frozenset(
    {
        Trouble.KILLED,
        Trouble.POWER_LOST,
        Trouble.STOPPED,
        Trouble.DIES_AT_A_WRITE,
        Trouble.DIES_WHILE_IT_STARTS,
        Trouble.A_SYNC_FAILS,
        Trouble.A_FILE_FAILS,
        Trouble.READS_ARE_WRONG,
    }
)


class Scene(NamedTuple):
    """The parts of a world that incidents change."""

    world: World
    topics: ChangingTopics
    levels: Sequence[int]
    """Levels of transaction.version that may be finalized."""
    settings: ChangingSettings


# The node


async def _killed(scene: Scene, chance: Random) -> None:
    scene.world.kill()
    await _start_again(scene.world, chance)


async def _power_lost(scene: Scene, chance: Random) -> None:
    scene.world.lose_power()
    await _start_again(scene.world, chance)


async def _start_again(world: World, chance: Random) -> None:
    """Start the node again, mostly at once."""
    await asyncio.sleep(chance.choice((0.02, 0.02, 0.3)) * chance.random())
    await world.start()


async def _stopped(scene: Scene, chance: Random) -> None:
    await scene.world.stop()
    scene.world.note("broker stopped")
    await _start_again(scene.world, chance)


async def _dies_at_a_write(scene: Scene, chance: Random) -> None:
    """Cut the power, or kill the node, at one of its next writes; then start it again."""
    world = scene.world
    world.disk.cut_power_after(chance.randrange(30))
    for _ in range(200):
        await asyncio.sleep(0.002)
        if world.disk.off:
            break
    world.disk.cut_power_after(10**9)
    (world.lose_power if chance.random() < 0.5 else world.kill)()
    await _start_again(world, chance)


async def _dies_while_it_starts(scene: Scene, chance: Random) -> None:
    world = scene.world
    world.kill()
    world.disk.cut_power_after(chance.randrange(60))
    try:
        await world.start()
    except PowerCut:
        world.note("power cut while the broker started")
        world.give_up_start()
    else:
        world.kill()
    world.disk.cut_power_after(10**9)
    await _start_again(world, chance)


async def _a_sync_fails(scene: Scene, chance: Random) -> None:
    """Have a sync fail: the node ends, and what it had not acknowledged may be lost; then start it again."""
    world = scene.world
    world.disk.fail_sync_after(chance.randrange(10))
    for _ in range(200):
        await asyncio.sleep(0.002)
        if world.disk.sync_failed:
            world.note("a sync failed")
            break
    world.disk.fail_sync_after(10**9)
    (world.lose_power if chance.random() < 0.5 else world.kill)()
    await _start_again(world, chance)


async def _a_file_fails(scene: Scene, chance: Random) -> None:
    """Have reads or writes of a segment fail until the disk is repaired and the node started again."""
    world = scene.world
    path = chance.choice([path for path in world.disk.files() if path.suffix == ".log"] or [None])
    if path is None:
        return
    use: Literal["read", "write"] = chance.choice(("read", "write"))
    world.disk.fail(path, use)
    world.note(f"every {use} of {path.parent.name}/{path.name} fails")
    await asyncio.sleep(chance.choice((0.02, 0.2, 1)))
    world.disk.heal()
    (world.lose_power if chance.random() < 0.5 else world.kill)()
    await _start_again(world, chance)


async def _reads_are_wrong(scene: Scene, chance: Random) -> None:
    """Have some reads of a segment give wrong bytes until the disk is repaired and the node started again.

    Whoever asks for it may be told of an error, and is never shown anything else than what was written.
    """
    world = scene.world
    path = chance.choice([path for path in world.disk.files() if path.suffix == ".log"] or [None])
    if path is None:
        return
    how = chance.choice(list(Wrong))
    world.disk.give_wrong(path, how, chance)
    world.note(f"{path.parent.name}/{path.name}: {how.value}")
    await asyncio.sleep(chance.choice((0.02, 0.2, 1)))
    world.disk.heal()
    (world.lose_power if chance.random() < 0.5 else world.kill)()
    await _start_again(world, chance)


async def _disk_full(scene: Scene, chance: Random) -> None:
    world = scene.world
    world.disk.capacity = world.disk.used() + chance.choice((0, 1000, 20_000))
    world.note("the disk is full")
    await asyncio.sleep(chance.choice((0.05, 0.3, 1)))
    world.disk.capacity = None
    world.note("the disk has room again")


async def _syncs_are_slow(scene: Scene, chance: Random) -> None:
    world, usual = scene.world, scene.world.disk.slowest_sync
    world.disk.slowest_sync = chance.choice((0.5, 3))
    world.note(f"syncs take up to {world.disk.slowest_sync} s")
    await asyncio.sleep(chance.choice((0.1, 1)))
    world.disk.slowest_sync = usual


async def _coordinator_moves(scene: Scene, chance: Random) -> None:
    await move_coordinator(scene.world, chance.randrange(3))


async def _clock_jumps(scene: Scene, chance: Random) -> None:
    world = scene.world
    world.clock.skew_ms += chance.choice((-HOUR_MS, -1000, 100, HOUR_MS))
    world.note(f"the clock is off by {world.clock.skew_ms} ms")
    # It is looked at every second: two jumps in between that make up for each other are not seen.
    await asyncio.sleep(1.1)


# Clients and their network


async def _connections_cut(scene: Scene, chance: Random) -> None:  # noqa: ARG001 - all are called alike
    scene.world.network.break_connections(PORT)
    scene.world.note("connections cut")


def _somebody(world: World, chance: Random) -> Client | None:
    living = [process for process in world.clients if not process.has_ended]
    return chance.choice(living) if living else None


async def _client_stands_still(scene: Scene, chance: Random) -> None:
    """Let a client stand still for a moment, or longer than all time-outs of its own, its sessions and transactions."""
    process = _somebody(scene.world, chance)
    if process is not None:
        process.stand_still(chance.choice((0.05, 0.5, 6)))


async def _client_cut_off(scene: Scene, chance: Random) -> None:
    process = _somebody(scene.world, chance)
    if process is not None:
        sending, receiving = chance.choice(((True, True), (True, False), (False, True)))
        process.cut_off(chance.choice((0.05, 0.5, 3)), sending=sending, receiving=receiving)


# Administration


async def _level_changes(scene: Scene, chance: Random) -> None:
    await finalize(scene.world, chance.choice(scene.levels))


async def _topic_made_anew(scene: Scene, chance: Random) -> None:
    await scene.topics.make_anew(chance)


async def _topic_grows(scene: Scene, chance: Random) -> None:  # noqa: ARG001 - all are called alike
    await scene.topics.grow()


async def _records_deleted(scene: Scene, chance: Random) -> None:
    await scene.topics.delete_records(chance)


async def _settings_change(scene: Scene, chance: Random) -> None:
    await scene.settings.change(chance)


async def _hanging_looked_for(scene: Scene, chance: Random) -> None:
    await look_for_what_hangs(scene.world, chance)


TROUBLES: Final[Mapping[Trouble, Callable[[Scene, Random], Coroutine[Any, Any, None]]]] = {
    Trouble.KILLED: _killed,
    Trouble.POWER_LOST: _power_lost,
    Trouble.STOPPED: _stopped,
    Trouble.DIES_AT_A_WRITE: _dies_at_a_write,
    Trouble.DIES_WHILE_IT_STARTS: _dies_while_it_starts,
    Trouble.A_SYNC_FAILS: _a_sync_fails,
    Trouble.A_FILE_FAILS: _a_file_fails,
    Trouble.READS_ARE_WRONG: _reads_are_wrong,
    Trouble.DISK_FULL: _disk_full,
    Trouble.SYNCS_ARE_SLOW: _syncs_are_slow,
    Trouble.CONNECTIONS_CUT: _connections_cut,
    Trouble.COORDINATOR_MOVES: _coordinator_moves,
    Trouble.LEVEL_CHANGES: _level_changes,
    Trouble.CLOCK_JUMPS: _clock_jumps,
    Trouble.CLIENT_STANDS_STILL: _client_stands_still,
    Trouble.CLIENT_CUT_OFF: _client_cut_off,
    Trouble.TOPIC_MADE_ANEW: _topic_made_anew,
    Trouble.TOPIC_GROWS: _topic_grows,
    Trouble.RECORDS_DELETED: _records_deleted,
    Trouble.SETTINGS_CHANGE: _settings_change,
    Trouble.HANGING_LOOKED_FOR: _hanging_looked_for,
}
