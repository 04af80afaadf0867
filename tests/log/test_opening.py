"""Whether a directory that is there is opened as the partition of a topic."""

from __future__ import annotations

import logging

import pytest
from tests.log.log_doubles import ROOT, Node, append, batch, run, values_of
from tests.log.test_data_directory import TWO, put, tree


@pytest.mark.parametrize("content", [b"", bytes(50)], ids=["nothing", "zeros"])
@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_an_id_that_was_emptied_stops_the_partition_unless_the_commit_log_has_it(
    content: bytes, logged: bool, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A power loss may have done that."""

    async def main() -> None:
        node = Node(partitions=TWO)
        append(node.of("a"), batch(tag="kept"))
        await node.settled()
        if clean:
            node.storage.close()
        right = tree(node.disk, ROOT / "a-0")["partition.metadata"]
        put(node.disk, ROOT / "a-0" / "partition.metadata", content)
        if logged:
            node.kill()
            assert "was empty and is written again" in caplog.text
        else:
            for name in node.disk.list(ROOT / "commit-log"):
                node.disk.remove(ROOT / "commit-log" / name)
            before = tree(node.disk, ROOT / "a-0")
            node.kill()
            assert "is empty, and nothing else says whose" in node.storage.offline["a", 0].reason
            assert tree(node.disk, ROOT / "a-0") == before
            put(node.disk, ROOT / "a-0" / "partition.metadata", right)
            node.kill()
        assert values_of(node.of("a")) == [b"kept"]
        assert tree(node.disk, ROOT / "a-0")["partition.metadata"] == right

    caplog.set_level(logging.INFO)
    run(main())
