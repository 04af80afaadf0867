"""Waiting for several things at once, in as many turns of the loop whatever the version of Python is.

`asyncio.gather` takes fewer turns from Python 3.12 on where some of them are done already, and `asyncio.wait_for` makes
no task any more: with these a seed would not have the same history everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def all_of(*work: Awaitable[T]) -> list[T]:
    """The results of all, in their order.  Raises what the first one that failed did; the others go on."""
    started = [asyncio.ensure_future(each) for each in work]
    await _wait(started, asyncio.FIRST_EXCEPTION)
    for each in started:
        if each.done():
            each.result()
    return [each.result() for each in started]


async def outcomes_of(*work: Awaitable[T]) -> list[T | BaseException]:
    """The result or the exception of each, in their order, when all are over."""
    started = [asyncio.ensure_future(each) for each in work]
    await _wait(started, asyncio.ALL_COMPLETED)
    return [_outcome(each) for each in started]


async def _wait(started: Sequence[asyncio.Future[T]], until: str) -> None:
    """Wait until these are done; if it is cancelled they all are."""
    if not started:
        return
    try:
        await asyncio.wait(started, return_when=until)
    except asyncio.CancelledError:
        for each in started:
            each.cancel()
        raise


def _outcome(over: asyncio.Future[Any]) -> Any:
    if over.cancelled():
        return asyncio.CancelledError()
    error = over.exception()
    return over.result() if error is None else error
