"""What a consumer commits by itself and when, what it commits when it is told to, and who waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.client.commits import Commits
from fencepost.client.errors import CommitFailedError, FencedInstanceIdError
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.loop import VirtualLoop, run

AT = TopicPartition("t", 0)


class Offsets:
    """Stores what is committed, when it may."""

    def __init__(self) -> None:
        self.stored: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        self.refuses = False
        self.waiting: list[asyncio.Event] = []

    async def commit(self, positions: Mapping[TopicPartition, OffsetAndMetadata], _: object) -> None:
        if self.waiting:
            await self.waiting.pop().wait()
        if self.refuses:
            raise CommitFailedError("the group rebalances")
        self.stored.append(positions)


class Scene:
    """A consumer that stands at offset 7, and may still be working on what came from offset 5 on."""

    def __init__(self, interval_ms: float | None) -> None:
        self.group = SimpleNamespace(fenced=None, requests=None)
        followed = {AT: SimpleNamespace(next_offset=lambda: 7, topic_id=None)}
        fetcher = SimpleNamespace(followed=followed, before_work=lambda: {AT: 5})
        places = SimpleNamespace(checked=lambda given: {at: OffsetAndMetadata(offset) for at, offset in given.items()})
        self.commits = Commits(cast(Any, self.group), cast(Any, fetcher), cast(Any, places), interval_ms)
        self.offsets = Offsets()
        self.commits._offsets = cast(Any, self.offsets)

    @property
    def stored(self) -> list[int]:
        """The offsets that were committed."""
        return [positions[AT].offset for positions in self.offsets.stored]


@pytest.mark.parametrize("interval_ms", [None, 0, 5000])
def test_what_is_given_is_committed_or_else_what_was_handed_out(interval_ms: float | None) -> None:
    async def main(_: VirtualLoop) -> list[int]:
        scene = Scene(interval_ms)
        await scene.commits.commit({AT: 3})
        await scene.commits.commit()
        return scene.stored

    assert run(main) == [3, 7]


def test_by_itself_it_commits_what_is_done_once_an_interval() -> None:
    async def main(_: VirtualLoop) -> list[list[int]]:
        scene, told = Scene(5000), []
        for seconds in (4.9, 0.2, 4.8, 0.3):
            await asyncio.sleep(seconds)
            await scene.commits.commit_if_due()
            told.append(scene.stored)
        return told

    assert run(main) == [[], [5], [5], [5, 5]]


@pytest.mark.parametrize(("interval_ms", "stored"), [(None, []), (60_000, [5])])
def test_before_it_joins_again_it_commits_only_if_it_does_so_by_itself(
    interval_ms: float | None, stored: list[int]
) -> None:
    async def main(_: VirtualLoop) -> list[int]:
        scene = Scene(interval_ms)
        await scene.commits.before_joining()
        return scene.stored

    assert run(main) == stored


def test_a_commit_by_itself_that_a_rebalance_refuses_is_nobodys_error() -> None:
    async def main(_: VirtualLoop) -> None:
        scene = Scene(0)
        scene.offsets.refuses = True
        await scene.commits.commit_if_due()
        await scene.commits.before_joining()
        with pytest.raises(CommitFailedError):
            await scene.commits.commit()

    run(main)


def test_who_is_fenced_commits_nothing() -> None:
    async def main(_: VirtualLoop) -> list[int]:
        scene = Scene(None)
        scene.group.fenced = FencedInstanceIdError("another one has its place")
        with pytest.raises(FencedInstanceIdError):
            await scene.commits.commit()
        return scene.stored

    assert run(main) == []


def test_all_commits_that_are_under_way_are_waited_for() -> None:
    async def main(loop: VirtualLoop) -> None:
        scene = Scene(None)
        ends = [asyncio.Event(), asyncio.Event()]
        scene.offsets.waiting = list(ends)
        under_way = [loop.create_task(scene.commits.commit()) for _ in ends]
        await asyncio.sleep(0.1)
        settled = loop.create_task(scene.commits.settled())
        ends[0].set()
        await asyncio.sleep(0.1)
        assert not settled.done()
        ends[1].set()
        await asyncio.gather(settled, *under_way)

    run(main)
