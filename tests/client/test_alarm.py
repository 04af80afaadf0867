"""An alarm rings at the earliest time that was asked for, once, and then may be set again."""

from __future__ import annotations

import asyncio

from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.client.alarm import Alarm
from fencepost.simulation.loop import VirtualLoop, run

#: Seconds from now at which it is to ring; None: it is cancelled instead.
STEPS = st.lists(st.one_of(st.none(), st.integers(-1, 9)), min_size=1, max_size=8)


@given(rounds=st.lists(STEPS, min_size=1, max_size=4))
@example(rounds=[[3, 5]])
@example(rounds=[[5, 3]])
@example(rounds=[[3, None]])
@example(rounds=[[3, None, 5]])
@example(rounds=[[0], [0], [5, 0]])
def test_it_rings_once_at_the_earliest_time_since_it_rang_or_was_cancelled(rounds: list[list[int | None]]) -> None:
    async def main(loop: VirtualLoop) -> None:
        rang: list[float] = []
        alarm = Alarm(loop, lambda: rang.append(loop.time()))
        assert not alarm.is_set
        for steps in rounds:
            began, wanted = loop.time(), list[float]()
            for seconds in steps:
                if seconds is None:
                    alarm.cancel()
                    wanted.clear()
                else:
                    alarm.set(began + seconds)
                    wanted.append(max(seconds, 0))
                assert alarm.is_set == bool(wanted)
            await asyncio.sleep(20)
            assert [round(when - began, 3) for when in rang] == ([min(wanted)] if wanted else [])
            assert not alarm.is_set
            rang.clear()

    run(main)
