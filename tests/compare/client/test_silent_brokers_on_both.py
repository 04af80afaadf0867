"""A broker that stands still for longer than a request may take, and then goes on: nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.compare.client.playing import Node, play, take, until
from tests.compare.nodes.two_nodes import TwoNodes

pytestmark = pytest.mark.compare

#: Milliseconds that a request may take, and seconds that the broker stands still.
REQUEST_MS = 2000
SILENT = 5.0


@contextmanager
def silent(both: TwoNodes, node: Node) -> Iterator[None]:
    process = next(each.process_id for each in (both.kafka, both.ours) if each.bootstrap == node.address)
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


@pytest.mark.usefixtures("level")
def test_what_was_begun_before_it_is_done_after_it_and_once(both: TwoNodes, node: Node) -> None:
    """Its answers are lost, as they come on connections that nobody waits on any more."""

    async def scenario(node: Node) -> None:
        await node.write(b"in", b"in")
        writer = node.writer(transactional_id=f"{node.topic}-id", request_timeout_ms=REQUEST_MS)
        async with writer, node.reader(request_timeout_ms=REQUEST_MS) as reader:
            await writer.init_transactions()
            await take(reader, 2)
            await writer.begin_transaction()
            await writer.send_and_wait(node.topic, b"before", partition=1)
            with silent(both, node):
                await writer.send(node.topic, b"meanwhile", partition=1)
                waiting = [asyncio.ensure_future(writer.commit_transaction()), asyncio.ensure_future(reader.commit())]
                await asyncio.sleep(SILENT)
                assert [task for task in waiting if task.done()] == []
            await asyncio.gather(*waiting)
            (position,) = (await reader.committed([node.at(0)])).values()
            assert position is not None and position.offset == 2
            async with writer.transaction():
                await writer.send(node.topic, b"after", partition=1)
            assert await take(reader, 3) == [b"before", b"meanwhile", b"after"]

    play(scenario, node)


def test_a_rebalance_that_was_begun_before_it_ends_after_it(both: TwoNodes, node: Node) -> None:
    async def scenario(node: Node) -> None:
        async with (
            node.reader(request_timeout_ms=REQUEST_MS) as first,
            node.reader(request_timeout_ms=REQUEST_MS) as second,
        ):

            async def read() -> None:
                while True:
                    await asyncio.gather(first.poll(100), second.poll(100))

            while not first.assignment():
                await first.poll(100)
            reading = asyncio.ensure_future(read())
            await asyncio.sleep(0.1)
            with silent(both, node):
                await asyncio.sleep(SILENT)
            await until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
            assert first.assignment() != second.assignment()
            reading.cancel()

    play(scenario, node)
