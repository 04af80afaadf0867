"""Long work of one request (`fencepost.protocol.steps`), done on the event loop without keeping anybody waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar, cast

from fencepost.protocol.steps import Steps

T = TypeVar("T")


class Done(NamedTuple):
    """The result of work that was short."""

    result: Any


def begin(steps: Steps[T]) -> Done | Coroutine[Any, Any, T]:
    """Do the first step; the rest, if there is any, is to be awaited."""
    try:
        pause = next(steps)
    except StopIteration as done:
        return Done(done.value)
    return _go_on(steps, pause)


async def _let_others_go_first() -> None:
    await asyncio.sleep(0)


async def _go_on(steps: Steps[T], pause: Callable[[], Any] | None) -> T:
    try:
        while True:
            if pause is None:
                await _let_others_go_first()
                pause = steps.send(None)
            else:
                try:
                    result = await asyncio.to_thread(pause)
                except Exception as error:
                    pause = steps.throw(error)
                else:
                    pause = steps.send(result)
    except StopIteration as done:
        return cast(T, done.value)
    finally:
        steps.close()
