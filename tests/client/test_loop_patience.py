"""How long a loop of transactions goes on trying, and what renews its patience."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.client.transaction_loop import TransactionLoop
from fencepost.simulation.loop import VirtualLoop, run

SECONDS = 10


@pytest.mark.parametrize(
    ("there_are_records", "goes_on"),
    [
        ([True] * 12, False),
        ([False] * 12, True),
        ([False] * 6 + [True] + [False] * 5, False),
        ([False, *([True] * 10), False], False),
    ],
    ids=["all the time", "never", "in between", "almost all the time"],
)
def test_only_as_long_a_time_without_any_records_makes_up_for_failures(
    there_are_records: list[bool], goes_on: bool
) -> None:
    """In the time before its last failure it looked for records once a second."""

    async def main(_: VirtualLoop) -> bool:
        consumer: Any = SimpleNamespace(check_transactional=lambda: None)
        producer: Any = SimpleNamespace(transactional_id="id")
        how: dict[str, Any] = {"max_records": 1, "linger_ms": 0, "retry_timeout_ms": SECONDS * 1000}
        loop = TransactionLoop(consumer, producer, **how)
        assert await loop._patience.pause()
        for there_are in there_are_records:
            loop._handed = cast(Any, there_are or None)
            loop._note_idleness()
            await asyncio.sleep(1)
        return await loop._patience.pause()

    assert run(main) == goes_on
