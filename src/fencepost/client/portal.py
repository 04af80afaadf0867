"""An event loop in a thread of its own, for callers that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from fencepost.client.errors import ClosedError

T = TypeVar("T")


class Portal:
    """Runs coroutines one caller waits for.  `close` it."""

    def __init__(self, name: str = "fencepost-client") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._opening = threading.Lock()
        """Between a call that begins and the end of all calls."""
        self._is_closed = False

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the loop; its result, or what it raises.  Raises ClosedError once this is closed."""
        with self._opening:
            if self._is_closed:
                work.close()
                raise _closed()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise _closed() from None
        except BaseException:
            future.cancel()
            raise

    async def elsewhere(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the loop, for somebody in another loop.  Raises ClosedError once this is closed.

        It has ended when this returns or raises, also where it is cancelled: if it was done all the same, that is told,
        and the cancellation comes with the next thing that is awaited.
        """
        here = asyncio.get_running_loop()
        ended = asyncio.Event()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(self._loop.create_task(work))
            tasks[0].add_done_callback(lambda _: here.call_soon_threadsafe(ended.set))

        with self._opening:
            if self._is_closed:
                work.close()
                raise _closed()
            self._loop.call_soon_threadsafe(begin)
        cancelled = False
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                cancelled = True
                with suppress(RuntimeError):  # it has ended meanwhile, and the loop with it
                    self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
        task = tasks[0]
        if task.cancelled():
            if cancelled:
                raise asyncio.CancelledError
            raise _closed()
        if cancelled and (current := asyncio.current_task()) is not None:
            current.cancel()
        return task.result()

    def close(self) -> None:
        """End the loop and its thread.  Other threads that wait in `call` are told that it is closed."""
        with self._opening:
            if self._is_closed:
                return
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(_cancel_the_rest(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_the_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def _closed() -> ClosedError:
    return ClosedError("the client is closed: make a new one")
