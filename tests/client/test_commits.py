"""What a consumer commits by itself and when, what it commits when it is told to, and who waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from fencepost.client.commits import Commits
from fencepost.client.deadline import Deadline
from fencepost.client.errors import BrokerError, ClosedError, CommitFailedError, FencedInstanceIdError, TimedOutError
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import TopicPartition
from fencepost.runtime import Runtime
from fencepost.simulation.loop import VirtualLoop, run

AT = TopicPartition("t", 0)


class Offsets:
    """Stores what is committed, when it may."""

    def __init__(self) -> None:
        self.stored: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        self.refuses = False
        self.waiting: list[asyncio.Event] = []
        self.deadlines: list[Deadline] = []

    def deadline(self) -> Deadline:
        return Deadline(Runtime.real(), 60_000, "committing")

    def begin(self, *_: object) -> None:
        """Nothing can be sent at once."""

    async def commit(self, positions: Mapping[TopicPartition, OffsetAndMetadata], *given: Any) -> None:
        self.deadlines.append(given[2])
        if self.waiting:
            await self.waiting.pop().wait()
        if self.refuses:
            raise CommitFailedError("the group rebalances")
        self.stored.append(positions)


def as_committed(position: int | OffsetAndMetadata) -> OffsetAndMetadata:
    return position if isinstance(position, OffsetAndMetadata) else OffsetAndMetadata(position)


class Scene:
    """A consumer that stands at offset 7, and may still be working on what came from offset 5 on."""

    def __init__(self, interval_ms: float | None) -> None:
        self.member = ConsumerGroupMetadata("g", 1)
        self.group = SimpleNamespace(fenced=None, requests=None, metadata=lambda: self.member)
        followed = {AT: SimpleNamespace(committed=lambda: OffsetAndMetadata(7), topic_id=None)}
        self.fetcher = fetcher = SimpleNamespace(followed=followed, working={AT: 5}, settle=lambda: None, error=None)
        fetcher.before_work = lambda: fetcher.working
        places = SimpleNamespace(checked=lambda given: {at: as_committed(each) for at, each in given.items()})
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
        scene, told = Scene(5000), list[list[int]]()
        for seconds in (4.9, 0.2, 4.8, 0.3):
            await asyncio.sleep(seconds)
            scene.commits.commit_if_due()
            assert told == [] or scene.stored == told[-1], "nobody waits for it"
            await scene.commits.settled()
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


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_before_it_joins_again_positions_in_what_is_not_there_any_more_hold_nothing_up(code: ErrorCode) -> None:
    """A rebalance takes away what was deleted: who does not give it up is in the way of all others."""

    async def main(_: VirtualLoop) -> None:
        scene = Scene(60_000)

        async def commit(*_: object) -> None:
            raise BrokerError(code, "no")

        cast(Any, scene.offsets).commit = commit
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await scene.commits.before_joining()
        else:
            with pytest.raises(BrokerError):
                await scene.commits.before_joining()

    run(main)


@pytest.mark.parametrize("interval_ms", [None, 60_000])
def test_before_it_joins_again_what_was_begun_is_stored(interval_ms: float | None) -> None:
    """After that it is made in the name of a member that there is not any more."""

    async def main(_: VirtualLoop) -> None:
        scene, may_go_on = Scene(interval_ms), asyncio.Event()
        scene.offsets.waiting.append(may_go_on)
        begun = scene.commits.commit_async({AT: 3}, None)
        joining = asyncio.ensure_future(scene.commits.before_joining())
        await asyncio.sleep(1)
        assert not joining.done()
        may_go_on.set()
        await joining
        assert begun.done() and scene.stored[0] == 3

    run(main)


def test_a_commit_by_itself_that_a_rebalance_refuses_is_nobodys_error() -> None:
    async def main(_: VirtualLoop) -> None:
        scene = Scene(0)
        scene.offsets.refuses = True
        scene.commits.commit_if_due()
        await scene.commits.before_joining()
        assert scene.commits._fetcher.error is None
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


def test_who_commits_nothing_waits_for_what_was_begun_before() -> None:
    """Of that it is said that it has ended when `commit` returns."""

    async def main(loop: VirtualLoop) -> None:
        scene, may_go_on = Scene(None), asyncio.Event()
        scene.offsets.waiting.append(may_go_on)
        begun = scene.commits.commit_async({AT: 3}, None)
        nothing = loop.create_task(scene.commits.commit({}))
        await asyncio.sleep(1)
        assert not nothing.done()
        may_go_on.set()
        await nothing
        assert begun.done() and scene.stored == [3]

    run(main)


def test_what_is_begun_as_another_one_ends_is_waited_for_too() -> None:
    async def main(loop: VirtualLoop) -> list[int]:
        scene = Scene(None)

        async def one_after_the_other() -> None:
            for offset in range(3):
                await scene.commits.commit({AT: offset})

        working = loop.create_task(one_after_the_other())
        await asyncio.sleep(0)
        await scene.commits.settled()
        assert working.done()
        return scene.stored

    assert run(main) == [0, 1, 2]


class Outcomes(Offsets):
    """Stores or refuses what it is given after a while, and notes what is under way at once."""

    def __init__(self, refused: set[int], seconds: float = 1) -> None:
        super().__init__()
        self.refused, self.seconds, self.at_once = refused, seconds, 0

    async def commit(self, positions: Mapping[TopicPartition, OffsetAndMetadata], *_: object) -> None:
        self.at_once += 1
        assert self.at_once == 1, "one request after the other"
        await asyncio.sleep(self.seconds)
        self.at_once -= 1
        if positions[AT].offset in self.refused:
            raise BrokerError(ErrorCode.OFFSET_METADATA_TOO_LARGE, "it is too large")
        self.stored.append(positions)


def test_commits_that_nobody_waits_for_keep_their_order_and_end_before_the_next_that_is_waited_for() -> None:
    async def main(_: VirtualLoop) -> None:
        scene, told = Scene(None), list[tuple[int, Exception | None]]()
        scene.commits._offsets = cast(Any, offsets := Outcomes(set()))

        def note(positions: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
            told.append((positions[AT].offset, error))
            raise RuntimeError("a callback that fails harms nobody")

        begun = [scene.commits.commit_async({AT: number}, note) for number in (1, 2)]
        await asyncio.sleep(0.1)
        begun += [scene.commits.commit_async({AT: number}, note) for number in (3, 4)]
        alone = scene.commits.commit_async({AT: 5}, None)
        assert not offsets.stored
        assert not told
        await scene.commits.commit({AT: 6})
        assert told == [(1, None), (2, None), (3, None), (4, None)]
        assert [positions[AT].offset for positions in offsets.stored] == [2, 6]
        assert (await alone)[AT] == OffsetAndMetadata(5)
        assert [done.exception() for done in begun] == [None] * 4

    run(main)


def test_one_that_is_refused_is_refused_alone() -> None:
    async def main(_: VirtualLoop) -> None:
        scene = Scene(None)
        scene.commits._offsets = cast(Any, offsets := Outcomes({3}))
        first = scene.commits.commit_async({AT: 2}, None)
        refused = scene.commits.commit_async({AT: 3}, None)
        await scene.commits.settled()
        assert first.exception() is None
        assert isinstance(refused.exception(), BrokerError)
        assert [positions[AT].offset for positions in offsets.stored] == [2]

    run(main)


def test_what_was_reached_by_another_member_is_committed_in_its_name() -> None:
    async def main(_: VirtualLoop) -> None:
        scene, members = Scene(None), list[Any]()

        async def commit(_: object, __: object, member: object, *___: object) -> None:
            await asyncio.sleep(1)
            members.append(member)

        scene.offsets.commit = commit  # type: ignore[assignment,method-assign]
        scene.commits.commit_async({AT: 2}, None)
        await asyncio.sleep(0.5)
        scene.commits.commit_async({AT: 3}, None)
        scene.member = ConsumerGroupMetadata("g", 2)
        scene.commits.commit_async({AT: 4}, None)
        await scene.commits.settled()
        assert [member.generation_id for member in members] == [1, 1, 2]

    run(main)


@pytest.mark.parametrize("waited", [0.1, 1.5])
def test_a_commit_that_is_cancelled_before_its_turn_is_not_made(waited: float) -> None:
    async def main(loop: VirtualLoop) -> None:
        scene = Scene(None)
        scene.commits._offsets = cast(Any, offsets := Outcomes(set()))
        scene.commits.commit_async({AT: 1}, None)
        await asyncio.sleep(0)
        task = loop.create_task(scene.commits.commit({AT: 2}))
        await asyncio.sleep(waited)
        task.cancel()
        await scene.commits.settled()
        assert [positions[AT].offset for positions in offsets.stored] == ([1] if waited < 1 else [1, 2])

    run(main)


def test_who_closes_before_they_end_tells_everybody() -> None:
    async def main(_: VirtualLoop) -> None:
        scene, told = Scene(None), list[Any]()
        scene.commits._offsets = cast(Any, Outcomes(set(), seconds=100))
        first = scene.commits.commit_async({AT: 1}, lambda *what: told.append(what[1]))
        await asyncio.sleep(1)
        second = scene.commits.commit_async({AT: 2}, None)
        scene.commits.close()
        assert isinstance(first.exception(), ClosedError) and isinstance(second.exception(), ClosedError)
        assert [type(error) for error in told] == [ClosedError]

    run(main)


@pytest.mark.parametrize(("error", "raised"), [(ErrorCode.GROUP_AUTHORIZATION_FAILED, True), (None, False)])
def test_what_a_commit_by_itself_meets_the_next_poll_raises_unless_it_may_pass(
    error: ErrorCode | None, raised: bool
) -> None:
    async def main(_: VirtualLoop) -> None:
        scene = Scene(0)

        async def fail(*_: object) -> None:
            raise TimedOutError("too late") if error is None else BrokerError(error, "no")

        scene.offsets.commit = fail  # type: ignore[assignment,method-assign]
        scene.commits.commit_if_due()
        await scene.commits.settled()
        assert (scene.commits._fetcher.error is not None) == raised

    run(main)


def test_positions_in_a_topic_that_was_made_anew_are_not_stored_with_those_in_the_former() -> None:
    """One request names one id of a topic: under the new one the old positions would count, and records be left out."""
    old, new, other = UUID(int=1), UUID(int=2), TopicPartition("t", 1)

    async def main(_: VirtualLoop) -> None:
        scene, stored = Scene(None), list[tuple[object, object]]()
        followed: dict[TopicPartition, Any] = cast(Any, scene.commits._fetcher.followed)
        followed[other] = SimpleNamespace(committed=lambda: OffsetAndMetadata(0), topic_id=old)
        followed[AT].topic_id = old

        async def commit(positions: object, topic_ids: object, *_: object) -> None:
            stored.append((positions, topic_ids))
            await asyncio.sleep(1)

        cast(Any, scene.offsets).commit = commit
        waiting = [scene.commits.commit_async({AT: 1}, None)]
        await asyncio.sleep(0.5)  # that one is under way
        waiting += [scene.commits.commit_async({AT: 500}, None), scene.commits.commit_async({other: 3}, None)]
        followed[AT].topic_id = followed[other].topic_id = new
        waiting.append(scene.commits.commit_async({other: 4}, None))
        await asyncio.gather(*waiting)
        first, second, third = (OffsetAndMetadata(offset) for offset in (500, 3, 4))
        assert stored[1:] == [({AT: first, other: second}, {AT: old, other: old}), ({other: third}, {other: new})]

    run(main)


def test_each_position_is_stored_in_the_topic_that_it_is_of_where_others_of_its_name_are_of_another() -> None:
    """A topic was made anew, and not all of its partitions are led yet, or it has fewer of them now."""
    old, new, other, unread = UUID(int=1), UUID(int=2), TopicPartition("t", 1), TopicPartition("t", 2)

    async def main(_: VirtualLoop) -> None:
        scene, stored = Scene(None), list[object]()
        followed: dict[TopicPartition, Any] = cast(Any, scene.commits._fetcher.followed)
        followed[other] = SimpleNamespace(committed=lambda: OffsetAndMetadata(7), topic_id=old)
        followed[AT].topic_id = new

        async def commit(_: object, topic_ids: object, *__: object) -> None:
            stored.append(topic_ids)

        cast(Any, scene.offsets).commit = commit
        for given in (None, {unread: 5}, {unread: 5, other: 6}):
            await scene.commits.commit(given)
        assert stored == [{AT: new, other: old}, {}, {unread: old, other: old}]

    run(main)


def test_what_is_sent_together_has_the_time_of_the_last_that_was_begun() -> None:
    async def main(_: VirtualLoop) -> None:
        scene, may_go_on = Scene(None), asyncio.Event()
        scene.offsets.waiting.append(may_go_on)
        told = [scene.commits.commit_async({AT: 1}, None)]
        await asyncio.sleep(0)
        for offset in (2, 3):
            told.append(scene.commits.commit_async({AT: offset}, None))
            await asyncio.sleep(40)
        may_go_on.set()
        await asyncio.gather(*told)
        assert scene.stored == [1, 3]
        assert [each.left for each in scene.offsets.deadlines] == [-20, 20]

    run(main)
