"""An event loop in a thread: what is called while it ends, and after."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from fencepost.client.errors import ClosedError, MisuseError
from fencepost.client.portal import Portal


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Also where whoever started these tests has the signal ignored, as a shell does in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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


def test_what_is_awaited_from_another_loop_has_ended_when_that_is_told() -> None:
    portal, log = Portal(), list[str]()

    async def work(seconds: float) -> str:
        try:
            await asyncio.sleep(seconds)
            return "done"
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
            log.append("cleaned up")
            raise

    async def elsewhere() -> None:
        assert await portal.elsewhere(work(0)) == "done"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await portal.elsewhere(work(100))
        assert log == ["cleaned up"]
        waiting = asyncio.ensure_future(portal.elsewhere(work(100)))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(portal.close)
        for waits in (waiting, portal.elsewhere(work(0))):
            with pytest.raises(ClosedError):
                await waits

    asyncio.run(elsewhere())


def test_what_was_done_while_it_was_cancelled_is_told_and_the_cancellation_comes_later() -> None:
    portal, told = Portal(), list[str]()

    async def stubborn() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return "done"
        return "never"

    async def elsewhere() -> None:
        told.append(await portal.elsewhere(stubborn()))
        await asyncio.sleep(0)
        told.append("not cancelled")

    async def main() -> None:
        task = asyncio.ensure_future(elsewhere())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    portal.close()
    assert told == ["done"]


def test_who_is_interrupted_waits_for_what_was_begun_to_end() -> None:
    portal, log = Portal(), list[str]()

    async def work() -> None:
        main = threading.main_thread().ident
        assert main is not None
        threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGINT]).start()
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.05)
            log.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        portal.call(work())
    assert log == ["cleaned up"]
    portal.close()


@pytest.mark.parametrize("ends_with", ["a result", "an error", "nothing"])
@pytest.mark.parametrize("interruptions", [1, 2])
def test_a_result_that_nobody_sees_is_told(
    ends_with: str, interruptions: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The work ends while it is cancelled, because its caller was interrupted; perhaps when nobody waits any more."""
    portal, told, main = Portal(), list[str](), threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        signal.pthread_kill(main, signal.SIGINT)

    async def work() -> str:
        threading.Timer(0.05, interrupt).start()
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            if interruptions == 2:
                interrupt()
            await asyncio.sleep(0.1)
            if ends_with == "an error":
                raise ZeroDivisionError from None
            if ends_with == "nothing":
                raise
        return "done"

    async def nothing() -> None:
        await asyncio.sleep(0.3)

    with pytest.raises(KeyboardInterrupt):
        portal.call(work(), told.append)
    portal.call(nothing())
    assert told == (["done"] if ends_with == "a result" else [])
    assert not caplog.records, "an error that nobody sees is one of what was given up"
    portal.close()


def test_whoever_is_interrupted_waits_no_longer_where_what_is_told_of_it_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    portal, main = Portal(), threading.main_thread().ident
    assert main is not None
    # Who would wait for ever is interrupted again.
    again = threading.Timer(20, signal.pthread_kill, (main, signal.SIGINT))
    again.start()

    async def work() -> str:
        threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(100)
        return "done"

    def refuse(result: str) -> None:
        raise ZeroDivisionError(result)

    try:
        with pytest.raises(KeyboardInterrupt):
            portal.call(work(), refuse)
        assert again.is_alive(), "it waited until it was interrupted again"
    finally:
        again.cancel()
    portal.call(asyncio.sleep(0))
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]
    portal.close()


def test_an_error_and_a_result_that_are_seen_are_not_told() -> None:
    portal, told = Portal(), list[object]()

    async def work(divisor: int) -> float:
        return 1 / divisor

    with pytest.raises(ZeroDivisionError):
        portal.call(work(0), told.append)
    assert portal.call(work(1), told.append) == 1
    portal.close()
    assert told == []


def test_who_calls_in_the_thread_of_the_loop_is_told_that_he_would_wait_for_himself() -> None:
    portal = Portal()

    async def work() -> str:
        with pytest.raises(MisuseError, match="would wait for itself"):
            portal.call(asyncio.sleep(0))
        return "it goes on"

    assert portal.call(work()) == "it goes on"
    portal.close()


def test_what_is_woken_is_called_in_the_loop_before_what_is_asked_later_until_it_is_closed() -> None:
    portal, told = Portal(), list[object]()

    async def work() -> None:
        told.append("work")

    async def elsewhere() -> None:
        portal.wake(lambda: told.append(threading.current_thread().name))
        await portal.elsewhere(work())

    portal.wake(lambda: told.append(threading.current_thread().name))
    portal.call(work())
    asyncio.run(elsewhere())
    portal.close()
    assert told == ["fencepost-client", "work"] * 2
    with pytest.raises(ClosedError):
        portal.wake(lambda: told.append("closed"))


def interrupted_at(step: int, call: Callable[[], object]) -> bool:
    """Make a call that is interrupted after so many calls of functions; whether it came to that.

    These are the places where Python looks for signals.
    """
    left = step

    def profile(_: Any, event: str, __: Any) -> None:
        nonlocal left
        if event in ("call", "c_return"):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def work() -> None:
        try:
            sys.setprofile(profile)
            call()
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), f"it hangs when it is interrupted at step {step}"
    return left <= 0


#: An interruption before a call begins, or in what Python calls when something is collected.
pytestmark = pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited:RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def test_whenever_a_caller_is_interrupted_he_goes_on_and_no_result_is_lost() -> None:
    portal, done, told, seen = Portal(), list[int](), list[int](), list[int]()

    async def work(step: int) -> int:
        await asyncio.sleep(0)
        done.append(step)
        return step

    for step in count(1):
        if not interrupted_at(step, lambda step=step: seen.append(portal.call(work(step), told.append))):  # type: ignore[misc]
            break
        again = threading.Thread(target=lambda: portal.call(asyncio.sleep(0)), daemon=True)
        again.start()
        again.join(20)
        assert not again.is_alive(), f"the next one hangs after an interruption at step {step}"
    assert step > 20
    assert sorted(seen + told) == sorted(done)
    portal.close()


def test_whenever_the_end_is_interrupted_the_thread_ends_and_who_waits_is_told() -> None:
    for step in count(1):
        portal, told, begun = Portal(), list[type[BaseException]](), threading.Event()

        async def wait(begun: threading.Event = begun) -> None:
            begun.set()
            await asyncio.Event().wait()

        def call(portal: Portal = portal, told: list[type[BaseException]] = told, work: Any = wait) -> None:
            try:
                portal.call(work())
            except BaseException as error:
                told.append(type(error))

        waits = threading.Thread(target=call, daemon=True)
        waits.start()
        begun.wait()
        interrupted = interrupted_at(step, portal.close)
        portal.close()
        waits.join(20)
        portal._thread.join(20)
        assert told == [ClosedError] and not portal._thread.is_alive(), f"after an interruption at step {step}"
        if not interrupted:
            break
    assert step > 10


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_would_end_the_process_is_raised_by_who_called_and_ends_the_loop_of_nobody(
    error: type[BaseException],
) -> None:
    """As where a function of the user's calls sys.exit(): asyncio stops its loop for it."""
    portal, told = Portal(), list[object]()

    async def end() -> None:
        raise error

    async def work() -> str:
        return "done"

    def call() -> None:
        with suppress(error):
            portal.call(end())
            told.append("not raised")
        told.append(portal.call(work()))
        portal.close()
        told.append("closed")

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(60)
    assert told == ["done", "closed"]


def test_it_ends_also_where_that_is_raised_while_it_ends() -> None:
    portal, begun = Portal(), threading.Event()

    async def end_when_cancelled() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            raise SystemExit

    def call() -> None:
        with suppress(SystemExit):
            portal.call(end_when_cancelled())

    caller, closer = threading.Thread(target=call, daemon=True), threading.Thread(target=portal.close, daemon=True)
    caller.start()
    begun.wait()
    closer.start()
    closer.join(60)
    caller.join(60)
    assert not (closer.is_alive() or caller.is_alive())


def test_what_is_told_of_a_result_that_nobody_sees_has_been_told_when_the_caller_goes_on() -> None:
    portal, told, main = Portal(), list[str](), threading.main_thread().ident
    assert main is not None

    async def work() -> str:
        threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(100)
        return "done"

    def tell(result: str) -> None:
        time.sleep(0.1)
        told.append(result)

    with pytest.raises(KeyboardInterrupt):
        portal.call(work(), tell)
    assert told == ["done"]
    portal.close()
