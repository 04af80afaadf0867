"""Whether a directory that is there is opened as the partition of a topic."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests.log.log_doubles import ROOT, Node, append, batch, run, values_of
from tests.log.test_data_directory import TWO, put, tree

from fencepost.log.disk import LocalDisk
from fencepost.log.opening import open_partition
from fencepost.protocol.types import Milliseconds


def partition_in(directory: Path, disk: LocalDisk, *segments: object) -> Any:
    """One that has not been opened."""
    of_topic = {"topic": "t", "index": 0, "topic_id": UUID(int=1), "leader_epoch": 0, "settings": None}
    return SimpleNamespace(disk=disk, directory=directory, segments=[*segments], **of_topic)


@pytest.mark.parametrize("was_there", [True, False])
def test_one_that_cannot_be_used_is_offline_and_one_that_cannot_be_made_is_refused(
    was_there: bool, tmp_path: Path
) -> None:
    """Who makes a topic is told why it cannot be; at a start the others are served."""

    class Failing(LocalDisk):
        def make_directory(self, path: Path) -> None:
            raise OSError(errno.EROFS, "Read-only file system", str(path))

    directory = tmp_path / "t-0"
    if was_there:
        directory.mkdir()
    closed = list[str]()
    partition = partition_in(directory, Failing(), SimpleNamespace(close=lambda: closed.append("closed")))
    replay: Any = SimpleNamespace(directories=set)
    if was_there:
        offline = open_partition(partition, replay, lambda: 1, Milliseconds(0))
        assert "Read-only file system; see to it that the node can" in getattr(offline, "reason", "")
        assert closed == ["closed"], "what it had opened before"
    else:
        with pytest.raises(OSError, match="Read-only file system"):
            open_partition(partition, replay, lambda: 1, Milliseconds(0))


def test_one_that_the_commit_log_knows_and_whose_directory_is_gone_is_offline_and_not_made_anew(tmp_path: Path) -> None:
    """It would be empty, and its records forgotten."""
    directory = tmp_path / "t-0"
    partition = partition_in(directory, LocalDisk())
    replay: Any = SimpleNamespace(directories=lambda: {"t-0"}, vouches_for=lambda *_: True, lost={})
    offline = open_partition(partition, replay, lambda: 1, Milliseconds(0))
    assert "t-0 is gone: put it back and start again, or delete the topic" in getattr(offline, "reason", "")
    assert not directory.exists()


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
