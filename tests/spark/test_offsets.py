"""What the source asks of its cluster: of which topics, and for how long it waits for who is of no consequence."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.client.cluster import Cluster
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.spark import offsets
from fencepost.spark.options import parse
from fencepost.spark.positions import Positions
from fencepost.spark.progress import TOPIC as PROGRESS


def test_a_pattern_names_whole_names_and_none_of_the_topics_that_are_not_for_people() -> None:
    """Every transaction writes to the broker's own ones, and a query that read its sink's progress would never end."""
    topics = [
        SimpleNamespace(name=name, is_internal=name.startswith("__"))
        for name in ("orders", "my-orders", "orders-old", "__consumer_offsets", "__transaction_state", PROGRESS)
    ]
    asked: list[object] = []

    async def refresh(names: object) -> Any:
        asked.append(names)
        return SimpleNamespace(topics=topics)

    async def main(_: VirtualLoop) -> None:
        cluster = cast(Cluster, SimpleNamespace(refresh=refresh))
        for pattern, expected in ((".*", ["my-orders", "orders", "orders-old"]), ("orders", ["orders"])):
            given = {"kafka.bootstrap.servers": "nowhere:1", "subscribePattern": pattern}
            assert await offsets._topics(cluster, parse(given, streaming=True)) == expected

    run(main)
    assert asked == [None, None]


def test_a_query_does_not_wait_for_who_tells_others_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def commit(*_: object) -> None:
        await asyncio.sleep(3600)

    async def main(loop: VirtualLoop) -> None:
        begun = loop.time()
        await offsets.report(cast(Cluster, None), "g", Positions({TopicPartition("t", 0): 5}))
        assert loop.time() - begun <= 5.1

    monkeypatch.setattr(offsets, "_group", lambda *_: SimpleNamespace(commit=commit))
    caplog.set_level(logging.WARNING)
    run(main)
    assert caplog.messages == ["positions of group g: no answer within 5 s"]
