"""Producers of every kind, readers of what they write, and askers who follow no protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice
from typing import Final

from fencepost.client.errors import UnsupportedByBrokerError
from fencepost.simulation.cast import Stage, Window, begin, kind
from fencepost.simulation.checkers.transactions import check, check_part, check_uncommitted
from fencepost.simulation.checkers.transactions.changed import changed
from fencepost.simulation.checkers.transactions.differing import differing
from fencepost.simulation.checkers.transactions.lost import lost
from fencepost.simulation.checkers.transactions.misplaced import misplaced
from fencepost.simulation.checkers.transactions.surprised import surprised
from fencepost.simulation.readers import UNCOMMITTED, read_all, read_positions, unfinished
from fencepost.simulation.workload import EARLY, make_topics

#: Those who do not commit a last one by themselves.
_GOES_ON: Final = ("single", "pipelined", "windowed", "older")
#: Whose groups have positions.
_WITH_POSITIONS: Final = ("producer", "impatient")
#: Seconds of virtual time that everybody has to end when somebody has not got on: that may take for ever.
_NO_PATIENCE: Final = 5.0


class Producers:
    """Clients that write to TOPICS, and read it meanwhile (inhabitants.Inhabitants)."""

    def __init__(
        self,
        stage: Stage,
        clients: Mapping[str, Window],
        level: int | None = None,
        settings: Mapping[str, str] = {},
    ) -> None:
        """`level`: of transaction.version, at the beginning (None: as it is); `settings`: of their topics."""
        self._stage = stage
        self._clients = clients
        self._level = level
        self._settings = settings
        self._stops = {name: asyncio.Event() for name in clients}
        self._work: dict[str, asyncio.Future[None]] = {}
        self._left: list[str] = []
        """Who is to commit something once more, now that nothing goes wrong any more."""

    async def prepare(self) -> None:
        await make_topics(self._stage.world, self._level, self._settings)

    def begin(self) -> None:
        for name, window in self._clients.items():
            self._work[name] = begin(self._stage, name, window, self._stops[name])

    def calm_down(self) -> None:
        for name, stop in self._stops.items():
            if name not in self._left:
                stop.set()

    async def rest(self) -> list[str]:
        """Have each commit once more, then end; in sentences who does not in bounded time."""
        faults = await self._get_on([name for name in self._work if kind(name) in _GOES_ON])
        for stop in self._stops.values():
            stop.set()
        if self._work:
            patience = _NO_PATIENCE if faults else self._stage.world.patience
            await asyncio.wait(self._work.values(), timeout=patience)
        for name, work in self._work.items():
            if not work.done():
                faults.append(f"{name} does not end")
            elif work.exception() is not None:
                faults.append(f"{name} ended with {work.exception()!r}")
        return faults

    async def _get_on(self, writers: list[str]) -> list[str]:
        """The writers that do not commit once more in bounded time, in sentences."""
        loop, committed = self._stage.world.loop, self._stage.outcomes.committed
        patience = self._stage.world.patience
        before, give_up = len(committed), loop.time() + patience
        while True:
            done = {tag.rpartition("-")[0] for tag in islice(committed, before, None)}
            self._left = [name for name in writers if name not in done and not self._work[name].done()]
            if not self._left or loop.time() > give_up:
                return [
                    f"{name} commits nothing any more, {patience:.0f} s after the last fault" for name in self._left
                ]
            await asyncio.sleep(0.05)

    async def judge(self) -> list[str]:
        world, outcomes = self._stage.world, self._stage.outcomes
        shown = await read_all(world, sights=outcomes.sights)
        faults = check(outcomes, shown)
        early_is_right = world.may_end_early
        faults += [told for told in surprised(outcomes) if not (early_is_right and told.endswith(EARLY))]
        names = [name for name in self._clients if kind(name) in _WITH_POSITIONS]
        try:
            faults += misplaced(outcomes, shown, await read_positions(world, names))
            faults += await unfinished(world)
        except UnsupportedByBrokerError as error:
            world.note(f"not looked at: {error}")
        passes = self._stage.passes
        faults += [fault for part in passes for fault in check_part(outcomes, part)]
        faults += differing(outcomes, [*passes, shown])
        faults += await self._judge_uncommitted()
        return faults + changed(outcomes.sights)

    async def _judge_uncommitted(self) -> list[str]:
        """The promises broken to readers of uncommitted records, with one of these that reads now, in sentences."""
        parts, outcomes = self._stage.uncommitted, self._stage.outcomes
        if not parts:
            return []
        parts = [*parts, await read_all(self._stage.world, UNCOMMITTED, outcomes.sights)]
        faults = [fault for part in parts for fault in check_uncommitted(outcomes, part)]
        return faults + lost(outcomes, parts[-1]) + differing(outcomes, parts)
