"""What the source asks of its cluster: of which topics, and for how long it waits for who is of no consequence."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, TimedOutError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.spark import offsets
from fencepost.spark.options import parse
from fencepost.spark.positions import Positions
from fencepost.spark.progress import TOPIC as PROGRESS


class Deadlines:
    """A cluster of which only deadlines are asked for: five tries."""

    def __init__(self) -> None:
        self._left = 5

    def deadline(self, *_: object) -> Deadlines:
        return self

    async def pause(self, because: object) -> None:
        self._left -= 1
        if not self._left:
            raise TimedOutError(str(because))


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


def test_a_topic_that_was_made_anew_while_its_positions_were_looked_up_is_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at, ids, errors = TopicPartition("t", 0), ["old", "new"], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    async def subscribed(*_: object) -> offsets.Subscribed:
        return offsets.Subscribed([at], "c", {"t": ids.pop(0)})

    async def resolve(*_: object) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        if errors:
            raise BrokerError(errors.pop(), "deleted meanwhile")
        return {at: 0}, {}

    async def main(_: VirtualLoop) -> None:
        options = parse({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}, streaming=True)
        (found,) = await offsets.positions_of(cast(Cluster, None), [options.start], options)
        assert found.topic_ids == {"t": "new"}

    monkeypatch.setattr(offsets, "subscribed", subscribed)
    monkeypatch.setattr(offsets, "resolve", resolve)
    run(main)


def test_who_leads_is_looked_up_anew_before_a_leader_epoch_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader that did not know it may lead no more; of the others it is known who leads them."""
    first, other = TopicPartition("t", 0), TopicPartition("u", 0)
    leaders = {"t": "old", "u": "known"}
    asked: list[dict[str, str]] = []

    class Moved(Deadlines):
        def forget_topic(self, name: str) -> None:
            leaders[name] = "new"

    async def told(_: object, epochs: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        asked.append(dict(leaders))
        return {at: 7 for at in epochs if leaders[at.topic] != "old"}

    async def main(_: VirtualLoop) -> None:
        assert await offsets.parted(cast(Cluster, Moved()), {first: 3, other: 3}) == {first: 7, other: 7}

    monkeypatch.setattr(offsets, "ends_of_epochs", told)
    run(main)
    assert asked == [{"t": "old", "u": "known"}, {"t": "new", "u": "known"}]
