"""Runs Python's garbage collector in the process of a node so that nobody waits for it.

What a node holds lives long, and much of it: 10,000 partitions are a quarter of a million objects.  Python looks at all
of them whenever their number has grown by a quarter, in one step of up to a quarter of a second.  Here each object is
looked at a few times, while it is young, and then set aside (gc.freeze): it goes when the last reference to it does, as
all that a node holds does.  What is set aside and then becomes a cycle that nobody refers to, as the transport of a
closed connection does, stays until everything is looked at again: when nobody has asked anything for a while, nor waits
for an answer, and where that never happens once a day.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, Final

_THRESHOLDS: Final = (700, 10, 2)
"""Python's own, but that the oldest generation is looked at after three rounds of the one before, not eleven.

So some 25,000 objects at once at the most.
"""
LOOK_SECONDS: Final = 10
"""Seconds without a request after which everything may be looked at, as most likely nobody waits."""
LONGEST_SECONDS: Final = 86_400


class GarbageCollection:
    """The collector of this process, from `start` to `stop`.

    `requests`: how many requests have come so far.  `under_way`: whether one of them has no answer yet.  Call `start`
    where a loop runs.
    """

    def __init__(self, requests: Callable[[], int], under_way: Callable[[], bool]) -> None:
        self._requests = requests
        self._under_way = under_way
        self._before = gc.get_threshold()
        self._seen = 0
        self._was_under_way = False
        self._is_set_aside = False
        """Whether objects were set aside since everything was looked at."""
        self._complete_since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Set all present objects aside, and collect from now on."""
        gc.freeze()
        gc.collect()  # of nothing: Python puts the next one off until there is a quarter as much as at the last
        gc.set_threshold(*_THRESHOLDS)
        gc.callbacks.append(self._collected)
        gc.enable()
        self._complete_since = asyncio.get_running_loop().time()
        self._look_later()

    def stop(self) -> None:
        """Leave the collector to Python again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.callbacks.remove(self._collected)
            gc.set_threshold(*self._before)
            gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == 2:
            gc.freeze()
            self._is_set_aside = True

    def _look_later(self) -> None:
        self._seen, self._was_under_way = self._requests(), self._under_way()
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        is_idle = self._requests() == self._seen and not (self._was_under_way or self._under_way())
        if self._is_set_aside and (is_idle or now - self._complete_since >= LONGEST_SECONDS):
            gc.unfreeze()
            gc.collect()  # which sets aside what it leaves
            gc.collect()  # of nothing, as at the start
            self._is_set_aside = False
            self._complete_since = now
        self._look_later()
