"""What was told to a process before anybody listened counts as well, and when all is done nothing counts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from fencepost.cli.stop_signals import STOP, StopSignals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The tests' own are there again afterwards."""
    former = {number: signal.getsignal(number) for number in STOP}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP)
def test_who_listens_last_is_told_whenever_the_signal_comes(number: signal.Signals) -> None:
    done: list[str] = []

    async def main(signals: StopSignals) -> None:
        signals.when_one_comes(lambda: done.append("first"))
        await asyncio.sleep(0)
        if len(done) == 0:
            signal.raise_signal(number)
            await asyncio.sleep(0.01)
        signals.when_one_comes(lambda: done.append("second"))
        await asyncio.sleep(0)

    asyncio.run(main(StopSignals()))
    assert done == ["first", "second"]
    done.clear()
    early = StopSignals()
    signal.raise_signal(number)
    asyncio.run(main(early))
    assert done == ["first", "second"]


@pytest.mark.parametrize("number", STOP)
def test_later_ones_do_not_interrupt_what_the_first_one_began(number: signal.Signals) -> None:
    """As a task that is cancelled, and stops something then."""

    async def stops() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            signal.raise_signal(number)
            await asyncio.sleep(0.01)
        return "stopped"

    async def main(signals: StopSignals) -> str:
        stopping = asyncio.ensure_future(stops())
        await asyncio.sleep(0)
        signals.when_one_comes(stopping.cancel)
        signal.raise_signal(number)
        return await stopping

    assert asyncio.run(main(StopSignals())) == "stopped"


@pytest.mark.parametrize("number", STOP)
def test_behind_the_end_of_the_event_loop_nothing_happens(number: signal.Signals) -> None:
    async def main() -> None:
        signals.when_one_comes(lambda: pytest.fail("nobody is there any more"))

    signals = StopSignals()
    asyncio.run(main())
    signal.raise_signal(number)
    signals.ignore()
    assert all(signal.getsignal(each) is signal.SIG_IGN for each in STOP)
    signal.raise_signal(number)
