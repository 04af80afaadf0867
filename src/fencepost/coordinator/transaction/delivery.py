"""Gets markers to every partition that needs one, trying again until it has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fencepost.coordinator.transaction.markers import Markers, Results
from fencepost.coordinator.transaction.shards import Completion
from fencepost.node_log import get_logger
from fencepost.protocol.types import Milliseconds
from fencepost.runtime import Clock

logger = get_logger(__name__)


class Delivery:
    """The completions whose markers are not all written.

    `finished` is told when the last marker of a completion is written later than at the first attempt; it answers
    false if it wants to be told again.
    """

    def __init__(self, markers: Markers, clock: Clock, finished: Callable[[Completion, Milliseconds], bool]) -> None:
        self._markers = markers
        self._clock = clock
        self._finished = finished
        self._unfinished: dict[Completion, None] = {}
        self._tasks: dict[asyncio.Future[Results], None] = {}

    def __len__(self) -> int:
        return len(self._unfinished)

    def start(self, completion: Completion, now: Milliseconds) -> bool:
        """Try at once to write the markers.  True if every one is written; else that goes on by itself."""
        if not completion.waiting:
            return True
        self._unfinished[completion] = None
        if self._attempt(completion, now):
            del self._unfinished[completion]
            return True
        return False

    def keep(self, completion: Completion, now: Milliseconds) -> None:
        """Have `finished` told again later of a completion whose markers are all written."""
        completion.postpone(now)
        self._unfinished[completion] = None

    def drop(self, completion: Completion) -> None:
        """Forget a completion: results that come later are for nobody."""
        self._unfinished.pop(completion, None)

    def retry(self, now: Milliseconds, *, at_once: bool = False) -> None:
        """Try the markers again that are due, or all that are not being answered now."""
        for completion in list(self._unfinished):
            if completion in self._unfinished and (completion.is_due(now) or (at_once and not completion.in_flight)):
                self._advance(completion, now)

    def _advance(self, completion: Completion, now: Milliseconds) -> None:
        if not completion.waiting or self._attempt(completion, now):
            self._conclude(completion, now)

    def _conclude(self, completion: Completion, now: Milliseconds) -> None:
        if self._finished(completion, now):
            self._unfinished.pop(completion, None)
        else:
            completion.postpone(now)

    def _attempt(self, completion: Completion, now: Milliseconds) -> bool:
        """Write the marker once to all partitions that wait.  True if none waits any more."""
        completion.postpone(now)
        results = self._markers.write(completion.marker, list(completion.waiting))
        if isinstance(results, dict):
            self._settle(completion, results)
            return not completion.waiting
        self._await(completion, results)
        return False

    def _await(self, completion: Completion, results: Awaitable[Results]) -> None:
        completion.in_flight = True
        task = asyncio.ensure_future(results)
        self._tasks[task] = None

        def answered(task: asyncio.Future[Results]) -> None:
            self._tasks.pop(task, None)
            completion.in_flight = False
            error = None if task.cancelled() else task.exception()
            if completion not in self._unfinished:
                return
            if task.cancelled():
                return
            if error is not None:
                logger.warning("a marker was not delivered and is tried again %s error=%r", _ids(completion), error)
            else:
                self._settle(completion, task.result())
            now = self._clock.now()
            if not completion.waiting:
                self._conclude(completion, now)
            else:
                # The id stands still until then, so nobody should have to wait for the next tick.
                delay = max(completion.due - now, 0) / 1000
                task.get_loop().call_later(delay, self._again, completion)

        task.add_done_callback(answered)

    def _again(self, completion: Completion) -> None:
        if completion in self._unfinished and not completion.in_flight:
            self._advance(completion, self._clock.now())

    def _settle(self, completion: Completion, results: Results) -> None:
        for (topic, index), error in completion.settle(results):
            # Not given up: a transaction that stays prepared would block its id for ever (facts §13.7, 5).
            logger.error(
                "a partition refuses the marker of a transaction, it is tried again %s topic=%s partition=%d error=%s",
                _ids(completion),
                topic,
                index,
                error.name,
            )


def _ids(completion: Completion) -> str:
    marker = completion.marker
    return f"producer_id={marker.producer_id} epoch={marker.producer_epoch} commit={marker.commit}"
