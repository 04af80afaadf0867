"""What a client tells of its topics and partitions, and going to the beginning or the end of all that are assigned."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.test_group import PARTITIONS, SHORT_SESSIONS, member, take, write
from tests.client.test_producer import simulate

from fencepost.client import Admin, BrokerError, Consumer, Producer, RebalanceListener, TopicPartition
from fencepost.client.errors import MisuseError
from fencepost.protocol.errors import ErrorCode
from fencepost.simulation.world import ADDRESS, World

AT = TopicPartition("t", 0)


def reader_of(world: World, *topics: str, max_block_ms: int = 1000) -> Consumer:
    return Consumer(*topics, bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), max_block_ms=max_block_ms)


def test_a_subscription_is_what_was_subscribed_to_and_what_fits() -> None:
    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin, reader_of(world, "u", "t") as reader:
            assert reader.subscription() == ["t", "u"]
            reader.subscribe(pattern="t.*")
            assert reader.subscription() == []
            await admin.create_topic("t2")
            await reader.poll(100)
            assert reader.subscription() == ["t", "t2"]
            await reader.unsubscribe()
            reader.assign([AT])
            assert reader.subscription() == []

    simulate(scenario)


def test_topics_are_told_as_of_now_without_the_brokers_own() -> None:
    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin, reader_of(world) as reader:
            async with member(world, "of a group") as other:
                await other.poll(1000)
            assert "__consumer_offsets" in await admin.topics()
            assert await reader.topics() == ["t"]
            await admin.create_topic("another")
            assert await reader.topics() == ["another", "t"]

    simulate(scenario, **SHORT_SESSIONS)


def test_partitions_of_a_topic_are_told_as_of_now() -> None:
    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin, reader_of(world) as reader:
            assert await reader.partitions_for_topic("t") == [0, 1]
            await admin.create_partitions("t", 3)
            assert await reader.partitions_for_topic("t") == [0, 1, 2]

    simulate(scenario)


def test_asking_for_partitions_of_a_topic_that_is_not_there_says_so_at_once_and_makes_none() -> None:
    async def scenario(world: World) -> None:
        async with reader_of(world) as reader:
            begun = asyncio.get_running_loop().time()
            with pytest.raises(BrokerError, match="topic 'none' cannot be used") as raised:
                await reader.partitions_for_topic("none")
            assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert asyncio.get_running_loop().time() - begun < 0.1
            assert await reader.topics() == ["t"]
            with pytest.raises(TypeError):
                await reader.partitions_for_topic(["t"])  # type: ignore[arg-type]

    simulate(scenario)


def test_what_was_asked_about_does_not_change_what_is_read() -> None:
    """A topic that had fewer partitions then is read from `auto_offset_reset` on, all of it."""

    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.create_topic("grows", partitions=1)
            reader = Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), auto_offset_reset="latest")
            async with reader:
                await reader.topics()
                await reader.partitions_for_topic("grows")
                await admin.create_partitions("grows", 2)
                async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
                    await writer.send_and_wait("grows", b"before", partition=1)
                reader.subscribe("grows")
                assert await reader.poll(1000) == []
                assert reader.position(TopicPartition("grows", 1)) == 1

    simulate(scenario)


def test_a_producer_tells_the_partitions_that_it_chooses_from() -> None:
    async def scenario(world: World) -> None:
        writer = Producer(ADDRESS, runtime=world.runtime("writer"), max_block_ms=1000)
        with pytest.raises(MisuseError, match="not open"):
            await writer.partitions_for("t")
        async with writer:
            assert await writer.partitions_for("t") == [0, 1]
            with pytest.raises(TypeError):
                await writer.partitions_for(b"t")  # type: ignore[arg-type]
            with pytest.raises(BrokerError):
                await writer.partitions_for("no/name")

    simulate(scenario)


@pytest.mark.parametrize("polled", [False, True])
def test_without_partitions_all_that_are_assigned_are_sought(polled: bool) -> None:
    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"0", b"1"], partition=partition)
        async with reader_of(world) as reader:
            reader.assign(PARTITIONS)
            if polled:
                await reader.poll(1000)
            await reader.seek_to_end()
            assert [reader.position(at) for at in PARTITIONS] == [2, 2]
            assert await reader.poll(500) == []
            await reader.seek_to_beginning()
            assert len(await take(reader, 4)) == 4
            await reader.seek_to_end([])
            assert [reader.position(at) for at in PARTITIONS] == [2, 2]

    simulate(scenario)


def test_a_listener_may_seek_in_all_that_is_given_to_it() -> None:
    reader: Consumer

    class ToTheEnd(RebalanceListener):
        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:  # noqa: ARG002
            await reader.seek_to_end()

    async def scenario(world: World) -> None:
        nonlocal reader
        await write(world, [b"0", b"1"])
        async with member(world, "reader") as reader:
            reader.subscribe("t", listener=ToTheEnd())
            assert await reader.poll(1000) == []
            assert [reader.position(at) for at in PARTITIONS] == [2, 0]

    simulate(scenario, **SHORT_SESSIONS)


def test_seeking_in_all_before_any_were_assigned_is_refused() -> None:
    async def scenario(world: World) -> None:
        async with reader_of(world, "t") as reader:
            for seek in (reader.seek_to_beginning, reader.seek_to_end):
                with pytest.raises(MisuseError, match="nothing is assigned to this consumer yet: poll"):
                    await seek()
            await reader.poll(100)
            await reader.seek_to_end()

    simulate(scenario)


def test_a_topic_that_may_not_be_read_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        async with reader_of(world) as reader:
            asked = reader._cluster.any_connection

            async def refusing() -> object:
                connection = await asked()
                request = connection.request

                async def refused(*given: object) -> object:
                    answer = await request(*given)  # type: ignore[arg-type]
                    for topic in answer.topics:
                        topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
                    return answer

                monkeypatch.setattr(connection, "request", refused)
                return connection

            monkeypatch.setattr(reader._cluster, "any_connection", refusing)
            with pytest.raises(BrokerError) as raised:
                await reader.partitions_for_topic("t")
            assert raised.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert await reader.topics() == []

    simulate(scenario)
