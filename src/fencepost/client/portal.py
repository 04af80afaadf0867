"""An event loop in a thread of its own, for callers that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fencepost.client.errors import ClosedError, MisuseError
from fencepost.client.home import HomeProcess

T = TypeVar("T")


def in_background(work: Callable[[], None], name: str) -> None:
    """Do `work` in a daemon thread of its own: nobody waits for it, not even the end of the process."""
    threading.Thread(target=work, name=name, daemon=True).start()


class Flag:
    """Is set once, and waited for by one thread, which may be interrupted at any time and wait again.

    A `threading.Event` may stay locked for good by who is interrupted while he waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._is_set = False

    def set(self) -> None:
        self._is_set = True
        self._lock.release()

    def wait(self) -> None:
        while not self._is_set:
            self._lock.acquire()


class Portal:
    """An event loop in a thread of its own, in which callers in other threads run coroutines.  `close` it."""

    def __init__(self, name: str = "fencepost-client") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._opening = threading.RLock()  # a signal's handler may call while its thread does
        """Held while a call begins, and while the portal is closed: no call begins after that."""
        self._is_closed = False
        self._ending: asyncio.Task[None] | None = None
        self._last: asyncio.Task[None] | None = None
        """The task of `abandon`; None: it was not called."""
        self._home = HomeProcess()
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether this is the process that it was made in, and no forked child."""
        return self._home.is_here

    def time(self) -> float:
        """The loop's clock, in seconds.  Raises MisuseError in a forked child."""
        self._home.check()
        return self._loop.time()

    def check(self) -> None:
        """Raises MisuseError in a forked child."""
        self._home.check()

    def wake(self, what: Callable[[], object]) -> None:
        """Call `what` in the loop soon, before later calls.  Raises ClosedError once this is closed."""
        with self._opening:
            if self._is_closed:
                raise _closed()
            self._loop.call_soon_threadsafe(what)

    def call(self, work: Coroutine[Any, Any, T], in_vain: Callable[[T], object] | None = None) -> T:
        """Run a coroutine in the loop; its result.  Raises its error, and ClosedError once this is closed.

        Raises MisuseError in the loop's own thread, which would wait for itself.
        Where the caller is interrupted (Ctrl-C) it is cancelled, and has ended when this raises, unless that is
        interrupted too.  If it had a result by then, which nobody will see, `in_vain` is called with that in the loop.
        """
        self._check_thread(work.close)
        tasks, ended, settled = list[asyncio.Task[T]](), Flag(), Flag()
        self._check_open(work)
        try:
            self._begin(work, tasks, ended.set)
            ended.wait()
            return _result(tasks[0])
        except BaseException:
            if self._give_up(work, tasks, ended.set, in_vain, settled.set):
                ended.wait()
                settled.wait()
            else:
                self._thread.join()  # whatever was begun ends with it, and there is nobody left for its result
            raise

    def _run(self) -> None:
        """Run the loop, all that its thread does; what closes it there is interrupted by nobody.

        A SystemExit or KeyboardInterrupt that a function of the user's raises there stops a loop, and everybody would
        wait for ever.  Whoever waits for the task gets it, in his own thread.
        """
        try:
            while self._ending is None or not self._ending.done():
                with suppress(SystemExit, KeyboardInterrupt):
                    self._loop.run_forever()
        finally:
            self._loop.close()

    async def elsewhere(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop for a caller in another one; its result.  Raises ClosedError if this is closed.

        It has ended when this returns or raises, also where it is cancelled: if it was done all the same, that is told,
        and the cancellation comes with the next thing that is awaited.
        """
        here, ended, tasks = asyncio.get_running_loop(), asyncio.Event(), list[asyncio.Task[T]]()
        self._check_open(work)
        self._begin(work, tasks, lambda: here.call_soon_threadsafe(ended.set))
        cancelled = False
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                cancelled = True
                self._cancel(tasks)
        if cancelled and tasks[0].cancelled():
            raise asyncio.CancelledError
        if cancelled and (current := asyncio.current_task()) is not None:
            current.cancel()
        return _result(tasks[0])

    def _check_thread(self, otherwise: Callable[[], object] = lambda: None) -> None:
        if threading.get_ident() == self._thread.ident:
            otherwise()
            raise MisuseError(
                "a blocking client was called in its own thread, as by a partitioner, an interceptor or a log handler "
                "that it calls: that would wait for itself. Call it in another thread, or use another client"
            )

    def _check_open(self, work: Coroutine[Any, Any, T]) -> None:
        if not self._home.is_here:
            work.close()
            self._home.check()
        if self._is_closed:
            work.close()
            raise _closed()

    def _begin(self, work: Coroutine[Any, Any, T], tasks: list[asyncio.Task[T]], ended: Callable[[], object]) -> None:
        """Have a coroutine run in the loop: `tasks` has its task then, and `ended` is called there when it has ended.

        Raises ClosedError once this is closed.
        """

        def begin() -> None:
            tasks.append(self._loop.create_task(work))
            tasks[0].add_done_callback(lambda _: ended())

        with self._opening:
            if self._is_closed:
                work.close()
                raise _closed()
            self._loop.call_soon_threadsafe(begin)

    def _cancel(self, tasks: list[asyncio.Task[T]]) -> None:
        with suppress(RuntimeError):  # it has ended meanwhile, and the loop with it
            self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())

    def _give_up(
        self,
        work: Coroutine[Any, Any, T],
        tasks: list[asyncio.Task[T]],
        ended: Callable[[], object],
        in_vain: Callable[[T], object] | None,
        settled: Callable[[], object],
    ) -> bool:
        """Cancel a coroutine, or see that it does not begin; False: this is closed.

        `ended` and `settled` are called when it has ended, and when what it did in vain was dealt with.
        """

        def settle(task: asyncio.Task[T]) -> None:
            try:
                if in_vain is not None and not task.cancelled() and task.exception() is None:
                    in_vain(task.result())
            finally:
                settled()

        def give_up() -> None:
            if not tasks:  # its caller was interrupted before
                work.close()
                ended()
                settled()
                return
            tasks[0].cancel()
            if tasks[0].done():
                settle(tasks[0])
            else:
                tasks[0].add_done_callback(settle)

        with self._opening:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(give_up)
        return not self._is_closed

    def abandon(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the coroutine of `last` in the loop, which then ends with its thread; return at once.  In any thread.

        Until that has ended other threads may call.  Nothing the second time, once this is closed, and in a
        forked child.
        """
        if not self._home.is_here:
            return
        with self._opening:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(self._begin_last, last)

    def _begin_last(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._last is None:
            self._last = self._loop.create_task(self._end_after(last()))

    async def _end_after(self, last: Coroutine[Any, Any, None]) -> None:
        try:
            await last
        finally:
            with self._opening:
                self._is_closed = True
            self._end()

    def close(self) -> None:
        """End the loop and its thread.  Other threads that wait in `call` get a ClosedError.

        Where it was interrupted another call goes on with it.  Nothing in a forked child, which has neither.
        """
        if not self._home.is_here:
            return
        self._check_thread()
        with self._opening:
            self._is_closed = True
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join()

    def _end(self) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(_cancel_the_rest())
            self._ending.add_done_callback(lambda _: self._loop.stop())


async def _cancel_the_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def _result(task: asyncio.Task[T]) -> T:
    if task.cancelled():
        raise _closed()
    return task.result()


def _closed() -> ClosedError:
    return ClosedError("the client is closed: make a new one")
