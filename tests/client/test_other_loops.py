"""A producer that is used from another event loop than its own says so, and goes on in its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from fencepost.broker import running_broker
from fencepost.client import MisuseError, Producer

CALLS: dict[str, Callable[[Producer], Awaitable[object]]] = {
    "send": lambda producer: producer.send("t", b"2"),
    "send_many": lambda producer: producer.send_many("t", [b"2"]),
    "flush": lambda producer: producer.flush(),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
    "close": lambda producer: producer.close(),
}


@pytest.mark.parametrize("call", CALLS)
def test_another_threads_loop_is_refused_and_nothing_is_lost(call: str) -> None:
    refused: list[BaseException] = []

    def elsewhere(producer: Producer) -> None:
        async def main() -> None:
            await CALLS[call](producer)

        try:
            asyncio.run(main())
        except MisuseError as error:
            refused.append(error)

    async def scenario(servers: str) -> None:
        async with Producer(servers, transactional_id="id") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("t", b"1")
                thread = threading.Thread(target=elsewhere, args=(producer,))
                thread.start()
                await asyncio.to_thread(thread.join)
                assert (await producer.send_and_wait("t", b"3")).offset == 1
        assert "event loop" in str(refused)

    with running_broker() as broker:
        asyncio.run(scenario(broker.bootstrap_servers))
