"""A commit that nothing is in the way of is sent at once; a task has to do with it only if it is not answered well."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Mapping
from typing import Any, cast

import pytest
from tests.client.test_commits import AT, Scene

from fencepost.client.deadline import Deadline
from fencepost.client.errors import BrokerError, ClosedError, ConnectionLostError, TimedOutError
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import TopicPartition
from fencepost.runtime import Runtime
from fencepost.simulation.loop import VirtualLoop, run


class Ready:
    """A coordinator that is reached already, and answers when the test says so."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, asyncio.Future[bool]]] = []
        """Offsets that were sent at once, and the answers."""
        self.stored_later: list[int] = []
        self.is_reached = True
        self.takes = 0.0
        """Seconds that it takes to answer what is sent later."""
        self.together = self.most_together = 0

    def deadline(self) -> Deadline:
        return Deadline(Runtime.real(), 60_000, "committing")

    def begin(self, positions: Mapping[TopicPartition, OffsetAndMetadata], *_: object) -> asyncio.Future[bool] | None:
        if not self.is_reached:
            return None
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.begun.append((positions[AT].offset, answer))
        return answer

    @staticmethod
    def is_stored(answer: bool) -> bool:
        return answer

    async def commit(
        self,
        positions: Mapping[TopicPartition, OffsetAndMetadata],
        _ids: object,
        _member: object,
        deadline: Deadline,
        begun: asyncio.Future[bool] | None,
    ) -> None:
        if begun is None:
            self.together += 1
            self.most_together = max(self.together, self.most_together)
            await asyncio.sleep(self.takes)
            self.together -= 1
            self.stored_later.append(positions[AT].offset)
            return
        try:
            is_stored = await deadline.within(begun)
        except ConnectionLostError:
            self.stored_later.append(positions[AT].offset)
        else:
            if not is_stored:
                raise BrokerError(ErrorCode.OFFSET_METADATA_TOO_LARGE, "it is too large")


def ready_scene() -> tuple[Scene, Ready]:
    scene, ready = Scene(None), Ready()
    scene.commits._offsets = cast(Any, ready)
    return scene, ready


async def begin(scene: Scene, offset: int) -> asyncio.Task[None]:
    """A commit that waits for its answer, or for its turn."""
    task = asyncio.get_running_loop().create_task(scene.commits.commit({AT: offset}))
    await asyncio.sleep(0)
    return task


def test_it_is_sent_in_the_call_and_ended_by_its_answer() -> None:
    async def main(_: VirtualLoop) -> None:
        scene, ready = ready_scene()
        tasks = asyncio.all_tasks()
        done = scene.commits.commit_async({AT: 2}, None)
        ((offset, answer),) = ready.begun
        answer.set_result(True)
        assert (await done)[AT].offset == offset == 2
        assert asyncio.all_tasks() == tasks, "it takes none"
        assert scene.fetcher.working == {AT: OffsetAndMetadata(2)}, "no commit by itself goes back behind it"

    run(main)


def test_commits_meanwhile_wait_for_its_answer_and_go_together() -> None:
    async def main(_: VirtualLoop) -> None:
        scene, ready = ready_scene()
        first, second, third = await begin(scene, 1), await begin(scene, 2), await begin(scene, 3)
        await asyncio.sleep(1)
        assert ([offset for offset, _ in ready.begun], ready.stored_later) == ([1], [])
        ready.begun[0][1].set_result(True)
        await asyncio.gather(first, second, third)
        assert ([offset for offset, _ in ready.begun], ready.stored_later) == ([1], [3])
        await asyncio.sleep(1)
        last = await begin(scene, 4)
        ready.begun[1][1].set_result(True)
        await last
        assert [offset for offset, _ in ready.begun] == [1, 4]

    run(main)


def test_what_is_refused_is_raised_and_not_asked_for_again() -> None:
    async def main(_: VirtualLoop) -> None:
        scene, ready = ready_scene()
        task = await begin(scene, 1)
        ready.begun[0][1].set_result(False)
        with pytest.raises(BrokerError):
            await task
        assert (len(ready.begun), ready.stored_later) == (1, [])

    run(main)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_where_the_connection_is_lost_it_is_sent_again_before_those_after_it(is_cancelled: bool) -> None:
    """Whoever waited for it may be gone: it was begun, and the next one has to be the last."""

    async def main(_: VirtualLoop) -> None:
        scene, ready = ready_scene()
        first, second = await begin(scene, 1), await begin(scene, 2)
        if is_cancelled:
            first.cancel()
        await asyncio.sleep(1)
        assert ready.stored_later == []
        ready.begun[0][1].set_exception(ConnectionLostError("it was lost"))
        await second
        await scene.commits.settled()
        assert ready.stored_later == [1, 2]
        assert first.cancelled() == is_cancelled

    run(main)


@pytest.mark.parametrize("earlier", [None, 59.0, 61.0], ids=["the first", "after another one", "long after it"])
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_it_has_the_time_of_its_deadline_and_no_more(earlier: float | None, is_cancelled: bool) -> None:
    async def main(loop: VirtualLoop) -> float:
        scene, ready = ready_scene()
        if earlier is not None:
            before = await begin(scene, 0)
            ready.begun.pop()[1].set_result(True)
            await before
            await asyncio.sleep(earlier)
        began = loop.time()
        task = await begin(scene, 1)
        if is_cancelled:
            task.cancel()
            await scene.commits.settled()
        else:
            with pytest.raises(TimedOutError):
                await task
        return loop.time() - began

    assert run(main) == pytest.approx(60)


def test_who_waits_for_all_commits_waits_for_it_and_for_what_its_answer_leads_to() -> None:
    async def main(loop: VirtualLoop) -> None:
        scene, ready = ready_scene()
        scene.commits.commit_async({AT: 1}, None)
        loop.call_later(5, ready.begun[0][1].set_exception, ConnectionLostError("it was lost"))
        await scene.commits.settled()
        assert (loop.time(), ready.stored_later) == (5, [1])

    run(main)


def test_whoever_is_told_of_its_end_may_commit_again() -> None:
    async def main(_: VirtualLoop) -> None:
        scene, ready = ready_scene()

        def again(*_: object) -> None:
            scene.commits.commit_async({AT: 2}, None)

        scene.commits.commit_async({AT: 1}, again)
        ready.begun[0][1].set_result(True)
        await asyncio.sleep(1)
        assert [offset for offset, _ in ready.begun] == [1, 2]
        ready.begun[1][1].set_result(True)
        await scene.commits.settled()

    run(main)


def test_who_closes_before_it_is_answered_tells_whoever_waits() -> None:
    async def main(loop: VirtualLoop) -> None:
        scene, ready = ready_scene()
        task = await begin(scene, 1)
        scene.commits.close()
        with pytest.raises(ClosedError):
            await task
        assert ready.begun[0][1].cancelled()
        await scene.commits.settled()
        assert loop.time() == 0, "nor is anything left that would be waited for"

    run(main)


ANSWERS = pytest.mark.parametrize("answer", [True, False, ConnectionLostError("it was lost")], ids=repr)


def tell(answer: asyncio.Future[bool], given: bool | ConnectionLostError) -> None:
    if isinstance(given, bool):
        answer.set_result(given)
    else:
        answer.set_exception(given)


@ANSWERS
def test_one_that_is_answered_in_the_turn_in_which_it_is_late_ends_once_and_before_those_after_it(
    answer: bool | ConnectionLostError,
) -> None:
    """As where a process stood still for longer than that."""

    async def main(loop: VirtualLoop) -> None:
        scene, ready = ready_scene()
        ready.takes = 1
        ended: list[tuple[int, bool]] = []

        def note(positions: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
            ended.append((positions[AT].offset, error is None))

        loop.call_at(60, lambda: tell(ready.begun[0][1], answer))
        for offset in 1, 2:
            scene.commits.commit_async({AT: offset}, note)
        loop.call_at(60.5, lambda: scene.commits.commit_async({AT: 3}, note))
        await asyncio.sleep(70)
        assert ended == [(1, answer is not False), (2, True), (3, True)]
        assert ready.stored_later == [*([] if isinstance(answer, bool) else [1]), 2, 3]
        assert ready.most_together == 1

    run(main)


@ANSWERS
def test_one_that_is_answered_in_the_turn_in_which_it_is_closed_ends_once(answer: bool | ConnectionLostError) -> None:
    async def main(_: VirtualLoop) -> None:
        scene, ready = ready_scene()
        errors: list[Exception | None] = []
        scene.commits.commit_async({AT: 1}, lambda _, error: errors.append(error))
        tasks = asyncio.all_tasks()
        tell(ready.begun[0][1], answer)
        scene.commits.close()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == tasks
        await asyncio.sleep(1)
        assert list(map(type, errors)) == [ClosedError]

    run(main)


@ANSWERS
def test_the_answer_to_one_that_is_closed_in_the_turn_in_which_it_is_late_is_nobodys(
    answer: bool | ConnectionLostError,
) -> None:
    """Nor does asyncio say in the log that nobody asked for the loss of its connection."""

    unheard: list[str] = []

    async def main(loop: VirtualLoop) -> None:
        scene, ready = ready_scene()
        loop.set_exception_handler(lambda _, context: unheard.append(context["message"]))
        committing = await begin(scene, 1)
        loop.call_at(60, scene.commits.close)
        with pytest.raises(ClosedError):
            await committing
        tell(ready.begun[0][1], answer)
        await asyncio.sleep(0)

    run(main)
    gc.collect()
    assert unheard == []


def test_where_the_coordinator_is_not_reached_a_task_does_it() -> None:
    async def main(_: VirtualLoop) -> None:
        scene, ready = ready_scene()
        ready.is_reached = False
        await scene.commits.commit({AT: 1})
        assert (ready.begun, ready.stored_later) == ([], [1])

    run(main)


def test_nothing_is_kept_of_one_that_is_closed_before_its_answer() -> None:
    """Neither the commits nor what they hold, until it would be late."""

    async def main(_: VirtualLoop) -> None:
        scene, _ready = ready_scene()
        done = scene.commits.commit_async({AT: 1}, None)
        scene.commits.close()
        assert isinstance(done.exception(), ClosedError)
        commits = weakref.ref(scene.commits)
        del scene
        await asyncio.sleep(0)
        gc.collect()
        assert commits() is None

    run(main)


def test_what_is_handed_out_while_a_commit_is_on_its_way_counts_from_where_it_began() -> None:
    """It may have begun elsewhere than where the commit says, as after a seek."""

    async def main(_: VirtualLoop) -> None:
        scene, ready = ready_scene()
        scene.fetcher.working = {}  # the caller asks for records, and is done with all before
        committing = await begin(scene, 3)
        scene.fetcher.working[AT] = 9
        ready.begun[0][1].set_result(True)
        await committing
        assert scene.fetcher.working == {AT: 9}

    run(main)
