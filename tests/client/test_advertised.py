"""Brokers whose advertised.listeners nobody reaches: every client says which address it was told, and what happened."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.wire import SETTINGS

from fencepost.broker import Broker
from fencepost.client import Admin, ClientError, Consumer, NewTopic, Producer, TopicPartition, blocking
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ConnectionLostError, UnreachableError

SOON: dict[str, Any] = {"max_block_ms": 1000, "request_timeout_ms": 1000}


def sends(**options: Any) -> Callable[[str], Awaitable[object]]:
    async def scenario(address: str) -> object:
        async with Producer(address, delivery_timeout_ms=1000, **SOON, **options) as producer:
            if "transactional_id" in options:
                await producer.init_transactions()
            return await (await producer.send("t", b"v", partition=0))

    return scenario


async def sends_many(address: str) -> object:
    async with Producer(address, delivery_timeout_ms=1000, **SOON) as producer:
        return await (await producer.send_many("t", [b"v", b"w"]))


async def reads(address: str) -> object:
    async with Consumer("t", bootstrap_servers=address, **SOON) as consumer:
        return await consumer.poll(5000)


def joins(group_protocol: str) -> Callable[[str], Awaitable[object]]:
    async def scenario(address: str) -> object:
        options: dict[str, Any] = {"group_id": "g", "group_protocol": group_protocol, **SOON}
        async with Consumer("t", bootstrap_servers=address, **options) as consumer:
            return await consumer.poll(5000)

    return scenario


async def commits(address: str) -> object:
    async with Consumer(bootstrap_servers=address, group_id="g", **SOON) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        return await consumer.committed([TopicPartition("t", 0)])


async def administers(address: str) -> None:
    async with Admin(address, **SOON) as admin:
        await admin.create_topics([NewTopic("u")])


async def sends_in_a_thread(address: str) -> object:
    def sends() -> object:
        with blocking.Producer(address, delivery_timeout_ms=1000, **SOON) as producer:
            return producer.send("t", b"v", partition=0).result()

    return await asyncio.to_thread(sends)


CALLS = {
    "producer": sends(),
    "acks 0": sends(acks=0, enable_idempotence=False),
    "acks 1": sends(acks=1, enable_idempotence=False),
    "transactions": sends(transactional_id="id"),
    "many": sends_many,
    "consumer": reads,
    "group": joins("consumer"),
    "classic group": joins("classic"),
    "offsets": commits,
    "admin": administers,
    "blocking": sends_in_a_thread,
}


@pytest.mark.parametrize("advertised", ["nowhere.test:9092", "127.0.0.1:1"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_who_is_told_an_address_that_nobody_reaches_says_which_and_why(
    call: Callable[[str], Awaitable[object]], advertised: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks_up = socket.getaddrinfo

    def getaddrinfo(host: Any, *how: Any, **more: Any) -> Any:
        if host == "nowhere.test":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return looks_up(host, *how, **more)

    async def scenario() -> None:
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        async with Broker(data=tmp_path, settings=SETTINGS, advertised=advertised) as broker:
            with pytest.raises(ClientError) as told:
                await call(f"127.0.0.1:{broker.port}")
        said = str(told.value)
        assert f"{advertised} cannot be reached: " in said
        assert ("Name or service not known" if "nowhere" in advertised else "127.0.0.1") in said
        assert "advertised.listeners" in said
        assert "\n" not in said

    asyncio.run(scenario())


def test_an_address_of_bootstrap_servers_is_nobodys_word() -> None:
    async def scenario() -> str:
        cluster = Cluster("127.0.0.1:1", client_id="client")
        with pytest.raises(UnreachableError) as told:
            await cluster.any_connection()
        await cluster.close()
        return str(told.value)

    assert "advertised" not in asyncio.run(scenario())


@pytest.mark.parametrize("topic", ["t", "not there"])
def test_who_is_given_no_producer_id_or_leader_in_time_says_what_was_met_last(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All brokers are gone by the time that the producer asks for its id, or for a leader."""

    async def lost(*_: object) -> None:
        raise ConnectionLostError("the connection to the moon was lost")

    async def scenario() -> str:
        async with Producer(
            "127.0.0.1:1", max_block_ms=60_000, delivery_timeout_ms=300, enable_idempotence=topic == "t"
        ) as producer:
            monkeypatch.setattr(Cluster, "any_connection", lost)
            producer._cluster.nodes = {0: ("127.0.0.1", 1)}
            sender = producer._sending.sender
            assert sender is not None
            future, _ = sender.append((topic, 0), 0, None, b"v", ())
            with pytest.raises(ClientError) as told:
                await future
            return str(told.value)

    said = asyncio.run(scenario())
    assert "the connection to the moon was lost" in said
    assert topic != "t" or "no producer id was given: " in said
