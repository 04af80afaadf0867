"""A member of a group of the new protocol, on virtual time, with a coordinator that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.admin.nodes import Late
from tests.client.consumer_group.coordinator import INTERVAL_MS, PARTITIONS, Coordinator, Known, place, play
from tests.client.test_forked import in_a_child
from tests.client.test_rebalances import Notes

from fencepost.client import Consumer, TopicPartition
from fencepost.client.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    MisuseError,
    TimedOutError,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ConsumerGroupHeartbeatRequest

INTERVAL = INTERVAL_MS / 1000
FIRST_HALF, SECOND_HALF = PARTITIONS[:2], PARTITIONS[2:]


async def poll_for(reader: Consumer, seconds: float) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        assert await reader.poll(100) == []


async def until(reader: Consumer, holds: Callable[[], bool]) -> None:
    for _ in range(300):
        if holds():
            return
        await reader.poll(100)
    raise AssertionError(reader.assignment())


async def let_the_epoch_pass(group: Coordinator, reader: Consumer) -> None:
    """Have the coordinator go on to epoch 2; the answers that tell the member of it are late."""
    await until(reader, lambda: reader.assignment() == PARTITIONS)
    group.rebalance()
    group.refuse = lambda request: Late(0.5, group_answer(group, request))
    while group.only.epoch == 1:
        await reader.poll(10)


def observed(reader: Consumer, before: Callable[[str], Any] = lambda _: None) -> Notes:
    notes = Notes(before)
    reader.subscribe("t", listener=notes)
    return notes


def test_a_member_says_what_it_is_once_and_then_lives_as_often_as_it_is_told_to() -> None:
    async def scenario(group: Coordinator) -> None:
        async with group.member(group_remote_assignor="uniform", rebalance_timeout_ms=7000) as reader:
            notes = observed(reader)
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            await poll_for(reader, 10 * INTERVAL)
            first, has, *rest = group.heard
            assert (first.member_epoch, first.server_assignor, first.rebalance_timeout_ms) == (0, "uniform", 7000)
            assert (first.subscribed_topic_names, first.topic_partitions) == (["t"], [])
            assert [one.partitions for one in has.topic_partitions or []] == [[0, 1, 2, 3]]
            assert len(first.member_id) >= 22
            for each in (has, *rest):
                assert (each.member_id, each.member_epoch) == (first.member_id, 1)
                assert (each.subscribed_topic_names, each.server_assignor, each.rebalance_timeout_ms) == (
                    None,
                    None,
                    -1,
                )
            assert all(each.topic_partitions is None for each in rest)
            assert 9 <= len(rest) <= 11
            assert notes.told == [("assigned", [0, 1, 2, 3])]
        assert [one.member_epoch for one in group.heard][-1] == -1
        assert group.members == {}

    play(scenario)


def test_a_member_lives_as_often_as_it_was_told_to_last() -> None:
    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            for interval_ms in (INTERVAL_MS // 5, 3 * INTERVAL_MS):
                group.interval_ms = interval_ms
                await poll_for(reader, 3 * INTERVAL)
                before = len(group.heard)
                await poll_for(reader, 6 * INTERVAL)
                assert abs(len(group.heard) - before - 6 * INTERVAL_MS / interval_ms) <= 1

    play(scenario)


def test_a_coordinator_that_wants_no_time_between_heartbeats_is_not_asked_without_end() -> None:
    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            group.interval_ms = 0
            await poll_for(reader, 3 * INTERVAL)
            before = len(group.heard)
            await poll_for(reader, 1)
            assert 10 <= len(group.heard) - before <= 21

    play(scenario)


def test_what_is_taken_away_is_committed_and_told_before_the_coordinator_hears_that_it_is_given_up() -> None:
    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            order: list[str] = []

            async def commit(what: str) -> None:
                order.append(what)
                if order == ["assigned", "revoked"]:
                    await asyncio.sleep(3 * INTERVAL)
                    assert group.only.pending == {place(at) for at in SECOND_HALF}
                    await reader.commit(dict.fromkeys(SECOND_HALF, 7))
                    order.append("committed")

            notes = observed(reader, commit)
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            group.target = lambda _: FIRST_HALF
            group.rebalance()
            await until(reader, lambda: reader.assignment() == FIRST_HALF)
            await poll_for(reader, INTERVAL)
            assert group.only.assigned == {place(at) for at in FIRST_HALF}
            assert group.committed == {("t", 2): 7, ("t", 3): 7}
            assert order == ["assigned", "revoked", "committed", "assigned"]
            assert notes.told == [("assigned", [0, 1, 2, 3]), ("revoked", [2, 3]), ("assigned", [])]
            assert group.only.epoch == group.epoch

    play(scenario)


def test_partitions_go_from_one_member_to_the_other_and_nobody_has_them_twice() -> None:
    async def scenario(group: Coordinator) -> None:
        def target(known: Known) -> list[TopicPartition]:
            if len(group.members) < 2:
                return PARTITIONS
            return SECOND_HALF if known is next(iter(group.members.values())) else FIRST_HALF

        group.target = target
        async with group.member() as first:
            await until(first, lambda: first.assignment() == PARTITIONS)
            second = group.member()
            for _ in range(60):
                await asyncio.gather(first.poll(100), second.poll(100))
                assert not {*first.assignment()} & {*second.assignment()}
            assert (first.assignment(), second.assignment()) == (SECOND_HALF, FIRST_HALF)
            await second.close()
            await until(first, lambda: first.assignment() == PARTITIONS)

    play(scenario)


@pytest.mark.parametrize("error", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_who_loses_its_place_is_told_so_and_joins_anew_with_nothing(error: ErrorCode) -> None:
    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            notes = observed(reader)
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            before = reader.group_metadata()
            group.members.clear()
            group.rebalance()
            group.refuse = lambda request: error if request.member_epoch == 1 else None
            await asyncio.sleep(2 * INTERVAL)
            with pytest.raises(CommitFailedError):
                await reader.commit(dict.fromkeys(PARTITIONS, 5))
            await until(reader, lambda: len(notes.told) == 3)
            assert notes.told == [("assigned", [0, 1, 2, 3]), ("lost", [0, 1, 2, 3]), ("assigned", [0, 1, 2, 3])]
            assert reader.group_metadata().member_id == before.member_id
            assert reader.group_metadata().generation_id == group.epoch > before.generation_id
            assert reader.as_of_now(before) == before, "that place was another one"
            group.rebalance()
            await poll_for(reader, 2 * INTERVAL)
            assert reader.as_of_now(before._replace(generation_id=group.epoch - 1)) == reader.group_metadata()
            assert reader.group_metadata().generation_id == group.epoch
            await reader.commit(dict.fromkeys(PARTITIONS, 5))
            assert len(group.committed) == 4

    play(scenario)


def test_a_commit_with_an_epoch_that_has_passed_is_made_with_the_newest_one() -> None:
    """As long as nothing was lost between them; the answer that told of it may be late."""

    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            await let_the_epoch_pass(group, reader)
            assert reader.group_metadata().generation_id == 1
            await reader.commit(dict.fromkeys(PARTITIONS, 5))
            assert [error for _, error in group.commits][-1] is ErrorCode.NONE
            assert group.commits[0] == (1, ErrorCode.STALE_MEMBER_EPOCH)
            assert group.commits[-1][0] == group.epoch == 2
            assert group.committed == {("t", at.partition): 5 for at in PARTITIONS}

    play(scenario)


def test_a_commit_of_a_place_that_was_lost_is_not_made_in_the_name_of_the_next_one() -> None:
    """Others may have read on meanwhile: their positions would go back."""

    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            group.refuse_commit = lambda _: ErrorCode.STALE_MEMBER_EPOCH
            committing = asyncio.ensure_future(reader.commit(dict.fromkeys(PARTITIONS, 5)))
            await asyncio.sleep(0.05)
            group.members.clear()
            group.rebalance()
            await until(reader, lambda: len(group.members) == 1)
            group.refuse_commit = lambda _: None
            with pytest.raises(CommitFailedError):
                await committing
            assert group.committed == {}

    play(scenario)


def group_answer(group: Coordinator, request: ConsumerGroupHeartbeatRequest) -> Any:
    group.refuse, refuse = (lambda _: None), group.refuse
    try:
        return group.answer(0, request)
    finally:
        group.refuse = refuse
        group.heard.pop()


def test_a_static_member_waits_until_its_predecessor_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(group: Coordinator) -> None:
        group.refuse = lambda _: ErrorCode.UNRELEASED_INSTANCE_ID
        async with group.member(group_instance_id="i") as reader:
            with pytest.raises(TimedOutError, match="group_instance_id 'i', until it leaves or its session ends"):
                await reader.poll(60_000)
            joining = asyncio.ensure_future(reader.poll(4000))
            await asyncio.sleep(2)
            group.refuse = lambda _: None
            await joining
            assert reader.assignment() == PARTITIONS
        assert group.heard[-1].member_epoch == -2
        assert group.heard[-1].instance_id == "i"
        assert sum("until it leaves or its session ends" in record.message for record in caplog.records) == 1

    play(scenario)


@pytest.mark.parametrize("by", ["heartbeat", "commit"])
def test_of_two_with_one_instance_id_the_first_gives_up(by: str) -> None:
    async def scenario(group: Coordinator) -> None:
        async with group.member(group_instance_id="i") as reader:
            notes = observed(reader)
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            if by == "heartbeat":
                group.refuse = lambda _: ErrorCode.FENCED_INSTANCE_ID
                await asyncio.sleep(2 * INTERVAL)
            else:
                group.refuse_commit = lambda _: ErrorCode.FENCED_INSTANCE_ID
                with pytest.raises(FencedInstanceIdError, match="'i' has joined group 'g'"):
                    await reader.commit({PARTITIONS[0]: 1})
            count = len(group.heard)
            for call in (reader.poll, reader.commit, reader.poll):
                with pytest.raises(FencedInstanceIdError, match="'i' has joined group 'g'"):
                    await call()
            assert notes.told[-1] == ("lost", [0, 1, 2, 3])
            assert len(group.heard) <= count + 1
        assert group.heard[-1].member_epoch > 0, "the place is the other one's"

    play(scenario)


@pytest.mark.parametrize("instance", [None, "i"])
def test_who_asks_for_nothing_for_too_long_leaves_and_joins_again_when_it_asks(
    instance: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(group: Coordinator) -> None:
        async with group.member(max_poll_interval_ms=3500, group_instance_id=instance) as reader:
            notes = observed(reader)
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            await poll_for(reader, 10)
            assert len(group.members) == 1
            begun = asyncio.get_running_loop().time()
            await asyncio.sleep(20)
            assert (group.heard[-1].member_epoch, group.members) == (-2 if instance else -1, {})
            assert 3.4 < group.times[-1] - begun < 3.7
            with pytest.raises(CommitFailedError):
                await reader.commit({PARTITIONS[0]: 1})
            await until(reader, lambda: len(notes.told) == 3)
            assert notes.told == [("assigned", [0, 1, 2, 3]), ("lost", [0, 1, 2, 3]), ("assigned", [0, 1, 2, 3])]
        assert sum("max_poll_interval_ms=3500" in record.message for record in caplog.records) == 1

    play(scenario)


def test_who_waits_for_a_place_for_longer_than_it_may_not_poll_asks_all_the_while() -> None:
    async def scenario(group: Coordinator) -> None:
        group.refuse = lambda _: ErrorCode.UNRELEASED_INSTANCE_ID
        async with group.member(max_poll_interval_ms=2000, max_block_ms=60_000, group_instance_id="i") as reader:
            joining = asyncio.ensure_future(reader.poll(20_000))
            await asyncio.sleep(10)
            group.refuse = lambda _: None
            await joining
            assert reader.assignment() == PARTITIONS
            assert all(each.member_epoch >= 0 for each in group.heard)

    play(scenario)


@pytest.mark.parametrize("patience", [0.001, 0.003, 0.01, 0.05, 0.2])
def test_a_poll_that_is_cancelled_again_and_again_joins_once_and_loses_nothing(patience: float) -> None:
    async def scenario(group: Coordinator) -> None:
        group.refuse = lambda request: Late(0.06, group_answer(group, request))
        async with group.member() as reader:
            notes = observed(reader)
            for _ in range(400):
                try:
                    async with asyncio.timeout(patience):
                        await reader.poll(100)
                except TimeoutError:
                    pass
                if reader.assignment() == PARTITIONS:
                    break
            assert reader.assignment() == PARTITIONS
            assert [what for what, _ in notes.told] == ["assigned"]
            assert sum(each.member_epoch == 0 for each in group.heard) <= 1

    play(scenario)


def test_a_listener_that_raises_is_heard_once_and_the_partitions_are_given_up_all_the_same() -> None:
    async def scenario(group: Coordinator) -> None:
        def fail(what: str) -> None:
            if what == "revoked" and group.target is not keep:
                raise ZeroDivisionError

        def keep(_: Any) -> list[TopicPartition]:
            return PARTITIONS

        group.target = keep
        reader = group.member()
        notes = observed(reader, fail)
        await until(reader, lambda: reader.assignment() == PARTITIONS)
        group.target = lambda _: FIRST_HALF
        group.rebalance()
        with pytest.raises(ZeroDivisionError):
            await poll_for(reader, 5)
        await poll_for(reader, 3)
        assert group.only.assigned == {place(at) for at in FIRST_HALF}
        assert [what for what, _ in notes.told] == ["assigned", "revoked", "assigned"]
        group.target = keep
        await reader.close()

    play(scenario)


def test_a_forked_child_is_told_so_and_its_parent_stays_a_member() -> None:
    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            await until(reader, lambda: reader.assignment() == PARTITIONS)

            def use() -> None:
                with pytest.raises(MisuseError, match="before the process was forked"):
                    reader.poll().send(None)
                with pytest.raises(StopIteration):
                    reader.close().send(None)

            in_a_child(use)
            await poll_for(reader, 5 * INTERVAL)
            assert group.only.epoch == 1

    play(scenario)


def test_what_was_given_before_may_be_owned_still_whatever_is_given_now() -> None:
    """Whoever joins again before that is given up: a call that was to do it was cancelled."""

    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            member = reader._group
            assert member is not None
            group.target = lambda _: PARTITIONS[:1]
            group.rebalance()
            await asyncio.sleep(2 * INTERVAL)
            for _ in range(3):
                assert await member.join(["t"], PARTITIONS) == PARTITIONS[:1]
            assert group.only.assigned == {place(at) for at in PARTITIONS}, "nothing of it is another one's yet"
            await until(reader, lambda: reader.assignment() == PARTITIONS[:1])
            await poll_for(reader, INTERVAL)
            assert group.only.assigned == {place(PARTITIONS[0])}

    play(scenario)


def test_the_epoch_of_a_place_counts_for_commits_once_that_place_is_followed() -> None:
    """Until then the records that the caller has are those of the place before."""

    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            member, before = reader._group, reader.group_metadata()
            assert member is not None
            group.members.clear()
            await asyncio.sleep(2 * INTERVAL)
            assert member.has_lost_place and await member.join(["t"], PARTITIONS) is None
            member.follow()
            assert member.metadata() == before, "there is no place to follow"
            assert await member.join(["t"]) == PARTITIONS
            for _ in range(2):
                assert group.only.epoch > before.generation_id and member.metadata() == before
                group.rebalance()
                await asyncio.sleep(2 * INTERVAL)
            member.follow()
            assert member.metadata().generation_id == group.only.epoch == group.epoch

    play(scenario)
