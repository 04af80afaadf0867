"""What a consumer says of partitions of which nothing can be read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.test_producer import simulate

from fencepost.broker.leader.fetch_plan import FetchPlan
from fencepost.client import Consumer, Producer, TopicPartition
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ConnectionLostError, UnreachableError
from fencepost.client.fetch_sessions import FetchSessions
from fencepost.client.unread import SAID_AFTER, SAID_AGAIN_AFTER, Unread
from fencepost.protocol.errors import ErrorCode
from fencepost.simulation.world import ADDRESS, World

ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@given(st.lists(st.tuples(st.floats(0.01, 40), st.sampled_from([ONE, OTHER]), st.booleans()), max_size=60))
def test_it_is_said_of_whoever_has_failed_without_a_break_and_seldom(
    events: list[tuple[float, TopicPartition, bool]],
) -> None:
    unread, now, since, said_at = Unread(), 0.0, dict[TopicPartition, float](), float("-inf")
    for pause, at, failed in events:
        now += pause
        if failed:
            since.setdefault(at, now)
            unread.failed(at, "nobody leads it", now)
        else:
            since.pop(at, None)
            unread.answered(at)
        late = {each for each, began in since.items() if now - began >= SAID_AFTER}
        warning = unread.warning(now, [ONE, OTHER])
        assert (warning is not None) == (bool(late) and now - said_at >= SAID_AGAIN_AFTER)
        if warning is not None:
            said_at = now
            assert {each for each in (ONE, OTHER) if f"t-{each.partition} for" in warning} == late


def test_nothing_is_said_of_what_is_not_read_any_more() -> None:
    unread = Unread()
    unread.failed(ONE, "nobody leads it", 0.0)
    assert unread.warning(5.0, [OTHER]) is None
    unread.failed(ONE, "nobody leads it", 6.0)
    assert unread.warning(7.0, [ONE]) is None


def test_many_are_counted() -> None:
    unread = Unread()
    for number in range(1000):
        unread.failed(TopicPartition("t", number), "KAFKA_STORAGE_ERROR", 0.0)
    warning = unread.warning(2.0, [TopicPartition("t", number) for number in range(1000)])
    assert warning is not None
    assert "t-2 for 2 s (KAFKA_STORAGE_ERROR) and 997 other partitions" in warning


def test_nothing_is_said_of_partitions_while_nobody_answers_at_all() -> None:
    unread = Unread()
    unread.failed(ONE, "the connection was lost", 0.0)
    unread.nobody_answers()
    assert unread.warning(5.0, [ONE]) is None


@pytest.mark.parametrize("why", ["KAFKA_STORAGE_ERROR", "node 0 cannot be reached"])
def test_a_consumer_says_which_partition_it_cannot_read(
    why: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its leader is not reached, though others name it."""

    async def unreachable(*_: Any, **__: Any) -> None:
        raise ConnectionLostError(why)

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            for partition in (0, 1):
                await (await writer.send("t", b"value", partition=partition))
        reader = Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), auto_offset_reset="earliest")
        async with reader, asyncio.timeout(60):
            reader.assign([ONE])
            assert len(await reader.poll(1000)) == 1
            assert await reader.poll(5000) == []
            assert caplog.messages == []
            with monkeypatch.context() as patch:
                if why == "KAFKA_STORAGE_ERROR":
                    patch.setattr(FetchPlan, "_place", lambda *_: ErrorCode.KAFKA_STORAGE_ERROR)
                else:
                    patch.setattr(FetchSessions, "fetch", unreachable)
                assert await reader.poll(10_000) == []
            (said,) = caplog.messages
            assert f"nothing could be read of t-0 for 2 s ({why})" in said
            async with Producer(ADDRESS, runtime=world.runtime("writer again")) as writer:
                await (await writer.send("t", b"later", partition=0))
            assert [each.value for each in await reader.poll(5000)] == [b"later"]

    simulate(scenario)


def test_a_consumer_says_nothing_of_partitions_after_nobody_was_reached_at_all(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(*_: Any, **__: Any) -> None:
        raise UnreachableError("no broker can be reached")

    async def scenario(world: World) -> None:
        async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            reader.assign([ONE])
            assert await reader.poll(1000) == []
            with monkeypatch.context() as patch:
                patch.setattr(FetchSessions, "fetch", unreachable)
                patch.setattr(Cluster, "refresh", unreachable)
                assert await reader.poll(10_000) == []
            assert await reader.poll(5000) == []
        assert caplog.messages == []

    simulate(scenario)
