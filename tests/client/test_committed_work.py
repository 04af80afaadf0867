"""Whoever commits says that this is done: what a consumer commits by itself does not go back behind it."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.test_commits import AT, Scene

from fencepost.client.errors import CommitFailedError
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.loop import VirtualLoop, run


@pytest.mark.parametrize("given", [None, {AT: 6}])
def test_by_itself_it_does_not_go_back_behind_what_was_committed(given: dict[TopicPartition, int] | None) -> None:
    """Whoever commits says that this is done, also before the next poll."""

    async def main(_: VirtualLoop) -> list[int]:
        scene = Scene(60_000)
        await scene.commits.commit(given)
        await scene.commits.commit_done()
        return scene.stored

    assert run(main) == ([7, 7] if given is None else [6, 6])


def test_a_commit_that_was_refused_or_of_earlier_records_says_nothing_of_what_is_worked_on() -> None:
    async def main(_: VirtualLoop) -> list[int]:
        scene = Scene(60_000)
        scene.offsets.refuses = True
        with pytest.raises(CommitFailedError):
            await scene.commits.commit()
        scene.offsets.refuses = False
        await scene.commits.commit_done()
        may_go_on = asyncio.Event()
        scene.offsets.waiting.append(may_go_on)
        begun = scene.commits.commit_async(None, None)
        await asyncio.sleep(0)
        scene.fetcher.working = {AT: 5}  # after a seek they were handed out again
        may_go_on.set()
        await begun
        await scene.commits.commit_done()
        return scene.stored

    assert run(main) == [5, 7, 5]


def test_a_commit_says_nothing_of_what_a_poll_that_waited_meanwhile_hands_out_behind_a_seek() -> None:
    async def main(_: VirtualLoop) -> list[int]:
        scene = Scene(60_000)
        scene.fetcher.working = {}
        may_go_on = asyncio.Event()
        scene.offsets.waiting.append(may_go_on)
        begun = scene.commits.commit_async(None, None)
        await asyncio.sleep(0)
        scene.fetcher.working[AT] = 3
        may_go_on.set()
        await begun
        await scene.commits.commit_done()
        return scene.stored

    assert run(main) == [7, 3]


@pytest.mark.parametrize("given", [None, {AT: 7}])
def test_what_a_thread_took_of_what_it_was_lent_is_known_before_a_commit(
    given: dict[TopicPartition, int] | None,
) -> None:
    async def main(_: VirtualLoop) -> list[int]:
        scene, taken = Scene(60_000), [6]

        def settle() -> None:
            if taken:
                scene.fetcher.working[AT] = taken.pop()

        scene.fetcher.settle = settle
        await scene.commits.commit(given)
        await scene.commits.commit_done()
        return scene.stored

    assert run(main) == [7, 7]
