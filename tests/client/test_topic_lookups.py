"""Topics are asked for one request at a time; what is wanted meanwhile is not forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.test_producer import simulate

from fencepost.client import Admin, Consumer, NewTopic, TopicPartition
from fencepost.client.cluster import Cluster
from fencepost.client.errors import UnreachableError
from fencepost.client.topic_lookups import TopicLookups, those_there
from fencepost.protocol.messages import MetadataResponse
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, World

NAMES = ("a", "b", "c")
TOPICS = st.one_of(st.none(), st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True))


class Asked:
    """A cluster that answers after so many seconds each, or cannot be reached (a negative number)."""

    def __init__(self, takes: Sequence[float]) -> None:
        self.topics: dict[str, Any] = {}
        self.sent: list[tuple[float, float, list[str] | None]] = []
        """Of each request: when it was sent and answered, and for what."""
        self._takes = list(takes)

    def is_led(self, _: object) -> bool:
        return True

    async def refresh(self, topics: list[str] | None) -> str:
        loop = asyncio.get_running_loop()
        begun, takes = loop.time(), self._takes.pop(0) if self._takes else 0.01
        await asyncio.sleep(abs(takes))
        self.sent.append((begun, loop.time(), topics))
        if takes < 0:
            raise UnreachableError("nobody answers")
        return "answered"


@given(st.lists(st.tuples(st.floats(0, 0.4), TOPICS), max_size=12), st.lists(st.floats(-0.3, 0.5), max_size=12))
def test_whatever_is_wanted_is_asked_for_by_a_request_that_was_not_answered_yet(
    wants: list[tuple[float, list[str] | None]], takes: list[float]
) -> None:
    asked, answers, wanted = Asked(takes), list[object](), list[tuple[float, list[str] | None]]()

    async def main(loop: VirtualLoop) -> None:
        lookups = TopicLookups(cast(Cluster, asked), answers.append)
        for pause, topics in wants:
            await asyncio.sleep(pause)
            wanted.append((loop.time(), topics))
            lookups.want(topics)
        await asyncio.sleep(20)

    run(main)
    for at, topics in wanted:
        later = [what for _, answered, what in asked.sent if answered >= at]
        assert any(what is None or (topics is not None and set(topics) <= set(what)) for what in later)
    assert len(answers) == len(asked.sent) <= len(wants)
    for (_, answered, _), (begun, _, _) in pairwise(asked.sent):
        assert begun - answered > 0.0999, "not as fast as it is answered"


@pytest.mark.parametrize("led", [True, False])
def test_while_nobody_leads_a_partition_it_is_asked_for_less_and_less_often(led: bool) -> None:
    asked = Asked(())
    asked.is_led = lambda _: led  # type: ignore[method-assign]
    asked.topics["a"] = type("View", (), {"leaders": {0: 1 if led else -1}})

    async def main(loop: VirtualLoop) -> None:  # noqa: ARG001
        lookups = TopicLookups(cast(Cluster, asked), lambda _: lookups.want(["a"]))
        lookups.want(["a"])
        await asyncio.sleep(10)
        lookups.close()

    run(main)
    times = len(asked.sent)
    assert 80 < times < 100 if led else 18 < times < 25


def test_once_somebody_leads_a_partition_again_it_is_asked_for_as_often_as_before() -> None:
    asked = Asked(())
    asked.is_led = lambda _: asyncio.get_running_loop().time() >= 10  # type: ignore[method-assign]
    asked.topics["a"] = type("View", (), {"leaders": {0: 1}})

    async def main(loop: VirtualLoop) -> None:  # noqa: ARG001
        lookups = TopicLookups(cast(Cluster, asked), lambda _: lookups.want(["a"]))
        lookups.want(["a"])
        await asyncio.sleep(20)
        lookups.close()

    run(main)
    later = [begun for begun, _, _ in asked.sent if begun > 11]
    assert 70 < len(later) < 90


@pytest.mark.parametrize("how", ["by name", "in a group", "assigned"])
@pytest.mark.parametrize("missing", [0, 30])
def test_however_many_topics_there_are_or_not_one_request_asks_for_all(
    monkeypatch: pytest.MonkeyPatch, how: str, missing: int
) -> None:
    """Where each takes 50 ms there and back, a rebalance of a thousand would take a minute."""
    asked: list[list[str]] = []
    refresh = Cluster.refresh

    async def counted(self: Cluster, topics: Sequence[str] | None, create: bool = False) -> MetadataResponse:
        asked.append(list(topics or ()))
        return await refresh(self, topics, create)

    async def scenario(world: World) -> None:
        names = [f"topic-{number}" for number in range(40)]
        async with Admin(ADDRESS, runtime=world.runtime("another admin")) as admin:
            await admin.create_topics(NewTopic(name, partitions=1) for name in names[missing:])
        monkeypatch.setattr(Cluster, "refresh", counted)
        group: dict[str, Any] = {"group_id": "g"} if how == "in a group" else {}
        subscribed = [] if how == "assigned" else names
        async with Consumer(*subscribed, bootstrap_servers=ADDRESS, runtime=world.runtime("r"), **group) as consumer:
            if how == "assigned":
                consumer.assign([TopicPartition(name, 0) for name in names])
            await consumer.poll(5000)
            assert len(consumer.assignment()) == len(names) - missing
        assert [each for each in asked if len(each) == 1] == []
        assert 1 <= len(asked) < (30 if missing else 8)  # what is missing is asked for again and again

    simulate(scenario, **{"auto.create.topics.enable": False})


def test_a_missing_topic_is_waited_for_and_said_once_until_it_was_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(ADDRESS, runtime=world.runtime("reader"))

        async def look_up() -> tuple[set[str], float]:
            begun = world.loop.time()
            found = await those_there(cluster, ["t", "u"], cluster.deadline("looking"), create=True, anew=True)
            return set(found), world.loop.time() - begun

        async with Admin(ADDRESS, runtime=world.runtime("another")) as admin:
            for times in (1, 2):
                there, waited = await look_up()
                assert there == {"t"} and waited >= 0.3
                there, waited = await look_up()
                assert there == {"t"} and waited < 0.1
                assert [record.args[1] for record in caplog.records] == ["u"] * times  # type: ignore[index]
                await admin.create_topic("u")
                assert (await look_up())[0] == {"t", "u"}
                await admin.delete_topic("u")
        await cluster.close()

    simulate(scenario, **{"auto.create.topics.enable": False})
