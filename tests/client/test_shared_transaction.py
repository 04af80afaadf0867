"""A transaction that several processes write to, on virtual time: all of it is there, or each says what went wrong."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.client.test_producer import shown, simulate

from fencepost.client import Admin, Consumer, TopicPartition
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientError
from fencepost.client.shared_transaction import SharedTransaction, Ticket
from fencepost.client.transactional_id import TransactionalId
from fencepost.protocol.records import BatchBuilder
from fencepost.simulation.world import ADDRESS, World

PLACES = [TopicPartition("t", 0), TopicPartition("t", 1)]


def one(value: bytes) -> BatchBuilder:
    records = BatchBuilder()
    records.append(0, None, value, ())
    return records


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("commits", [True, False])
def test_a_part_writes_to_as_many_partitions_as_it_likes(commits: bool, level: int) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(ADDRESS, runtime=world.runtime("all"))
        owner = TransactionalId(cluster, "id")
        ticket = Ticket("id", await owner.init(60_000), level == 2)
        part = SharedTransaction(cluster, ticket)
        for at in PLACES * 2:
            await part.write(at, one(b"row"))
        await part.finish()
        await part.close()
        await owner.end(ticket.producer_id_and_epoch, commits, ticket.tv2)
        await cluster.close()
        assert await shown(world) == ([b"row"] * 4 if commits else [])

    simulate(scenario, level)


@pytest.mark.parametrize("level", [1, 2])
def test_a_part_that_was_refused_says_why_to_whoever_asks_it(level: int) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(ADDRESS, runtime=world.runtime("task"))
        ticket = Ticket("id", await TransactionalId(cluster, "id").init(60_000), level == 2)
        part = SharedTransaction(cluster, ticket)
        await part.write(PLACES[0], one(b"lost"))
        await part.finish()
        await TransactionalId(cluster, "id").init(60_000)
        told = await part.write(PLACES[0], one(b"late"))
        with pytest.raises(ClientError) as refused:
            await part.finish()
        for ask in (lambda: told, part.finish, lambda: part.write(PLACES[0], one(b"later"))):
            with pytest.raises(ClientError) as again:
                await ask()
            assert again.value is refused.value
        await part.close()
        await cluster.close()
        assert await shown(world) == []

    simulate(scenario, level)


@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("level", [1, 2])
def test_a_topic_that_is_not_there_is_not_made(level: int, written: int) -> None:
    """Nor one that was, and was deleted: it would have other settings, and not the records from before."""

    async def scenario(world: World) -> None:
        cluster = Cluster(ADDRESS, runtime=world.runtime("task"), patience_ms=5000)
        ticket = Ticket("id", await TransactionalId(cluster, "id").init(60_000), level == 2)
        part = SharedTransaction(cluster, ticket, delivery_timeout_ms=10_000)
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            for _ in range(written):
                await part.write(PLACES[0], one(b"gone"))
                await part.finish()
            await admin.delete_topic("t")
            with pytest.raises(ClientError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await asyncio.gather(part.write(PLACES[0], one(b"row")), part.finish())
            assert "t" not in await admin.topics()
        await part.close()
        await cluster.close()

    simulate(scenario, level)


@pytest.mark.parametrize("level", [1, 2])
def test_batches_of_a_partition_are_on_their_way_together_and_arrive_in_their_order(level: int) -> None:
    """But the first one, where the leader knows nothing of the transaction yet."""
    on_their_way: list[int] = []

    class Looking(SharedTransaction):
        def answered(self, took: float) -> None:
            super().answered(took)
            assert self.sender is not None
            on_their_way.append(sum(self.sender._requests.values()))

    async def scenario(world: World) -> None:
        cluster = Cluster(ADDRESS, runtime=world.runtime("task"))
        owner = TransactionalId(cluster, "id")
        ticket = Ticket("id", await owner.init(60_000), level == 2)
        part = Looking(cluster, ticket)
        for number in range(9):
            await part.write(PLACES[0], one(b"%d" % number))
        await part.finish()
        await part.close()
        other = Looking(cluster, ticket)
        other.go_on(PLACES[0], 9)
        for number in range(9, 12):
            await other.write(PLACES[0], one(b"%d" % number))
        await other.finish()
        await other.close()
        await owner.end(ticket.producer_id_and_epoch, True, ticket.tv2)
        await cluster.close()
        assert [int(value) for value in await in_order(world)] == list(range(12))

    simulate(scenario, level)
    first, rest, others = on_their_way[:1], on_their_way[1:9], on_their_way[9:]
    assert (first, max(rest), max(others)) == ([1], 5, 3), on_their_way


async def in_order(world: World) -> list[bytes]:
    """Values as they are in the log of the first partition."""
    async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader in order")) as consumer:
        consumer.assign(PLACES[:1])
        found: list[bytes] = []
        for _ in range(5):
            found += [record.value or b"" for record in await consumer.poll(100)]
    return found


def test_the_first_failure_is_the_one_that_is_told() -> None:
    """Those that follow come of it."""
    abandoned: list[ClientError] = []
    task: Any = SimpleNamespace(error=None, sender=SimpleNamespace(abandon=abandoned.append))
    first, second = ClientError("first"), ClientError("second")
    for error in (first, second):
        assert SharedTransaction.failed(task, cast(Any, None), cast(Any, None), error, is_spent=False) is error
    assert task.error is first and abandoned == [first]
