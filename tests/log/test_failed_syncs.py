"""A sync that fails, of whatever and whenever, ends the node: what was not synced once may never be."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.log.log_doubles import Node, append, batch, run, topic_id, values_of

from fencepost.log import commit_log
from fencepost.log import storage as storage_module
from fencepost.simulation.disk import SimulatedDisk

TWO = [("a", 0), ("b", 0)]


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "EXTENT_THRESHOLD", 500)
    monkeypatch.setattr(commit_log, "_ALLOCATION", 4096)


async def work(node: Node, acknowledged: dict[str, list[bytes]]) -> None:
    """Small and large batches, rolled segments, checkpoints, topics made and deleted; until the node ends."""
    storage = node.storage
    for number in range(14):
        if number == 5:
            storage.create_partition("c", topic_id("c"), 0)
            node.names = [*TWO, ("c", 0)]
        if number == 9:
            node.names = TWO
            storage.delete_partition(node.of("c"))
            storage.deleted_durably()
        written = []
        for topic, _ in node.names:
            if storage.failure is not None:
                return
            tag = f"{topic}{number}"
            append(node.of(topic), batch(tag=tag, size=(0, 700)[number % 2]))
            written.append((topic, tag.encode()))
        for _ in range(100):
            if storage.durability.lsn >= storage.last_appended or storage.failure is not None:
                break
            await asyncio.sleep(0.001)
        if storage.durability.lsn >= storage.last_appended:
            for topic, value in written:
                acknowledged.setdefault(topic, []).append(value)


def outcome(seed: int, number: int) -> tuple[bool, bool]:
    """Whether the n-th sync was reached, and whether the node ended then (or did not start)."""
    result = False, False

    async def main() -> None:
        nonlocal result
        disk, failures, durable_then = SimulatedDisk(Random(seed)), list[Exception](), list[int]()
        node = Node(disk, TWO, segment_bytes=2500, checkpoint_bytes=3000)
        node.storage.close()
        disk.fail_sync_after(number)
        acknowledged: dict[str, list[bytes]] = {}

        def failed(failure: Exception) -> None:
            failures.append(failure)
            durable_then.append(node.storage.durability.lsn)

        node.failed = failed
        try:
            node.start()
        except OSError:
            result = True, True
        else:
            try:
                await work(node, acknowledged)
            except OSError:
                assert node.storage.failure is not None, "an exception that a handler would take for its own"
            await asyncio.sleep(1)
            assert not failures or node.storage.durability.lsn == durable_then[0], "nothing is acknowledged any more"
            result = disk.sync_failed, len(failures) == 1 and node.storage.failure is failures[0]
            if not disk.sync_failed:
                try:
                    node.storage.close()
                except OSError:
                    result = True, True
        disk.power_loss()
        disk.fail_sync_after(10**9)
        node.failed = None
        node.names = TWO
        node.start()
        for topic, values in acknowledged.items():
            if topic != "c":
                found = [value.rstrip(b"\0") for value in values_of(node.of(topic)) if value is not None]
                assert found[: len(values)] == values, "what was acknowledged is there"

    run(main())
    return result


def test_whichever_sync_fails_the_node_ends() -> None:
    for seed in range(3):
        for number in range(1000):
            reached, ended = outcome(seed, number)
            assert ended == reached, f"sync {number} failed, and the node went on"
            if not reached:
                break
        assert 40 < number < 1000
