"""A client that is used from another event loop than its own says so, and goes on in its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from fencepost.broker import running_broker
from fencepost.client import Admin, Consumer, MisuseError, Producer, TopicPartition, blocking

AT = TopicPartition("t", 0)
PRODUCER: dict[str, Callable[[Producer], Awaitable[object]]] = {
    "send": lambda producer: producer.send("t", b"2"),
    "send_many": lambda producer: producer.send_many("t", [b"2"]),
    "flush": lambda producer: producer.flush(),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
    "close": lambda producer: producer.close(),
}


async def subscribed(consumer: Consumer) -> None:
    consumer.subscribe("t")


CONSUMER: dict[str, Callable[[Consumer], Awaitable[object]]] = {
    "subscribe": subscribed,
    "poll": lambda consumer: consumer.poll(100),
    "poll_batch": lambda consumer: consumer.poll_batch(100),
    "anext": lambda consumer: anext(consumer),
    "commit": lambda consumer: consumer.commit({AT: 0}),
    "committed": lambda consumer: consumer.committed([AT]),
    "end_offsets": lambda consumer: consumer.end_offsets([AT]),
    "seek_to_end": lambda consumer: consumer.seek_to_end([AT]),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "close": lambda consumer: consumer.close(),
}
ADMIN: dict[str, Callable[[Admin], Awaitable[object]]] = {
    "topics": lambda admin: admin.topics(),
    "create_topic": lambda admin: admin.create_topic("u"),
    "describe_groups": lambda admin: admin.describe_groups(["g"]),
    "close": lambda admin: admin.close(),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with running_broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker.bootstrap_servers


def refused(call: Callable[[Any], Awaitable[object]], client: Any) -> None:
    """It is, in a loop of this thread, with a sentence."""

    async def main() -> None:
        await asyncio.wait_for(call(client), 10)

    with pytest.raises(MisuseError, match="event loop that it was first used in"):
        asyncio.run(main())


async def refused_elsewhere(call: Callable[[Any], Awaitable[object]], client: Any) -> None:
    failed: list[BaseException] = []

    def elsewhere() -> None:
        try:
            refused(call, client)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert failed == []


@pytest.mark.parametrize("call", PRODUCER)
def test_another_threads_loop_may_not_use_a_producer_and_nothing_is_lost(call: str, servers: str) -> None:
    async def scenario() -> None:
        async with Producer(servers, transactional_id="id") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                first = await producer.send_and_wait("t", b"1", partition=0)
                await refused_elsewhere(PRODUCER[call], producer)
                second = await producer.send_and_wait("t", b"3", partition=0)
                assert second.offset == first.offset + 1

    asyncio.run(scenario())


@pytest.mark.parametrize("call", CONSUMER)
def test_another_threads_loop_may_not_use_a_consumer_which_reads_on(call: str, servers: str) -> None:
    topic = f"read-{call}"

    async def scenario() -> None:
        async with (
            Producer(servers) as producer,
            Consumer(topic, bootstrap_servers=servers, group_id=topic) as consumer,
        ):
            for value in (b"1", b"2"):
                await producer.send_and_wait(topic, value)
                assert (await asyncio.wait_for(anext(consumer), 10)).value == value
                await refused_elsewhere(CONSUMER[call], consumer)
            await consumer.commit()

    asyncio.run(scenario())


@pytest.mark.parametrize("call", ADMIN)
def test_another_threads_loop_may_not_use_an_admin_which_goes_on(call: str, servers: str) -> None:
    async def scenario() -> None:
        async with Admin(servers) as admin:
            for _ in range(2):
                await admin.topics()
                await refused_elsewhere(ADMIN[call], admin)

    asyncio.run(scenario())


def test_a_later_loop_is_another_one(servers: str) -> None:
    """The connections went with the first: a consumer that gets nothing must not look as if there were nothing."""

    async def made(client: Any, use: Callable[[Any], Awaitable[object]]) -> Any:
        await use(client)
        return client

    consumer = Consumer("t", bootstrap_servers=servers)
    admin = Admin(servers)
    asyncio.run(made(consumer, CONSUMER["poll"]))
    asyncio.run(made(admin, ADMIN["topics"]))
    refused(CONSUMER["poll"], consumer)
    refused(ADMIN["topics"], admin)


def test_a_client_is_made_anywhere_and_closed_a_second_time_anywhere(servers: str) -> None:
    async def used() -> tuple[Producer, Consumer, Admin]:
        """Of loops in which nothing is awaited it is not."""
        return Producer(servers), Consumer("t", bootstrap_servers=servers), Admin(servers)

    async def closed(*clients: Any) -> None:
        for client in clients:
            await client.close()

    producer, consumer, admin = asyncio.run(used())

    async def use() -> None:
        async with producer, consumer, admin:
            await producer.send_and_wait("t", b"1")
            await consumer.poll(100)
            await admin.topics()

    asyncio.run(use())
    asyncio.run(closed(producer, consumer, admin))


def test_a_blocking_client_may_be_called_in_any_loop(servers: str) -> None:
    """As in a notebook, where there is one around every line."""

    async def scenario() -> None:
        with (
            blocking.Producer(servers) as producer,
            blocking.Consumer(bootstrap_servers=servers, group_id="g") as consumer,
            blocking.Admin(servers) as admin,
        ):
            sent = producer.send("t", b"1", partition=0).result()
            consumer.assign([AT])
            consumer.poll(100)
            consumer.seek(AT, sent.offset)
            assert next(consumer).value == b"1"
            consumer.commit_async().result(10)
            assert "t" in admin.topics()

    asyncio.run(scenario())
