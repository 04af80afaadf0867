"""What is said of clients that go without having been closed, and not of those that were."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest

from fencepost.client import Admin, Consumer, Producer

CLIENTS: dict[str, Callable[[], Producer | Consumer | Admin]] = {
    "producer": lambda: Producer("127.0.0.1:1"),
    "consumer": lambda: Consumer("t", bootstrap_servers="127.0.0.1:1"),
    "admin": lambda: Admin("127.0.0.1:1"),
}


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("kind", CLIENTS)
def test_who_was_closed_is_not_said_to_have_been_forgotten(
    kind: str, is_closed: bool, recwarn: pytest.WarningsRecorder
) -> None:
    async def scenario() -> None:
        client = CLIENTS[kind]()
        await client.__aenter__()
        if is_closed:
            await client.close()
        del client
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(scenario())
    said = [str(each.message) for each in recwarn if "was not closed" in str(each.message)]
    assert len(said) == (not is_closed)
