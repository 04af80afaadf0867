"""Requests that are interrupted between two of their steps, for as long as a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.broker.wire import on_the_loop, wait_until

from fencepost.broker import Broker
from fencepost.broker.network import connection, pacing
from fencepost.protocol.codec import decode_request_in_steps
from fencepost.runtime import Slices, Work


@contextmanager
def held(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Long work goes on only when this ends.  Gives what waits until so many requests have been interrupted."""
    waiting: list[None] = []
    release = on_the_loop(broker, asyncio.Event)

    go_on = pacing._let_others_go_first

    async def rest(slices: Slices) -> None:
        waiting.append(None)
        await release.wait()
        await go_on(slices)

    with monkeypatch.context() as patch:
        patch.setattr(pacing, "_let_others_go_first", rest)
        yield lambda count: wait_until(f"{count} requests are interrupted", lambda: len(waiting) == count)
        on_the_loop(broker, release.set)


@contextmanager
def decoding_held(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """No request is decoded in steps to its end before this ends.  Gives how many steps were tried."""
    tried, held = 0, True

    def slowly(*given: Any) -> Work[Any]:
        nonlocal tried
        steps = decode_request_in_steps(*given)
        while True:
            tried += 1
            if held:
                yield
                continue
            try:
                next(steps)
            except StopIteration as done:
                return done.value
            yield

    with monkeypatch.context() as patch:
        patch.setattr(connection, "decode_request_in_steps", slowly)
        yield lambda: on_the_loop(broker, lambda: tried)
        held = False
