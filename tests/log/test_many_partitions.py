"""What a start costs for each partition: counted, because time says little on a busy machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from tests.log.log_doubles import Node, append, batch, run

from fencepost.log.disk import File
from fencepost.simulation.disk import SimulatedDisk


class CountingDisk(SimulatedDisk):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.counted: Counter[str] = Counter()

    def sync_now(self, files: Sequence[File]) -> None:
        self.counted["syncs"] += len(files)
        super().sync_now(files)

    def sync_directory(self, path: Path) -> None:
        self.counted["syncs"] += 1
        super().sync_directory(path)

    def list(self, path: Path) -> list[str]:
        self.counted["listings"] += 1
        return super().list(path)


def cost(partitions: int, clean: bool) -> Counter[str]:
    """Of a start after a stop or a kill, with a record in every partition."""
    disk = CountingDisk()

    async def main() -> None:
        node = Node(disk, [("t", number) for number in range(partitions)])
        for number in range(partitions):
            append(node.of("t", number), batch())
        await node.settled()
        if clean:
            node.storage.close()
        else:
            disk.crash()
        disk.counted.clear()
        node.start()

    run(main())
    return disk.counted


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_asks_little_of_the_disk_for_each_partition(clean: bool) -> None:
    few, many = cost(10, clean), cost(40, clean)
    each = {what: (many[what] - few[what]) / 30 for what in few}
    # After a kill: the replayed segment, then the checkpoint's directory, segment, indexes and snapshot.
    assert each["syncs"] <= (0 if clean else 8)
    assert each["listings"] <= 6
