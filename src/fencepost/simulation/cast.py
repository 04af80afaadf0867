"""The clients of a run: of several kinds, each known by its kind and a number, and the time in which it works."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fencepost.simulation.any_request import Asker
from fencepost.simulation.idempotent_load import produce_idempotently
from fencepost.simulation.impatient_load import produce_impatiently
from fencepost.simulation.pipelined_load import produce_pipelined
from fencepost.simulation.readers import UNCOMMITTED, Part, read_meanwhile
from fencepost.simulation.surroundings import ClientProcess, Surroundings
from fencepost.simulation.windowed_load import produce_windowed
from fencepost.simulation.workload import Load, Outcomes, produce


class Window(NamedTuple):
    """The time in which a client works, in seconds from the beginning."""

    begin: float = 0
    end: float = math.inf
    """At the latest: when the run is over it ends anyway."""


@dataclass
class Stage:
    """The world, the load and the notes that all clients of a run share."""

    world: Surroundings
    process: Callable[[str], ClientProcess]
    """Makes a process of that name."""
    outcomes: Outcomes
    load: Load
    passes: list[Part] = field(default_factory=list)
    """The records that each reader of committed records was shown, each time that it read."""
    uncommitted: list[Part] = field(default_factory=list)
    """The records that each reader of uncommitted records was shown, each time that it read."""


Work = Coroutine[Any, Any, None]
_Kind = Callable[[Stage, ClientProcess, asyncio.Event], Work]

#: What the names of a kind begin with -> its work, until told to stop.
KINDS: Final[Mapping[str, _Kind]] = {
    "producer": lambda stage, process, stop: produce(process, stage.outcomes, stop, stage.load),
    "single": lambda stage, process, stop: produce_idempotently(process, stage.outcomes, stop, stage.load),
    "pipelined": lambda stage, process, stop: produce_pipelined(process, stage.outcomes, stop, stage.load),
    "windowed": lambda stage, process, stop: produce_windowed(process, stage.outcomes, stop, stage.load),
    "older": lambda stage, process, stop: produce_windowed(process, stage.outcomes, stop, stage.load, newest=1),
    "impatient": lambda stage, process, stop: produce_impatiently(process, stage.outcomes, stop, stage.load),
    "asker": lambda stage, process, stop: Asker(process.runtime(), *stage.world.cluster[:2]).ask(stop),
    "reader": lambda stage, process, stop: read_meanwhile(
        process, stage.passes, stop, stage.load.impatience_ms, stage.outcomes.sights, batches=stage.load.batches
    ),
    "onlooker": lambda stage, process, stop: read_meanwhile(
        process,
        stage.uncommitted,
        stop,
        stage.load.impatience_ms,
        stage.outcomes.sights,
        UNCOMMITTED,
        batches=stage.load.batches,
    ),
}


def kind(name: str) -> str:
    """The kind of a client, which its name begins with."""
    return name.partition("-")[0]


def begin(stage: Stage, name: str, window: Window, stop: asyncio.Event) -> asyncio.Future[None]:
    """Have a client work, in a process of its own, as long as its window says or until told to stop."""
    if window.end < math.inf:
        stage.world.loop.call_at(window.end, stop.set)
    process = stage.process(name)
    return process.start(_work(stage, process, window, stop))


async def _work(stage: Stage, process: ClientProcess, window: Window, stop: asyncio.Event) -> None:
    await stage.world.until(window.begin)
    await KINDS[kind(process.name)](stage, process, stop)
