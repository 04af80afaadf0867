"""A start that repairs a directory ends at any of its steps, and the person starts again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.log.histories import small_files
from tests.log.log_doubles import append, batch, values_of

from fencepost.broker import Broker
from fencepost.log.data_directory import DirectoryUnusable
from fencepost.runtime import Runtime
from fencepost.simulation.disk import PowerCut
from fencepost.simulation.disk_faults import FaultyDisk
from fencepost.simulation.loop import VirtualClock, VirtualLoop, run
from fencepost.simulation.metadata import MemoryMetadataStore
from fencepost.simulation.network import NamedNetwork, SimulatedNetwork
from fencepost.simulation.world import SETTINGS

DATA = Path("/data")
MINE = DATA / "somebody-0"
OPTIONS = {
    "metadata": {"rebuild_metadata": True},
    "commit log": {"recover_from_segments": True},
    "both": {"rebuild_metadata": True, "recover_from_segments": True},
}


class SteppedStore(MemoryMetadataStore):
    """Its writes are steps of the disk, too."""

    def __init__(self, disk: FaultyDisk) -> None:
        super().__init__()
        self._disk = disk

    def write(self, changes: Mapping[str, tuple[bytes | None, int]]) -> bool:
        self._disk.operate()
        return super().write(changes)

    def lose(self) -> None:
        self._values.clear()


class Directory:
    """One that a node has used, killed or stopped, and what was acknowledged there."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self._loop, self._seed = loop, seed
        self.disk = FaultyDisk(Random(seed))
        self.store = SteppedStore(self.disk)
        self.acknowledged: dict[tuple[str, int], list[bytes | None]] = {}

    def broker(self, options: Mapping[str, bool]) -> Broker:
        chance, more = Random(self._seed), dict[str, Any](options)
        runtime = Runtime(VirtualClock(self._loop), NamedNetwork(SimulatedNetwork(chance), "node"), chance)
        return Broker(
            data=DATA, settings=SETTINGS, runtime=runtime, disk=self.disk, metadata=lambda _: self.store, **more
        )

    async def use(self, *, killed: bool) -> None:
        broker = await self.broker({}).start()
        node = broker.node
        for name, count in (("a", 2), ("b", 1)):
            await node.topics.create(name, count, {}, node.slices)
        for number in range(6):
            for topic, index in (("a", 0), ("a", 1), ("b", 0)):
                partition = node.storage.partition(topic, index)
                assert partition is not None
                append(partition, batch(tag=f"{topic}{index}{number}"))
            await node.storage.durability.wait(node.storage.last_appended)
            if number == 2:
                node.storage.checkpoint_soon()
                await node.storage.settle()
        await asyncio.sleep(5)
        self.acknowledged = records_of(broker)
        if killed:
            broker.crash()
            self.disk.crash()
        else:
            await broker.stop()
        self.disk.make_directory(MINE)
        self.disk.open(MINE / "x.txt").pwrite(b"mine", 0)
        self.disk.sync_now([self.disk.open(MINE / "x.txt")])
        for directory in (MINE, DATA):
            self.disk.sync_directory(directory)

    def damage(self, what: str) -> None:
        if what != "commit log":
            self.store.lose()
        if what == "metadata":
            return
        name = next(each for each in self.disk.list(DATA / "commit-log") if each.endswith(".log"))
        file = self.disk.open(DATA / "commit-log" / name)
        whole = file.pread(file.size(), 0)
        at = Random(self._seed).randrange(40, max(len(whole.rstrip(b"\0")) * 2 // 3, 41))
        file.pwrite(bytes([whole[at] ^ 0x40 if at < len(whole) else 0x40]), at)

    async def start_cut_off(self, options: Mapping[str, bool], step: int, how: str) -> bool:
        """Whether the node ended before it was ready and had rested."""
        self.disk.cut_power_after(step)
        broker = self.broker(options)
        try:
            await broker.start()
            await asyncio.sleep(2)
        except (PowerCut, DirectoryUnusable):
            assert self.disk.off
        was_cut = self.disk.off
        broker.crash()
        if how == "kill":
            self.disk.crash()
        else:
            self.disk.power_loss()
        return was_cut

    async def start_again(self, *tries: Mapping[str, bool]) -> tuple[Broker, list[str]]:
        """With the first of these options that starts; and what the others were refused with."""
        refused: list[str] = []
        for options in tries:
            broker = self.broker(options)
            try:
                return await broker.start(), refused
            except DirectoryUnusable as unusable:
                refused.append(str(unusable))
        raise AssertionError(f"it never starts again: {refused}")


def records_of(broker: Broker) -> dict[tuple[str, int], list[bytes | None]]:
    partitions = broker.node.storage.partitions()
    return {(each.topic, each.index): values_of(each) for each in partitions if not each.topic.startswith("__")}


async def has_everything(directory: Directory, tries: Sequence[Mapping[str, bool]]) -> None:
    """With the first options that start, and then without any; who is refused before is told what to do."""
    broker, refused = await directory.start_again(*tries)
    for _ in range(2):
        assert records_of(broker) == directory.acknowledged
        assert directory.disk.bytes_at(MINE / "x.txt") == b"mine"
        await broker.stop()
        broker = await directory.broker({}).start()
    await broker.stop()
    for said in refused:
        assert "start again without" in said or "start once with --re" in said


#: What is damaged, whether the node was killed before, and how the repair ends.  What only the damaged commit log has
#: on the disk, a power loss takes, whether a repair was begun or not.
CASES = [
    ("metadata", True, "kill"),
    ("metadata", True, "power loss"),
    ("metadata", False, "power loss"),
    ("commit log", True, "kill"),
    ("commit log", False, "kill"),
    ("both", True, "kill"),
    ("both", False, "power loss"),
]


@pytest.mark.parametrize("again", ["with the option", "without"])
@pytest.mark.parametrize(("what", "killed", "how"), CASES)
def test_a_repair_that_ends_at_any_step_is_done_by_the_next_start(
    what: str, killed: bool, how: str, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing acknowledged is lost, nothing of somebody else is touched, and who is refused is told what to do."""
    small_files(monkeypatch)

    async def cut_at(step: int, loop: VirtualLoop) -> bool:
        directory, option = Directory(loop, step), OPTIONS[what]
        await directory.use(killed=killed)
        directory.damage(what)
        was_cut = await directory.start_cut_off(option, step, how)
        tries = [option, OPTIONS["commit log"], {}] if again == "with the option" else [{}, *OPTIONS.values()]
        await has_everything(directory, tries)
        return was_cut

    step = 1
    while run(lambda loop, step=step: cut_at(step, loop)):  # type: ignore[misc]
        step += 3
    assert step > 30


@pytest.mark.parametrize(("first", "then"), [("metadata", "commit log"), ("commit log", "metadata")])
@pytest.mark.parametrize("killed", [True, False])
def test_what_is_damaged_while_another_repair_has_not_ended_is_repaired_with_both_options(
    first: str, then: str, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_files(monkeypatch)

    async def cut_at(step: int, loop: VirtualLoop) -> bool:
        directory = Directory(loop, step)
        await directory.use(killed=killed)
        directory.damage(first)
        was_cut = await directory.start_cut_off(OPTIONS[first], step, "kill")
        directory.damage(then)
        await has_everything(directory, [OPTIONS["both"], OPTIONS["commit log"], OPTIONS["metadata"], {}])
        return was_cut

    step = 1
    while run(lambda loop, step=step: cut_at(step, loop)):  # type: ignore[misc]
        step += 3
    assert step > 30


@pytest.mark.parametrize("damaged", ["commit log", "both"])
@pytest.mark.parametrize("seed", range(8))
def test_after_a_power_loss_segments_say_whose_they_are_where_the_commit_log_does_not(
    damaged: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only a damaged commit log knows is lost: the ids of topics must not be among it once records are."""
    small_files(monkeypatch)

    async def main(loop: VirtualLoop) -> None:
        directory = Directory(loop, seed)
        await directory.use(killed=False)
        directory.disk.power_loss()
        directory.damage(damaged)
        await has_everything(directory, [OPTIONS[damaged]])

    run(main)
