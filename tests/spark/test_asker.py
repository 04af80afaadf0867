"""What the planner of a source asks its cluster with ends with the source."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fencepost.client.cluster import Cluster
from fencepost.protocol.types import TopicPartition
from fencepost.spark.asker import Asker
from fencepost.spark.options import parse
from fencepost.spark.positions import Positions

GIVEN = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", "startingOffsets": "earliest"}


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("fencepost-spark-source")]


def test_a_source_that_ends_leaves_neither_a_connection_nor_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, before = list[Cluster](), threads()
    close = Cluster.close

    async def note(cluster: Cluster, *given: Any) -> None:
        closed.append(cluster)
        await close(cluster, *given)

    monkeypatch.setattr(Cluster, "close", note)
    asker = Asker(parse(GIVEN, streaming=True))
    (own,) = set(threads()) - set(before)
    asker.close()
    own.join(10)
    assert (closed, own.is_alive()) == ([asker._cluster], False)


def test_a_start_that_is_pinned_knows_no_leader_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of today; where it was pinned they may have been others."""

    async def pinned(_: object, application_id: str, offsets: Any) -> Any:
        return {at: offset + len(application_id) for at, offset in offsets.items()}

    monkeypatch.setattr("fencepost.spark.asker.pinned", pinned)
    asker = Asker(parse(GIVEN | {"applicationId": "app"}, streaming=True))
    at = TopicPartition("t", 0)
    try:
        assert asker.pinned(Positions({at: 5}, "cluster", epochs={at: 7})) == Positions({at: 8}, "cluster")
    finally:
        asker.close()
