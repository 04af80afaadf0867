"""Commits that nobody waits for: one at a time by itself, and whatever a callback does the others are stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.test_commits import AT, Scene

from fencepost.client.errors import TimedOutError
from fencepost.simulation.loop import VirtualLoop, run


def test_by_itself_it_commits_one_thing_at_a_time_however_long_that_takes() -> None:
    async def main(_: VirtualLoop) -> None:
        scene = Scene(1000)
        held = asyncio.Event()
        scene.offsets.waiting.append(held)
        for _second in range(5):
            await asyncio.sleep(1.1)
            scene.commits.commit_if_due()
        assert (scene.stored, len(scene.offsets.deadlines)) == ([], 1)
        held.set()
        await scene.commits.settled()
        assert (scene.stored, len(scene.offsets.deadlines)) == ([5], 1)
        scene.commits.commit_if_due()
        await scene.commits.settled()
        assert scene.stored == [5, 5]

    run(main)


@pytest.mark.parametrize("error", [ZeroDivisionError(), LookupError(), asyncio.CancelledError()], ids=repr)
def test_whatever_a_callback_raises_is_said_in_the_log_and_others_are_stored(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(_: VirtualLoop) -> None:
        scene = Scene(None)

        def failing(*_: object) -> None:
            raise error

        first = scene.commits.commit_async({AT: 2}, failing)
        await scene.commits.settled()
        await scene.commits.commit({AT: 3})
        assert (await first)[AT].offset == 2
        assert scene.stored == [2, 3]

    run(main)
    assert caplog.messages == ["a callback of commit_async() failed"]


def test_a_callback_that_fails_where_there_is_nothing_to_store_is_only_said_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(_: VirtualLoop) -> None:
        scene = Scene(None)
        assert await scene.commits.commit_async({}, lambda *_: 1 // 0) == {}

    run(main)
    assert caplog.messages == ["a callback of commit_async() failed"]


def test_callbacks_that_fail_are_said_in_the_log_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def main(_: VirtualLoop) -> None:
        scene = Scene(None)
        for number in range(7):
            scene.commits.commit_async({AT: number}, lambda *_: 1 // 0)
            await asyncio.sleep(10.1)
        assert scene.stored == list(range(7))

    run(main)
    assert caplog.messages == [
        "a callback of commit_async() failed",
        "a callback of commit_async() failed (and 5 times since this was last said)",
    ]


def test_that_it_cannot_commit_by_itself_for_now_is_said_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(_: VirtualLoop) -> None:
        scene = Scene(1000)

        async def commit(*_: Any) -> None:
            raise TimedOutError("the coordinator did not answer")

        monkeypatch.setattr(scene.offsets, "commit", commit)
        for _second in range(100):
            await asyncio.sleep(1.1)
            scene.commits.commit_if_due()
        await scene.commits.settled()

    run(main)
    first, second = caplog.messages
    assert first == "positions were not committed, which is tried again: the coordinator did not answer"
    assert second.startswith(first + " (and ")
