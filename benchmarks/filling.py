"""What a node is given before it is measured: work on a broker of this process, without the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from fencepost.broker import Broker

JOURNALLED = "journalled"
"""A topic of one partition that is there while a node is filled."""


async def fill(data: Path, work: Callable[[Broker], Iterator[None]], *topics: str) -> None:
    """Work on a node that has these topics too, each of one partition, and stop it."""
    async with Broker(data=data, flush="os") as broker:
        for name in (*topics, JOURNALLED):
            broker.node.topics.create_at_once(name, 1)
        await broker.node.ensure_coordinator("__consumer_offsets")
        await broker.node.ensure_coordinator("__transaction_state")
        await asyncio.sleep(0.1)
        for number, _ in enumerate(work(broker)):
            if number % 1000 == 0:
                await asyncio.sleep(0)
