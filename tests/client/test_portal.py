"""An event loop in a thread: what is called while it ends, and after."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fencepost.client.errors import ClosedError
from fencepost.client.portal import Portal


def test_who_waits_is_told_when_it_is_closed_and_so_is_who_comes_later() -> None:
    portal, begun, told = Portal(), threading.Event(), list[type[BaseException]]()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            portal.call(wait())
        except BaseException as error:
            told.append(type(error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    begun.wait()
    portal.close()
    portal.close()
    thread.join(60)
    assert told == [ClosedError]
    with pytest.raises(ClosedError):
        portal.call(wait())
