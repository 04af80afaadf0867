"""Who stops waiting for a call of a transaction: the next one has nothing of it, at each transaction.version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.compare.client.playing import Node, play, take

from fencepost.client import Producer, connection
from fencepost.client.cluster import Cluster
from fencepost.client.errors import MisuseError
from fencepost.protocol.codec import encode_request
from fencepost.protocol.messages import TxnOffsetCommitRequest

pytestmark = pytest.mark.compare

ROUNDS = 10


def transactional(node: Node, **options: Any) -> Producer:
    return node.writer(transactional_id=f"{node.topic}-id", **options)


async def interrupted(work: Awaitable[object], at_request: str) -> None:
    """Begin it, and wait for it no longer once this request of it is on its way."""
    is_sent = asyncio.Event()

    def encode_and_tell(message: Any, *rest: Any) -> bytes:
        if type(message).__name__ == f"{at_request}Request":
            is_sent.set()
        return encode_request(message, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "encode_request", encode_and_tell)
        task = asyncio.ensure_future(work)
        await is_sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def fail_in(writer: Producer, node: Node) -> None:
    async with writer.transaction():
        await (await writer.send(node.topic, b"aborted", partition=0))
        raise ZeroDivisionError


@contextmanager
def first_commit_of_offsets_held_back() -> Iterator[Callable[[], Awaitable[object]]]:
    """It is on its way for as long as its caller waits, and arrives when what is given is called."""
    call, held = Cluster.call, list[Awaitable[object]]()

    async def holding(cluster: Cluster, node: int, request: Any, **how: Any) -> Any:
        if not isinstance(request, TxnOffsetCommitRequest) or held:
            return await call(cluster, node, request, **how)
        held.append(call(cluster, node, request, **how))
        return await asyncio.get_running_loop().create_future()

    async def arrives() -> object:
        return await held[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "call", holding)
        yield arrives


async def committed_offset(node: Node) -> int | None:
    async with node.reader() as reader:
        (found,) = (await reader.committed([node.at(0)])).values()
    return None if found is None else found.offset


@pytest.mark.usefixtures("level")
def test_offsets_of_an_aborted_transaction_are_not_committed_by_the_next_one(node: Node) -> None:
    async def scenario(node: Node) -> None:
        async with transactional(node) as writer:
            await writer.init_transactions()
            for number in range(ROUNDS):
                await writer.begin_transaction()
                await writer.send(node.topic, b"aborted", partition=0)
                lost = writer.send_offsets_to_transaction({node.at(0): 1000 + number}, node.group)
                await interrupted(lost, "TxnOffsetCommit")
                await writer.abort_transaction()
                async with writer.transaction():
                    await writer.send(node.topic, b"%d" % number, partition=0)
                assert await committed_offset(node) is None
        async with node.reader() as reader:
            assert await take(reader, ROUNDS) == [b"%d" % number for number in range(ROUNDS)]

    play(scenario, node)


@pytest.mark.usefixtures("level")
def test_offsets_that_arrive_after_their_transaction_was_aborted_are_not_committed_by_the_next_one(node: Node) -> None:
    async def scenario(node: Node) -> None:
        with first_commit_of_offsets_held_back() as arrives:
            async with transactional(node) as writer:
                await writer.init_transactions()
                await writer.begin_transaction()
                await (await writer.send(node.topic, b"aborted", partition=0))
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await writer.send_offsets_to_transaction({node.at(0): 1000}, node.group)
                await writer.abort_transaction()
                await writer.begin_transaction()
                await (await writer.send(node.topic, b"kept", partition=0))
                await arrives()
                await writer.commit_transaction()
        assert await committed_offset(node) is None
        async with node.reader() as reader:
            assert await take(reader, 1) == [b"kept"]

    play(scenario, node)


@pytest.mark.usefixtures("level")
def test_of_two_commits_at_once_one_is_refused_and_none_commits_the_next_transaction(node: Node) -> None:
    async def scenario(node: Node) -> None:
        async with transactional(node) as writer:
            await writer.init_transactions()
            for number in range(ROUNDS):
                await writer.begin_transaction()
                await writer.send(node.topic, b"%d" % number, partition=0)
                both = [writer.commit_transaction(), writer.commit_transaction()]
                first, second = await asyncio.gather(*both, return_exceptions=True)
                assert first is None and isinstance(second, MisuseError)
                await writer.begin_transaction()
                await (await writer.send(node.topic, b"aborted", partition=0))
                await writer.abort_transaction()
        async with node.reader() as reader:
            assert await take(reader, ROUNDS) == [b"%d" % number for number in range(ROUNDS)]

    play(scenario, node)


@pytest.mark.usefixtures("level")
def test_a_commit_that_nobody_waited_for_is_made_by_calling_it_again_and_reaches_no_further(node: Node) -> None:
    async def scenario(node: Node) -> None:
        async with transactional(node) as writer:
            await writer.init_transactions()
            for number in range(ROUNDS):
                await writer.begin_transaction()
                await writer.send(node.topic, b"%d" % number, partition=0)
                await interrupted(writer.commit_transaction(), "EndTxn")
                await writer.commit_transaction()
                with pytest.raises(ZeroDivisionError):
                    await fail_in(writer, node)
        async with node.reader() as reader:
            assert await take(reader, ROUNDS) == [b"%d" % number for number in range(ROUNDS)]

    play(scenario, node)
