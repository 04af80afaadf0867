"""A producer that is asked from another event loop is asked for just that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fencepost.client.producer_elsewhere import ProducerElsewhere


class Asked:
    """Both a producer and its portal, which note what they are asked for."""

    transactional_id, is_initialized = "id", True

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., object]:
        return lambda *given: (name, *given)

    async def elsewhere(self, work: object) -> None:
        self.calls.append(work)


CALLS: dict[str, Callable[[ProducerElsewhere], Awaitable[None]]] = {
    "init_transactions": lambda producer: producer.init_transactions(),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "send_offsets_to_transaction": lambda producer: producer.send_offsets_to_transaction({}, "g"),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_call_is_that_of_the_producer_in_its_own_loop(name: str) -> None:
    asked: Any = Asked()
    producer = ProducerElsewhere(asked, asked)
    asyncio.run(CALLS[name](producer))  # type: ignore[arg-type]
    assert asked.calls == [(name, {}, "g") if name.startswith("send_offsets") else (name,)]
    assert (producer.transactional_id, producer.is_initialized) == ("id", True)
