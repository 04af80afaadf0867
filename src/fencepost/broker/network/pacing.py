"""Long work of one request (`fencepost.protocol.steps`), done on the event loop without keeping anybody waiting.

All requests of a node share its slices, as other long work does: however many of them are long, somebody else is served
after each slice.  Of those whose answers may be large only a few are at work (`answer_memory`).  When the node stops,
what is left of them is not done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from fencepost.broker.network.limits import A_FEW_AT_A_TIME
from fencepost.runtime import Slices

if TYPE_CHECKING:
    from fencepost.broker.network.answer_memory import AnswerMemory
    from fencepost.broker.network.registry import Handler, Later, Reply
    from fencepost.broker.network.request_context import RequestContext
    from fencepost.broker.node import Node

T = TypeVar("T")

HandlerSteps: TypeAlias = Generator[Callable[[], Any] | Awaitable[Any] | None, Any, T]
"""As `Steps`; what it yields may also be something to be awaited, whose result is sent in."""


def begin(
    steps: HandlerSteps[Reply],
    slices: Slices,
    answers: AnswerMemory | None = None,
    interrupted: Callable[[], None] | None = None,
) -> Reply | Later:
    """Do the first step; the rest, if there is any, is to be awaited, after a call of `interrupted`.

    `answers`: where the answer takes a place, if it may be large.  To await the rest raises CancelledError if the node
    stops.
    """
    try:
        pause = next(steps)
    except StopIteration as done:
        return cast("Reply", done.value)
    if interrupted is not None:
        interrupted()
    return _go_on(steps, pause, slices, answers)


def in_steps(handler: Callable[[Any, RequestContext, Node], HandlerSteps[Reply]]) -> Handler:
    """A handler that is a plain function where its first step is all there is to do."""

    @wraps(handler)
    def begun(request: Any, context: RequestContext, node: Node) -> Reply | Later:
        is_large = request.__schema__.api in A_FEW_AT_A_TIME
        return begin(handler(request, context, node), node.slices, node.answer_memory if is_large else None)

    return begun


def awaited(what: Awaitable[T]) -> HandlerSteps[T]:
    """The result of an awaitable, with others served until it is there."""
    return cast(T, (yield what))


async def _let_others_go_first(slices: Slices) -> None:
    await slices.pause()


async def _elsewhere(work: Callable[[], T], slices: Slices) -> T:
    try:
        result = await asyncio.to_thread(work)
    except RuntimeError:  # no thread can be started
        await slices.pause()
        result = work()
    await slices.pause()  # the node may have stopped meanwhile
    return result


async def _go_on(
    steps: HandlerSteps[T],
    pause: Callable[[], Any] | Awaitable[Any] | None,
    slices: Slices,
    answers: AnswerMemory | None,
) -> T:
    """Do the rest of some steps, from what they paused with on; what they return.

    `answers`: where they take a place while they are at work; not while they wait for others, who may need one.
    """
    try:
        while True:
            is_work = pause is None or callable(pause)
            if answers is not None:
                if is_work:
                    await answers.place()
                else:
                    answers.leave(asyncio.current_task())
            if pause is None:
                await _let_others_go_first(slices)
                pause = steps.send(None)
                continue
            try:
                result = await (_elsewhere(pause, slices) if callable(pause) else pause)
            except Exception as error:
                pause = steps.throw(error)
            else:
                pause = steps.send(result)
    except StopIteration as done:
        return cast(T, done.value)
    finally:
        steps.close()
