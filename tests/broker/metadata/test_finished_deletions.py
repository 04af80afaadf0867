"""What a start finishes deleting: when that counts as done, and that it is done once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.broker.directories import node as started
from tests.broker.group_talk import commit, find_group
from tests.broker.metadata.test_topic_lifecycle import Node
from tests.broker.wire import new_topic, on_the_loop
from tests.log.log_doubles import run

from fencepost.broker.metadata.topic import DELETED
from fencepost.broker.metadata.topics import Topics
from fencepost.log.disk import File, LocalDisk, SyncDone
from fencepost.protocol.errors import ErrorCode


def test_it_is_noted_until_the_next_change_and_no_longer() -> None:
    async def main() -> None:
        node = Node(1)
        await node.create("t")
        node.topics.withdraw(node.topics.by_name["t"])
        await node.end()
        node.start()
        assert len(node.store.list(DELETED)) == 1
        await node.create("another")
        assert node.store.list(DELETED) == {}
        await node.end()

    run(main())


def test_what_is_noted_of_a_deleted_topic_says_nothing_of_the_one_that_has_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That would lose what its groups have committed."""
    finished: list[str] = []

    async def main() -> None:
        node = Node(1)
        await node.create("t")
        node.store.write({f"{DELETED}{uuid.UUID(int=1)}": (b"t 2", 0), f"{DELETED}{uuid.UUID(int=2)}": (b"gone 1", 0)})
        await node.end()
        monkeypatch.setattr(Topics, "deletions_finished", lambda _, names: finished.extend(names))
        node.start()
        assert list(node.topics.by_name) == ["t"]
        await node.end()

    run(main())
    assert finished == ["gone"]


def test_it_counts_as_done_when_the_disk_has_that_its_offsets_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power loss would leave them to the next topic of its name."""
    with started(tmp_path) as client:
        find_group(client)
        topic, topics = new_topic(client), client.broker.node.topics
        assert commit(client, topic, 7) == [ErrorCode.NONE]
        on_the_loop(client.broker, lambda: topics.withdraw(topics.by_name[topic]))
    sync, finish, is_durable = LocalDisk.sync, Topics.deletions_finished, list[bool]()

    def sync_late(disk: LocalDisk, files: Sequence[File], done: SyncDone) -> None:
        loop = asyncio.get_running_loop()

        def later(error: OSError | None) -> None:
            loop.call_later(0.1, done, error)

        sync(disk, files, later)

    def finished(topics: Any, names: Sequence[str], *forget: Any) -> None:
        assert names == [topic]
        is_durable.append(topics._storage.durability.lsn >= topics._storage.lsn)
        finish(topics, names, *forget)

    monkeypatch.setattr(LocalDisk, "sync", sync_late)
    monkeypatch.setattr(Topics, "deletions_finished", finished)
    with started(tmp_path):
        assert is_durable == [True]
