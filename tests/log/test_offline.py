"""A partition that cannot be opened is left exactly as it is, for however many starts, and comes back whole."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from tests.log.log_doubles import ROOT, Node, append, append_transactional, batch, bytes_of, delete_topic, run

from fencepost.log import opening
from fencepost.log import storage as storage_module
from fencepost.log.offline import PartitionDamaged
from fencepost.log.recovery import recover
from fencepost.log.upkeep import upkeep
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Milliseconds, Offset
from fencepost.runtime import at_once
from fencepost.simulation.disk import SimulatedDisk

TWO = [("a", 0), ("b", 0)]


@pytest.fixture
def damaged(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of partition directories that cannot be opened."""
    names: set[str] = set()

    def refuse(partition: Any, *rest: Any) -> None:
        recover(partition, *rest) if partition.directory.name not in names else _fail()

    monkeypatch.setattr(opening, "recover", refuse)
    return names


def _fail() -> None:
    raise PartitionDamaged("it is said to be damaged")


@pytest.mark.parametrize("flush", ["durable", "os"])
@pytest.mark.parametrize("extent", [10_000, 200])
def test_what_the_commit_log_has_for_it_outlives_any_number_of_starts(
    damaged: set[str], flush: str, extent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power loss the commit log alone may have what was acknowledged: it goes into each new generation."""
    monkeypatch.setattr(storage_module, "EXTENT_THRESHOLD", extent)

    async def main(seed: int) -> None:
        node = Node(SimulatedDisk(Random(seed)), TWO, flush, segment_bytes=1500, checkpoint_bytes=2000)
        assert isinstance(node.disk, SimulatedDisk)
        for number in range(12 + seed):
            append(node.of("a"), batch(tag=f"{number}", size=200 * (number % 3)))
            append(node.of("b"), batch(tag=f"{number}"))
            await node.settled()
        append_transactional(node.of("a"), (7, 0, 0))
        node.of("a").delete_records(Offset(seed % 12))
        await node.settled()
        kept, start = bytes_of(node.of("a")), node.of("a").log_start_offset
        producers = dict(node.of("a").producers.entries)
        damaged.add("a-0")
        node.kill() if flush == "os" or seed % 2 else node.lose_power()
        node.flush = "durable" if seed % 5 else flush
        for number in range(seed % 3):
            assert node.storage.partition("a", 0) is None
            for _ in range(8):
                append(node.of("b"), batch(tag="more", size=500))
                await node.settled()
            if number == 1:
                node.restart()
            else:
                node.kill() if flush == "os" or seed % 2 else node.lose_power()
        damaged.clear()
        node.flush = "durable"
        node.kill() if seed % 4 else node.restart()
        assert bytes_of(node.of("a"))[-len(kept) :] == kept[-len(bytes_of(node.of("a"))) :]
        assert node.of("a").log_start_offset == start and node.of("a").log_end_offset == 13 + seed
        assert node.of("a").producers.entries.keys() == producers.keys()
        append(node.of("a"), batch(tag="new"))
        await node.settled()

    for seed in range(24):
        run(main(seed))


def test_it_is_refused_and_its_directory_is_left_alone(damaged: set[str]) -> None:
    async def main() -> None:
        node = Node(partitions=TWO)
        append(node.of("a"), batch())
        node.storage.close()
        before = contents(node, "a-0")
        damaged.add("a-0")
        node.start()
        storage = node.storage
        assert storage.offline["a", 0].reason == "it is said to be damaged"
        assert storage.refusal("a", 0) is ErrorCode.KAFKA_STORAGE_ERROR and storage.exists("a", 0)
        assert storage.refusal("a", 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not storage.exists("a", 1)
        assert [partition.topic for partition in storage.partitions()] == ["b"]
        at_once(upkeep(storage, Milliseconds(node.clock.now() + 10**12)))
        node.restart()
        assert contents(node, "a-0") == before

    run(main())


@pytest.mark.parametrize("how", ["kill", "lose_power", "restart"])
def test_what_the_commit_log_has_for_it_goes_with_its_topic(damaged: set[str], how: str) -> None:
    async def main() -> None:
        node = Node(SimulatedDisk(Random(1)), TWO)
        append(node.of("a"), batch(tag="former"))
        await node.settled()
        damaged.add("a-0")
        node.kill()
        damaged.clear()
        assert [each.topic for each in node.storage.offline.values()] == ["a"]
        assert delete_topic(node.storage, "a")
        await node.settled()
        node.storage.checkpoint_soon()
        await asyncio.sleep(node.settings.file_delete_delay_ms / 1000 + 1)
        assert not [name for name in node.disk.list(ROOT) if name.startswith("a-0")]
        node.names = [("b", 0)]
        getattr(node, how)()
        assert not node.disk.exists(ROOT / "a-0"), "it is not made again for what the commit log has"

    run(main())


def contents(node: Node, directory: str) -> dict[str, bytes]:
    found = {}
    for name in node.disk.list(ROOT / directory):
        file = node.disk.open(ROOT / directory / name)
        found[name] = file.pread(file.size(), 0)
        file.close()
    return found
