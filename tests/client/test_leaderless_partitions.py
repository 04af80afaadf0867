"""A topic with a partition that nobody leads: the others are written and read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.test_producer import simulate

from fencepost.broker import running_broker
from fencepost.client import Admin, Consumer, Producer, TopicPartition, connection
from fencepost.client.assignment import Assignment
from fencepost.client.cluster import Cluster
from fencepost.client.errors import DeliveryError, OffsetsMissingError, TimedOutError
from fencepost.log import opening
from fencepost.log.offline import PartitionDamaged
from fencepost.log.recovery import recover
from fencepost.protocol.codec import encode_request
from fencepost.protocol.types import ZERO_UUID
from fencepost.simulation.world import ADDRESS, World

LEADERLESS, LED = TopicPartition("t", 0), TopicPartition("t", 1)
MOST_A_SECOND = 20


@pytest.fixture
def metadata_requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One for each Metadata request of all clients."""
    asked: list[str] = []

    def encode_and_count(message: Any, *rest: Any) -> bytes:
        asked.extend(["Metadata"] if type(message).__name__ == "MetadataRequest" else [])
        return encode_request(message, *rest)

    monkeypatch.setattr(connection, "encode_request", encode_and_count)
    return asked


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], Awaitable[None]]], None]:
    """Run a scenario on a node that could not open the first partition of `t`."""

    async def prepare(address: str) -> None:
        async with Admin(address) as admin, Producer(address) as writer:
            await admin.create_topic("t", partitions=2)
            for partition in (0, 1):
                await (await writer.send("t", b"before", partition=partition))

    def refuse(partition: Any, *rest: Any) -> None:
        if partition.directory.name == "t-0":
            raise PartitionDamaged("it is said to be damaged")
        recover(partition, *rest)

    def run(scenario: Callable[[str], Awaitable[None]]) -> None:
        with running_broker(data=tmp_path) as broker:
            asyncio.run(prepare(broker.bootstrap_servers))
        with monkeypatch.context() as patch, running_broker_with(patch, refuse, tmp_path) as broker:
            asyncio.run(in_time(scenario(broker.bootstrap_servers)))

    return run


def running_broker_with(patch: pytest.MonkeyPatch, refuse: Callable[..., None], data: Path) -> Any:
    patch.setattr(opening, "recover", refuse)
    return running_broker(data=data)


async def in_time(scenario: Awaitable[None]) -> None:
    async with asyncio.timeout(30):
        await scenario


def test_the_other_partitions_are_written_to(play: Any, metadata_requests: list[str]) -> None:
    async def scenario(address: str) -> None:
        async with Producer(address, delivery_timeout_ms=2000) as writer:
            waiting = await writer.send("t", b"lost", partition=0)
            assert (await (await writer.send("t", b"kept", partition=1))).offset == 1
            for number in range(20):
                assert (await (await writer.send("t", b"any"))).partition == 1, number
            metadata_requests.clear()
            with pytest.raises(DeliveryError):
                await waiting
            assert len(metadata_requests) <= 2 * MOST_A_SECOND

    play(scenario)


def test_the_other_partitions_are_read(play: Any) -> None:
    async def scenario(address: str) -> None:
        async with Consumer(bootstrap_servers=address) as reader:
            reader.assign([LED])
            assert [record.value for record in await reader.poll(5000)] == [b"before"]
            reader._fetcher.follow_too({LEADERLESS: 0}, {})
            assert await reader.poll(200) == []
            async with Producer(address) as writer:
                await (await writer.send("t", b"after", partition=1))
            assert [record.value for record in await reader.poll(5000)] == [b"after"]

    play(scenario)


@pytest.mark.parametrize("how", ["assigned", "subscribed", "in a group"])
def test_the_other_partitions_are_begun(play: Any, metadata_requests: list[str], how: str) -> None:
    """Nobody can say where the leaderless one begins."""

    async def scenario(address: str) -> None:
        topics = [] if how == "assigned" else ["t"]
        reader = Consumer(*topics, bootstrap_servers=address, group_id="g" if how == "in a group" else None)
        async with reader, Producer(address) as writer:
            if how == "assigned":
                reader.assign([LEADERLESS, LED])
            assert [record.value for record in await reader.poll(10_000)] == [b"before"]
            assert reader.assignment() == [LED]
            metadata_requests.clear()
            for number in range(10):
                await (await writer.send("t", b"%d" % number, partition=1))
                assert [record.value for record in await reader.poll(5000)] == [b"%d" % number]
            metadata_requests.clear()
            assert await reader.poll(1000) == []
            assert len(metadata_requests) <= MOST_A_SECOND
            reader.seek(LEADERLESS, 0)
            assert await reader.poll(200) == []
            assert reader.assignment() == [LEADERLESS, LED]

    play(scenario)


def test_a_partition_that_cannot_be_begun_yet_is_not_forgotten_when_its_owner_joins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It keeps what it has, so nobody gives it that again."""
    how: dict[str, Any] = {"group_id": "g", "partition_assignment_strategy": "cooperative-sticky"}

    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime) as writer, Admin(ADDRESS, runtime=runtime) as admin:
            await admin.create_topic("u", partitions=1)
            await (await writer.send("t", b"before", partition=1))
        led_by_nobody(monkeypatch)
        first, second = ({"runtime": world.runtime(name), "bootstrap_servers": ADDRESS, **how} for name in ("a", "b"))
        async with Consumer("t", **first) as reader, Consumer("u", **second) as other:
            assert [record.value for record in await reader.poll(10_000)] == [b"before"]
            assert reader.assignment() == [LED]
            while not other.assignment():
                await asyncio.gather(reader.poll(100), other.poll(100))
            reader.seek(LEADERLESS, 0)
            assert await reader.poll(200) == []
            assert reader.assignment() == [LEADERLESS, LED]

    simulate(scenario)


def test_who_asks_for_offsets_of_a_leaderless_partition_waits_for_it_alone(play: Any) -> None:
    async def scenario(address: str) -> None:
        async with Consumer(bootstrap_servers=address, max_block_ms=1000) as reader:
            assert await reader.end_offsets([LED]) == {LED: 1}
            with pytest.raises(OffsetsMissingError, match="nobody leads t-0") as raised:
                await reader.end_offsets([LEADERLESS, LED])
            assert (raised.value.missing, raised.value.found) == ([LEADERLESS], {LED: 1})
            assert isinstance(raised.value, TimedOutError)
            began = asyncio.get_running_loop().time()
            with pytest.raises(OffsetsMissingError, match="100 ms"):
                await reader.beginning_offsets([LEADERLESS], timeout_ms=100)
            assert asyncio.get_running_loop().time() - began < 0.9
            with pytest.raises(OffsetsMissingError):
                await reader.offsets_for_times({LEADERLESS: 0, LED: 0})

    play(scenario)


def test_who_asks_for_the_lag_or_seeks_is_not_held_up_by_a_leaderless_partition(play: Any) -> None:
    async def scenario(address: str) -> None:
        async with Consumer(bootstrap_servers=address, max_block_ms=1000) as reader:
            reader.assign([LED])
            assert len(await reader.poll(5000)) == 1
            reader._fetcher.follow_too({LEADERLESS: 0}, {})
            assert await reader.lag() == {LED: 0}
            with pytest.raises(OffsetsMissingError):
                await reader.seek_to_beginning([LEADERLESS, LED])
            assert [record.value for record in await reader.poll(5000)] == [b"before"]

    play(scenario)


def led_by_nobody(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Have clients take the first partition of `t` for leaderless, as long as what is returned says so."""
    refresh, leaderless = Cluster.refresh, [True]

    async def refresh_without_it(cluster: Cluster, *how: Any) -> Any:
        answer = await refresh(cluster, *how)
        if leaderless[0] and "t" in cluster.topics:
            cluster.topics["t"].leaders[0] = -1
        return answer

    monkeypatch.setattr(Cluster, "refresh", refresh_without_it)
    return leaderless


@pytest.mark.parametrize("paused", [False, True], ids=["handed out", "paused meanwhile"])
def test_a_leaderless_partition_is_begun_once_it_is_led(monkeypatch: pytest.MonkeyPatch, paused: bool) -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            for partition in (0, 1):
                await (await writer.send("t", b"%d" % partition, partition=partition))
        leaderless = led_by_nobody(monkeypatch)
        async with Consumer("t", group_id="g", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            assert [record.value for record in await reader.poll(10_000)] == [b"1"]
            assert await reader.poll(5000) == []
            if paused:
                reader.pause([LEADERLESS])
            leaderless[0] = False
            if paused:
                assert await reader.poll(5000) == []
                reader.resume([LEADERLESS])
            assert [record.value for record in await reader.poll(5000)] == [b"0"]
            assert reader.assignment() == [LEADERLESS, LED]

    simulate(scenario)


def test_partitions_that_are_added_are_seen_while_another_one_is_led_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever leads it is asked for over and over, and with that nothing else."""

    async def scenario(world: World) -> None:
        refresh = Cluster.refresh

        async def led_by_nobody(cluster: Cluster, *how: Any) -> Any:
            answer = await refresh(cluster, *how)
            if "t" in cluster.topics:
                cluster.topics["t"].leaders[0] = -1
            return answer

        monkeypatch.setattr(Cluster, "refresh", led_by_nobody)
        options: dict[str, Any] = {"metadata_max_age_ms": 2000, "fetch_max_wait_ms": 10}
        runtime = world.runtime("reader")
        async with (
            Admin(ADDRESS, runtime=world.runtime("other admin")) as admin,
            Consumer("t", "u", bootstrap_servers=ADDRESS, runtime=runtime, **options) as reader,
        ):
            await admin.create_topic("u", partitions=1)
            await reader.poll(1000)
            await admin.create_partitions("u", 3)
            for _ in range(1000):
                await reader.poll(7)
            assert reader.assignment() == [LED, *(TopicPartition("u", number) for number in range(3))]

    simulate(scenario)


@pytest.mark.parametrize("how_said", ["sought", "paused"])
def test_what_was_said_of_a_partition_that_cannot_be_begun_yet_outlasts_a_rebalance_that_leaves_it(
    how_said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays its owner's, who is not told that it is new: where to begin, and a pause, are not said again."""
    how: dict[str, Any] = {"group_id": "g", "partition_assignment_strategy": "cooperative-sticky"}

    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime) as writer, Admin(ADDRESS, runtime=runtime) as admin:
            await admin.create_topic("u", partitions=2)
            for partition, number in ((0, 0), (0, 1), (0, 2), (1, 0)):
                await (await writer.send("t", b"%d" % number, partition=partition))
        leaderless = led_by_nobody(monkeypatch)
        first, second = ({"runtime": world.runtime(name), "bootstrap_servers": ADDRESS, **how} for name in ("a", "b"))
        async with Consumer("t", "u", **first) as reader, Consumer("u", **second) as other:
            assert [record.value for record in await reader.poll(10_000)] == [b"0"]
            joins = asyncio.ensure_future(other.poll(60_000))
            await asyncio.sleep(5)  # the group's rebalance waits for us by now
            reader.seek(LEADERLESS, 2) if how_said == "sought" else reader.pause([LEADERLESS])
            while not other.assignment():
                assert await reader.poll(100) == []
            joins.cancel()
            assert how_said == "sought" or reader.paused() == [LEADERLESS]
            leaderless[0] = False
            found = [record.value for _ in range(50) for record in await reader.poll(100)]
            assert found == ([b"2"] if how_said == "sought" else [])
            reader.resume([LEADERLESS])
            found += [record.value for _ in range(50) for record in await reader.poll(100)]
            assert found == ([b"2"] if how_said == "sought" else [b"0", b"1", b"2"])

    simulate(scenario)


@pytest.mark.parametrize("how_said", ["sought", "paused"])
def test_what_was_said_of_a_partition_that_cannot_be_begun_yet_outlasts_a_subscription_that_keeps_it(
    how_said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays ours while we join for other topics, as one that is read does, and may be spoken of meanwhile."""
    how: dict[str, Any] = {"group_id": "g", "partition_assignment_strategy": "cooperative-sticky"}

    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime) as writer, Admin(ADDRESS, runtime=runtime) as admin:
            await admin.create_topic("u", partitions=1)
            for partition, number in ((0, 0), (0, 1), (0, 2), (1, 0)):
                await (await writer.send("t", b"%d" % number, partition=partition))
        leaderless = led_by_nobody(monkeypatch)
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), **how) as reader:
            assert [record.value for record in await reader.poll(10_000)] == [b"0"]
            reader.seek(LEADERLESS, 2) if how_said == "sought" else reader.pause([LEADERLESS])
            reader.subscribe("t", "u")
            assert how_said == "sought" or reader.paused() == [LEADERLESS]
            assert await reader.poll(5000) == []
            leaderless[0] = False
            found = [record.value for _ in range(50) for record in await reader.poll(100)]
            assert found == ([b"2"] if how_said == "sought" else [])
            reader.resume([LEADERLESS])
            found += [record.value for _ in range(50) for record in await reader.poll(100)]
            assert found == ([b"2"] if how_said == "sought" else [b"0", b"1", b"2"])

    simulate(scenario)


def test_a_partition_that_cannot_be_begun_yet_can_be_paused_while_a_subscription_that_keeps_it_is_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    how: dict[str, Any] = {"group_id": "g", "partition_assignment_strategy": "cooperative-sticky"}

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            for partition in (0, 1):
                await (await writer.send("t", b"%d" % partition, partition=partition))
        leaderless = led_by_nobody(monkeypatch)
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), **how) as reader:
            assert [record.value for record in await reader.poll(10_000)] == [b"1"]
            reader.subscribe("t", "u")
            reader.pause([LEADERLESS])
            leaderless[0] = False
            assert [record.value for _ in range(50) for record in await reader.poll(100)] == []
            assert reader.paused() == [LEADERLESS]

    simulate(scenario)


def test_a_partition_of_a_topic_that_was_given_up_is_not_begun_when_it_is_led(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody wants it here, and another member may have it."""
    how: dict[str, Any] = {"group_id": "g", "partition_assignment_strategy": "cooperative-sticky"}

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            for partition in (0, 1):
                await (await writer.send("t", b"%d" % partition, partition=partition))
        leaderless = led_by_nobody(monkeypatch)
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), **how) as reader:
            assert [record.value for record in await reader.poll(10_000)] == [b"1"]
            reader.subscribe("u")
            assert await reader.poll(5000) == []
            leaderless[0] = False
            assert [record.value for _ in range(50) for record in await reader.poll(100)] == []
            assert reader.assignment() == [TopicPartition("u", 0)]

    simulate(scenario)


def test_where_to_begin_counts_once_also_where_the_leader_came_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who then goes back to what is committed begins there."""

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            for value in (b"0", b"1", b"2"):
                await (await writer.send("t", value, partition=0))
        leaderless = led_by_nobody(monkeypatch)
        async with Consumer(group_id="g", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            reader.assign([LEADERLESS])
            assert await reader.poll(1000) == []
            reader.seek(LEADERLESS, 2)
            leaderless[0] = False
            assert [record.value for record in await reader.poll(5000)] == [b"2"]
            await reader.commit({LEADERLESS: 1})
            reader.seek_to_committed()
            assert [record.value for record in await reader.poll(5000)] == [b"1", b"2"]

    simulate(scenario)


def test_a_partition_without_a_leader_is_not_waited_for_once_its_topic_is_not_wanted() -> None:
    """As where the topic is deleted, or its name fits no more."""
    at = TopicPartition("gone", 0)
    fetcher: Any = SimpleNamespace(followed={}, settle=lambda: None, drop=lambda _: None)
    subscription: Any = SimpleNamespace(topics=["t"])
    nobody: Any = None
    assignment = Assignment(subscription, fetcher, nobody, None, nobody)
    assignment.is_started = True
    assignment._leaderless = {at: ZERO_UUID, LEADERLESS: ZERO_UUID}
    assignment._follow_the_pattern()
    assert [assignment.is_not_read_yet(each) for each in (at, LEADERLESS)] == [False, True]


@pytest.mark.parametrize("fails", [False, True])
def test_who_reads_on_while_it_joins_is_woken_when_its_share_is_there_and_when_none_comes(fails: bool) -> None:
    async def main() -> list[str]:
        woken: list[str] = []

        async def join(*_: object) -> None:
            if fails:
                raise TimedOutError("nobody answered")

        fetcher: Any = SimpleNamespace(wake=lambda: woken.append("woken"))
        subscription: Any = SimpleNamespace(topics=["t"], regex=None)
        group: Any = SimpleNamespace(join=join)
        nobody: Any = None
        assignment = Assignment(subscription, fetcher, nobody, None, nobody)
        assignment._group = group
        with pytest.raises(TimedOutError) if fails else nullcontext():
            await assignment._ask_for_a_share()
        return woken

    assert asyncio.run(main()) == ["woken"]
