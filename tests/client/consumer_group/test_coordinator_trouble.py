"""A member whose coordinator does not answer, does not know the protocol, or does not let it in."""

from __future__ import annotations

import asyncio
import itertools
import logging
from contextlib import suppress
from typing import Any

import pytest
from tests.client.admin.nodes import CUT, FIRST_PORT, SILENT, Late
from tests.client.consumer_group.coordinator import PARTITIONS, Coordinator, play
from tests.client.consumer_group.test_member import (
    FIRST_HALF,
    INTERVAL,
    group_answer,
    let_the_epoch_pass,
    observed,
    poll_for,
    until,
)

from fencepost.client import BrokerError, SubscriptionPattern
from fencepost.client.errors import (
    CommitFailedError,
    TimedOutError,
    UnsupportedByBrokerError,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ConsumerGroupHeartbeatRequest, OffsetFetchRequest


@pytest.mark.parametrize("how", [SILENT, CUT, "slow", "moved", "loading"])
def test_a_coordinator_that_does_not_answer_for_a_while_takes_nothing_from_a_member(how: Any) -> None:
    async def scenario(group: Coordinator) -> None:
        codes = {"moved": ErrorCode.NOT_COORDINATOR, "loading": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        async with group.member() as reader:
            notes = observed(reader)
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            known = group.only
            if how == "slow":
                group.refuse = lambda request: Late(0.9, group_answer(group, request))
            else:
                group.refuse = lambda _: codes.get(how, how)
            if how == "moved":
                group.nodes.coordinators["g"] = 1
                group.refuse = lambda _: codes[how] if not group.nodes.asked or asked_node(group) == 0 else None
            await poll_for(reader, 20)
            group.refuse = lambda _: None
            group.target = lambda _: FIRST_HALF
            group.rebalance()
            await until(reader, lambda: reader.assignment() == FIRST_HALF)
            assert group.only is known
            assert [what for what, _ in notes.told] == ["assigned", "revoked", "assigned"]

    play(scenario)


def asked_node(group: Coordinator) -> int:
    return group.nodes.asked[-1][0]


def test_an_answer_that_is_lost_is_asked_for_again_with_everything_and_fences_nobody() -> None:
    """The coordinator has gone on to the next epoch; the one before it, with what it gave, is taken (KIP-848)."""

    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            notes = observed(reader)
            await until(reader, lambda: reader.assignment() == PARTITIONS)

            def lose_once(request: ConsumerGroupHeartbeatRequest) -> Any:
                group.refuse = lambda _: None
                group.answer(0, request)
                return CUT

            for target in (FIRST_HALF, PARTITIONS):
                await poll_for(reader, 2 * INTERVAL)
                group.target = lambda _, target=target: target  # type: ignore[misc]
                group.rebalance()
                group.refuse = lose_once
                await until(reader, lambda: reader.assignment() == target)  # noqa: B023
            await poll_for(reader, 2 * INTERVAL)
            assert group.only.epoch == group.epoch == reader.group_metadata().generation_id
            assert [what for what, _ in notes.told] == ["assigned", "revoked", "assigned", "assigned"]

    play(scenario)


@pytest.mark.parametrize("how", ["silent", "cut", "gone"])
def test_a_coordinator_that_never_answers_is_told_at_the_end_of_max_block_ms(how: str) -> None:
    async def scenario(group: Coordinator) -> None:
        group.refuse = lambda _: CUT if how == "cut" else SILENT
        reader = group.member()
        loop = asyncio.get_running_loop()
        if how == "gone":
            group.nodes.coordinators["g"] = 1
            group.nodes.network.take_down(FIRST_PORT + 1)
        for _ in range(2):
            begun = loop.time()
            assert await reader.poll(500) == []
            with pytest.raises(TimedOutError, match="joining group 'g' did not succeed within 5000 ms"):
                await reader.poll(60_000)
            assert 4.9 < loop.time() - begun < 5.5
        begun = loop.time()
        await asyncio.gather(reader.close(), reader.close())
        await reader.close()
        assert loop.time() - begun < 8
        count = len(group.heard)
        await asyncio.sleep(100)
        assert len(group.heard) == count

    play(scenario)


def test_a_broker_without_the_new_protocol_is_named_in_a_sentence_with_the_setting() -> None:
    async def scenario(group: Coordinator) -> None:
        group.nodes.ranges["ConsumerGroupHeartbeat"] = (1, 0)
        async with group.member() as reader:
            for _ in range(2):
                with pytest.raises(UnsupportedByBrokerError, match=r'^group_protocol="consumer" of group .g. needs a'):
                    await reader.poll(60_000)
        assert group.heard == []

    play(scenario)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, 'group_protocol="consumer" of group'),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, "group_remote_assignor='round'"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, r"group\.consumer\.max\.size"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, "RE2/J"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topics t"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "group 'g' cannot be joined: because"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "group 'g' cannot be joined: because"),
        (ErrorCode.INVALID_REQUEST, "group 'g' cannot be joined: because"),
    ],
)
def test_who_is_not_let_in_is_told_why_each_time_it_asks_and_comes_in_when_that_is_mended(
    error: ErrorCode, says: str
) -> None:
    async def scenario(group: Coordinator) -> None:
        group.refuse = lambda _: error
        async with group.member(group_remote_assignor="round") as reader:
            for _ in range(2):
                with pytest.raises((BrokerError, UnsupportedByBrokerError), match=says):
                    await reader.poll(60_000)
            count = len(group.heard)
            await asyncio.sleep(30)
            assert len(group.heard) == count, "who is not let in does not ask by itself"
            group.refuse = lambda _: None
            await until(reader, lambda: reader.assignment() == PARTITIONS)

    play(scenario)


def test_a_right_that_is_taken_away_is_told_and_the_member_stays_one() -> None:
    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            notes = observed(reader)
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            group.refuse = lambda _: ErrorCode.TOPIC_AUTHORIZATION_FAILED
            with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
                await poll_for(reader, 10)
            group.refuse = lambda _: None
            await asyncio.sleep(3 * INTERVAL)
            try:
                await reader.poll(100)
            except BrokerError:
                pass  # once more: it was refused while nobody asked
            await poll_for(reader, 5 * INTERVAL)
            assert [what for what, _ in notes.told] == ["assigned"]
            assert reader.assignment() == PARTITIONS

    play(scenario)


@pytest.mark.parametrize("error", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.REQUEST_TIMED_OUT])
def test_who_is_refused_for_now_asks_no_more_often_than_before(error: ErrorCode) -> None:
    """An answer with an error says nothing of the interval."""

    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            group.refuse = lambda _: error
            before = len(group.heard)
            await asyncio.sleep(10 * INTERVAL)
            assert 9 <= len(group.heard) - before <= 11
            group.refuse = lambda _: None
            with suppress(BrokerError):  # it was refused while nobody asked
                await reader.poll(100)
            await poll_for(reader, 3 * INTERVAL)

    play(scenario)


def test_who_hears_from_a_commit_that_it_may_be_no_member_asks_at_once() -> None:
    async def scenario(group: Coordinator) -> None:
        group.interval_ms = 60_000
        async with group.member() as reader:
            notes = observed(reader)
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            group.members.clear()
            group.rebalance()
            with pytest.raises(CommitFailedError):
                await reader.commit(dict.fromkeys(PARTITIONS, 5))
            await poll_for(reader, 1)
            assert [what for what, _ in notes.told] == ["assigned", "lost", "assigned"]

    play(scenario)


def test_who_leaves_before_it_heard_that_it_was_let_in_says_so() -> None:
    """It may have been: others would wait for its session to end."""

    async def scenario(group: Coordinator) -> None:
        def lose(request: ConsumerGroupHeartbeatRequest) -> Any:
            if request.member_epoch < 0:
                return None
            group_answer(group, request)
            group.heard.append(request)
            return SILENT

        group.refuse = lose
        async with group.member() as reader:
            assert await reader.poll(500) == []
            assert len(group.members) == 1
        assert group.members == {}

    play(scenario)


@pytest.mark.parametrize("newest", [0, 1])
def test_a_pattern_is_not_left_out_where_the_coordinator_has_no_room_for_it(newest: int) -> None:
    async def scenario(group: Coordinator) -> None:
        group.nodes.ranges["ConsumerGroupHeartbeat"] = (0, newest)
        async with group.member() as reader:
            reader.subscribe(pattern=SubscriptionPattern("t.*"))
            if newest == 0:
                with pytest.raises(UnsupportedByBrokerError):
                    await reader.poll(60_000)
                assert group.heard == []
            else:
                await until(reader, lambda: reader.assignment() == PARTITIONS)
                assert group.only.regex == "t.*"

    play(scenario)


def test_positions_are_asked_for_with_the_newest_epoch_where_it_has_passed_meanwhile() -> None:
    """A member says who it is as long as it is one: whoever is none may be told positions of a place that it lost."""

    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            await let_the_epoch_pass(group, reader)
            before = len(group.nodes.requests(OffsetFetchRequest))
            assert await reader.committed(PARTITIONS) == dict.fromkeys(PARTITIONS)
            asked = [request.groups[0] for _, request in group.nodes.requests(OffsetFetchRequest)[before:]]
            assert {each.member_id for each in asked} == {group.only.member_id}
            assert (asked[0].member_epoch, asked[-1].member_epoch) == (1, group.only.epoch)

    play(scenario)


@pytest.mark.parametrize("when", ["joining", "living"])
def test_who_goes_while_a_heartbeat_is_not_answered_says_so(when: str) -> None:
    """The coordinator may have it as a member, whose partitions nobody else would have until its session ends."""

    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            if when == "living":
                await until(reader, lambda: reader.assignment() == PARTITIONS)
                await poll_for(reader, INTERVAL)
            lost = len(group.heard)

            def unanswered(request: ConsumerGroupHeartbeatRequest) -> Any:
                return Late(60, group_answer(group, request)) if request.member_epoch >= 0 else None

            group.refuse = unanswered
            while len(group.heard) == lost:
                await reader.poll(10)
            assert len(group.members) == 1
        assert group.heard[-1].member_epoch == -1
        assert group.members == {}

    play(scenario)


@pytest.mark.parametrize("how", [SILENT, CUT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "by turns"])
def test_a_member_whose_heartbeats_are_not_taken_says_so_once_a_minute(
    how: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            turns = itertools.cycle([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
            group.refuse = lambda _: next(turns) if how == "by turns" else how
            await poll_for(reader, 150)
            group.refuse = lambda _: None
            await poll_for(reader, 10)

    with caplog.at_level(logging.WARNING):
        play(scenario)
    assert len([message for message in caplog.messages if message.startswith("group g: ")]) == 3


def test_another_trouble_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """The one before may be said again in a minute only."""

    async def scenario(group: Coordinator) -> None:
        async with group.member(group_instance_id="i", max_block_ms=60_000) as reader:
            joining = asyncio.ensure_future(reader.poll(20_000))
            group.refuse = lambda _: ErrorCode.UNRELEASED_INSTANCE_ID
            await asyncio.sleep(5)
            group.refuse = lambda _: ErrorCode.KAFKA_STORAGE_ERROR
            await asyncio.sleep(5)
            group.refuse = lambda _: None
            await joining
        said = [message for message in caplog.messages if message.startswith("group g: ")]
        assert ["UNRELEASED_INSTANCE_ID" in each for each in said] == [True, False]

    play(scenario)


def test_who_polls_while_its_member_says_goodbye_is_told_that_its_partitions_are_lost() -> None:
    """It was not asked for anything for too long: others may have them before the coordinator answers."""

    async def scenario(group: Coordinator) -> None:
        async with group.member(max_poll_interval_ms=2000) as reader:
            notes = observed(reader)
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            group.refuse = lambda one: Late(0.9, group_answer(group, one)) if one.member_epoch < 0 else None
            await asyncio.sleep(2.5)
            assert group.members == {}
            assert await reader.poll(0) == []
            assert notes.told == [("assigned", [0, 1, 2, 3]), ("lost", [0, 1, 2, 3])]

    play(scenario)


def test_what_a_heartbeat_gave_whose_answers_were_all_lost_is_given_to_the_next_one() -> None:
    """The coordinator gives it again to who says everything, and to nobody else; the epoch is the same."""

    async def scenario(group: Coordinator) -> None:
        begun: list[float] = []

        def losing(node: int, request: Any) -> Any:
            answer, now = group.answer(node, request), asyncio.get_running_loop().time()
            if not isinstance(request, ConsumerGroupHeartbeatRequest):
                return answer
            begun.append(now)
            return SILENT if now < begun[0] + 5.5 else answer

        group.target = lambda _: PARTITIONS[:2]
        async with group.member(max_block_ms=5000) as reader:
            await until(reader, lambda: reader.assignment() == PARTITIONS[:2])
            group.nodes.answer = losing
            group.target = lambda _: PARTITIONS
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            assert group.only.epoch == 1, "it did not lose its place"

    play(scenario)
