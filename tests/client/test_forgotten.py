"""What is said of clients that go without having been closed, and not of those that were."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.client.forgetting import what_is_said_of_clients_that_go

from fencepost.client import Admin, Consumer, Producer

CLIENTS: dict[str, Callable[[], Producer | Consumer | Admin]] = {
    "producer": lambda: Producer("127.0.0.1:1"),
    "consumer": lambda: Consumer("t", bootstrap_servers="127.0.0.1:1"),
    "admin": lambda: Admin("127.0.0.1:1"),
}


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("kind", CLIENTS)
def test_who_was_closed_is_not_said_to_have_been_forgotten(kind: str, is_closed: bool) -> None:
    async def scenario() -> None:
        client = CLIENTS[kind]()
        await client.__aenter__()
        if is_closed:
            await client.close()
        del client
        await asyncio.sleep(0)

    with what_is_said_of_clients_that_go() as said:
        asyncio.run(scenario())
    assert [True for each in said if "was not closed" in each] == [True] * (not is_closed)
