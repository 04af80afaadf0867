"""Topics are asked for one request at a time; what is wanted meanwhile is not forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.cluster import Cluster
from fencepost.client.errors import UnreachableError
from fencepost.client.topic_lookups import TopicLookups
from fencepost.simulation.loop import VirtualLoop, run

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
