"""Which topics a subscription has, and that a pattern neither makes nor keeps any."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Sequence
from typing import Any, cast

import pytest

from fencepost.client.cluster import TopicView
from fencepost.client.deadline import Deadline
from fencepost.client.missing_topics import MissingTopics
from fencepost.client.subscription import Subscription
from fencepost.protocol.messages import MetadataResponse
from fencepost.runtime import Runtime
from fencepost.simulation.loop import VirtualLoop, run


class Topics:
    """What a cluster is asked for."""

    def __init__(self, *names: str) -> None:
        self.names: frozenset[str] | None = frozenset(names)
        self.topics: dict[str, TopicView] = {}
        self.made: list[tuple[str, bool]] = []
        """Each that was looked up, and whether it might be made by that."""

        self.missing = MissingTopics("reader")

    def deadline(self, what: str) -> Deadline:
        return Deadline(Runtime.real(), 1000, what)

    def forget_topic(self, name: str) -> None:
        self.topics.pop(name, None)

    async def refresh(self, topics: Sequence[str], create: bool = False) -> MetadataResponse:
        for name in topics:
            self.made.append((name, create))
            self.topics.setdefault(name, TopicView(name, uuid.UUID(int=len(self.made)), {0: 1}))
        return MetadataResponse(brokers=[], topics=[])

    async def topic(self, name: str, _: object, create: bool = True) -> TopicView:
        if name not in self.topics:
            await self.refresh([name], create)
        return self.topics[name]


def subscription(topics: Topics, *names: str) -> Subscription:
    return Subscription(cast(Any, topics), names, 5.0)


def test_a_pattern_is_held_against_whole_names() -> None:
    found = subscription(Topics("ab", "abc", "xab", "b"))
    found.choose((), re.compile("ab|b"))
    assert found.topics == ["ab", "b"]


def test_whoever_names_topics_gives_the_pattern_up() -> None:
    topics = Topics("a", "b")
    found = subscription(topics)
    found.choose((), re.compile("."))
    found.choose(["b"], None)
    topics.names = frozenset("abc")
    assert not found.has_changed()
    assert found.topics == ["b"]


@pytest.mark.parametrize("pattern", [None, re.compile("t")])
def test_only_a_topic_that_was_named_is_made_by_looking_it_up(pattern: re.Pattern[str] | None) -> None:
    topics = Topics("t")

    async def main(_: VirtualLoop) -> None:
        found = subscription(topics, "t")
        found.choose(["t"], pattern)
        await found.partitions()

    run(main)
    assert topics.made == [("t", pattern is None)]


def test_ids_are_those_of_now() -> None:
    async def main(_: VirtualLoop) -> None:
        found = subscription(Topics("t"), "t")
        before = await found.topic_ids(["t"])
        assert await found.topic_ids(["t"]) != before, "it was asked for again"

    run(main)


def test_what_is_known_is_asked_for_again_whenever_it_is_old() -> None:
    async def main(_: VirtualLoop) -> int:
        found = subscription(Topics("t"), "t")
        asked: list[Sequence[str] | None] = []
        for _second in range(12):
            await asyncio.sleep(1)
            found.views(["t"], [], asked.append)
        return len(asked)

    assert run(main) == 3


@pytest.mark.parametrize("pattern", [None, re.compile("t")])
def test_what_was_missed_is_asked_for_until_it_is_there(pattern: re.Pattern[str] | None) -> None:
    async def main(_: VirtualLoop) -> list[Sequence[str] | None]:
        topics = Topics("t")
        found = subscription(topics, "t")
        asked: list[Sequence[str] | None] = []
        found.views(["t"], ["t"], asked.append)  # it is old, too
        found.choose(["t"] if pattern is None else (), pattern)
        found.views(["t"], ["t"], asked.append)
        await topics.refresh(["t"])
        found.views(["t"], ["t"], asked.append)
        return asked[2:]

    assert run(main) == ([["t"]] if pattern is None else [])


def test_a_pattern_that_nothing_fits_yet_is_held_against_the_topics_that_there_are_now_and_then() -> None:
    async def main(loop: VirtualLoop) -> None:  # noqa: ARG001
        subscription, asked = Subscription(cast(Any, Topics()), [], 300), list[Sequence[str] | None]()
        for _ in range(2):
            subscription.views([], [], asked.append)
        assert asked == [], "there is nothing to read"
        subscription.choose([], re.compile("later"))
        for _ in range(3):
            subscription.views([], [], asked.append)
            await asyncio.sleep(299)
            subscription.views([], [], asked.append)
            await asyncio.sleep(2)
        assert asked == [None] * 3

    run(main)


@pytest.mark.parametrize("by_name", [True, False])
def test_only_who_names_a_topic_has_it_made_where_its_id_is_asked_for(by_name: bool) -> None:
    async def main(loop: VirtualLoop) -> None:  # noqa: ARG001
        topics = Topics("t")
        subscription = Subscription(cast(Any, topics), [], 300)
        subscription.choose(["t"] if by_name else [], None if by_name else re.compile("t"))
        assert list(await subscription.topic_ids(["t"])) == ["t"]
        assert {made for _, made in topics.made} == {by_name}

    run(main)
