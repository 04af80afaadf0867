"""Where a producer sends: partitions that are added or gone, brokers that are not there, shared connections."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from tests.client.test_producer import simulate

from fencepost.client import (
    Admin,
    Producer,
)
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, DeliveryError
from fencepost.protocol.partitioning import partition_for_key
from fencepost.simulation.world import ADDRESS, World


def test_records_with_a_key_go_by_the_number_of_partitions_that_there_are_by_now() -> None:
    keys = [b"%d" % number for number in range(20)]

    async def scenario(world: World) -> None:
        async def places(writer: Producer) -> list[int]:
            return [(await (await writer.send("t", b"v", key=key))).partition for key in keys]

        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime, metadata_max_age_ms=1000) as writer:
            assert await places(writer) == [partition_for_key(key, 2) for key in keys]
            async with Admin(ADDRESS, runtime=world.runtime("admin-2")) as admin:
                await admin.create_partitions("t", 5)
            await asyncio.sleep(1.5)
            assert await places(writer) == [partition_for_key(key, 5) for key in keys]

    simulate(scenario)


def test_a_producer_that_finds_no_broker_when_its_metadata_is_old_goes_on_when_there_is_one() -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime, metadata_max_age_ms=100, request_timeout_ms=500) as writer:
            await (await writer.send("t", b"v", partition=0))
            world.kill()
            await asyncio.sleep(5)
            await world.start()
            assert (await (await writer.send("t", b"v", partition=0))).offset == 1
            async with Admin(ADDRESS, runtime=world.runtime("admin-2")) as admin:
                await admin.create_partitions("t", 50)
            await asyncio.sleep(1)
            written = await (await writer.send("t", b"v", key=b"key"))
            assert written.partition == partition_for_key(b"key", 50) > 1, "it looked again after it had found nobody"

    simulate(scenario)


def test_metadata_that_could_not_be_had_when_it_was_old_is_not_waited_for_as_long_again() -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime, metadata_max_age_ms=100_000, request_timeout_ms=500) as writer:
            await (await writer.send("t", b"v", partition=0))
            await asyncio.sleep(98)
            world.kill()
            await asyncio.sleep(5)
            await world.start()
            async with Admin(ADDRESS, runtime=world.runtime("admin-2")) as admin:
                await admin.create_partitions("t", 50)
            await asyncio.sleep(10)
            written = await (await writer.send("t", b"v", key=b"key"))
            assert written.partition == partition_for_key(b"key", 50) > 1

    simulate(scenario)


def test_a_partition_that_was_added_meanwhile_can_be_written_to_at_once() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            await (await writer.send("t", b"0", partition=0))
            async with Admin(ADDRESS, runtime=world.runtime("admin-2")) as admin:
                await admin.create_partitions("t", 3)
            told = await (await writer.send("t", b"1", partition=2))
            assert (told.partition, told.offset) == (2, 0)
            with pytest.raises(BrokerError, match="has 3 partitions, there is no partition 3"):
                await writer.send("t", b"2", partition=3)

    simulate(scenario)


def test_records_without_a_key_that_are_sent_slowly_come_to_every_partition() -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime, metadata_max_age_ms=1000, batch_bytes=1000) as writer:

            async def place() -> int:
                return (await (await writer.send("t", b"v" * 100))).partition

            places = [await place() for _ in range(200)]
            assert set(places) == {0, 1}
            changes = sum(one != other for one, other in pairwise(places))
            assert changes <= 20, "those of about one batch go to one partition"
            async with Admin(ADDRESS, runtime=world.runtime("admin-2")) as admin:
                await admin.create_partitions("t", 4)
            await asyncio.sleep(1.5)
            assert {await place() for _ in range(400)} == {0, 1, 2, 3}

    simulate(scenario)


def test_a_partition_that_is_gone_is_looked_for_until_it_is_too_late() -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime, delivery_timeout_ms=5000) as writer:
            await (await writer.send("t", b"v", partition=1))
            async with Admin(ADDRESS, runtime=world.runtime("admin-2")) as admin:
                await admin.delete_topic("t")
                await admin.create_topic("t", partitions=1)
            sent = [await writer.send("t", b"lost", partition=1), await writer.send("t", b"kept", partition=0)]
            assert (await sent[1]).offset == 0
            with pytest.raises(DeliveryError):
                await sent[0]

    simulate(scenario)


def test_who_stops_waiting_for_a_connection_leaves_it_to_the_others() -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(ADDRESS, runtime=world.runtime("client"))
        waiting = [asyncio.ensure_future(cluster.any_connection()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert found[1] is found[2] is await cluster.any_connection()
        await cluster.close()

    simulate(scenario)


def test_topics_are_asked_for_when_what_is_known_is_old_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    refresh = Cluster.refresh

    async def noted(cluster: Cluster, *how: Any) -> Any:
        asked.append(asyncio.get_running_loop().time())
        return await refresh(cluster, *how)

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), metadata_max_age_ms=100_000) as writer:
            began = asyncio.get_running_loop().time()
            await (await writer.send("t", b"v", partition=0))
            monkeypatch.setattr(Cluster, "refresh", noted)
            await asyncio.sleep(350)
            assert [round(when - began) for when in asked] == [100, 200, 300]

    simulate(scenario)
